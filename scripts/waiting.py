#!/usr/bin/env python3
"""Draws the README's picture of waiting from the run logs of `make demo`: scripts/waiting.py

For every worker four steps of equal batches, and below them as much time with isochron: computing in colour, waiting for
the others and the exchange with them in grey.
"""

import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = {"equal batches": "uniform.1.jsonl", "isochron": "isochron.1.jsonl"}
STEPS, FIRST = 4, 36  # from the last turn of each: balanced by then
CORES = ("0.19 cores", "0.19 cores", "0.125 cores", "1 core")  # of the cluster hl8
LEFT, WIDTH, BAR, GAP = 110, 640, 16, 4


def steps_of(name):
    """Lines of steps in a row, from FIRST on."""
    lines = map(json.loads, (ROOT / "build/demo" / name).read_text().splitlines())
    return [line for line in lines if line["type"] == "step" and line["step"] >= FIRST]


def bars(steps, seconds, top):
    """Of one policy: a line for each worker."""
    begin, scale = steps[0]["start"], WIDTH / seconds
    for row in range(len(steps[0]["workers"])):
        y = top + row * (BAR + GAP)
        yield f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{BAR}" fill="#d0d4da"/>'
        for step in steps:
            x = (step["starts"][row] - begin) * scale
            width = min(step["compute_seconds"][row] * scale, WIDTH - x)
            if width > 0:
                yield f'<rect x="{LEFT + x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="#2f6fb7"/>'


def main():
    runs = {label: steps_of(name) for label, name in LOGS.items()}
    uniform = runs["equal batches"]
    seconds = uniform[STEPS]["start"] - uniform[0]["start"]
    parts, top = [], 34
    for label, steps in runs.items():
        shown = [step for step in steps if step["start"] - steps[0]["start"] < seconds]
        parts.append(f'<text x="8" y="{top - 10}" font-weight="bold">{label}: {len(shown)} steps in {seconds:.1f} s</text>')
        for row, cores in enumerate(CORES):
            y = top + row * (BAR + GAP) + BAR - 4
            parts.append(f'<text x="8" y="{y}">{cores}</text>')
        parts += bars(shown, seconds, top)
        top += len(CORES) * (BAR + GAP) + 36
    parts.append(f'<text x="{LEFT}" y="{top - 12}">blue: computing; grey: waiting for the others, and the exchange</text>')
    size = f'width="{LEFT + WIDTH + 10}" height="{top}"'
    style = 'font-family="sans-serif" font-size="13" fill="#1f2328"'
    text = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}><rect {size} fill="#ffffff"/>{"".join(parts)}</svg>\n'
    (ROOT / "docs/images/waiting.svg").write_text(text)


if __name__ == "__main__":
    main()
