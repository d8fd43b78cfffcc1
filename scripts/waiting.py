#!/usr/bin/env python3
"""Draws the README's picture of waiting from the run logs of `make demo`: scripts/waiting.py

For every worker four steps of equal batches, and below them as much time with isochron: computing in colour, waiting
for the others and the exchange with them in grey. `scripts/waiting.py lengths` draws the same of samples of unequal
length, by count and by cost, from a simulation.
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = {"equal batches": "uniform.1.jsonl", "isochron": "isochron.1.jsonl"}
STEPS, FIRST = 4, 36  # from the last turn of each: balanced by then
CORES = ("0.19 cores", "0.19 cores", "0.125 cores", "1 core")  # of the cluster hl8
LEFT, WIDTH, BAR, GAP = 110, 640, 16, 4


def steps_of(path):
    """Lines of steps in a row, from FIRST on."""
    lines = map(json.loads, (ROOT / path).read_text().splitlines())
    return [line for line in lines if line["type"] == "step" and line["step"] >= FIRST]


def bars(steps, seconds, top):
    """Draws one policy: a line for each worker."""
    begin, scale = steps[0]["start"], WIDTH / seconds
    for row in range(len(steps[0]["workers"])):
        y = top + row * (BAR + GAP)
        yield f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{BAR}" fill="#d0d4da"/>'
        for step in steps:
            x = (step["starts"][row] - begin) * scale
            width = min(step["compute_seconds"][row] * scale, WIDTH - x)
            if width > 0:
                yield f'<rect x="{LEFT + x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="#2f6fb7"/>'


def draw(runs, cores, target):
    """`runs` are steps by label; as much time of each as STEPS of the first take."""
    first = next(iter(runs.values()))
    seconds = first[STEPS]["start"] - first[0]["start"]
    parts, top = [], 34
    for label, steps in runs.items():
        shown = [step for step in steps if step["start"] - steps[0]["start"] < seconds]
        title = f"{label}: {len(shown)} steps in {seconds:.1f} s"
        parts.append(f'<text x="8" y="{top - 10}" font-weight="bold">{title}</text>')
        for row, text in enumerate(cores):
            y = top + row * (BAR + GAP) + BAR - 4
            parts.append(f'<text x="8" y="{y}">{text}</text>')
        parts += bars(shown, seconds, top)
        top += len(cores) * (BAR + GAP) + 36
    legend = "blue: computing; grey: waiting for the others, and the exchange"
    parts.append(f'<text x="{LEFT}" y="{top - 12}">{legend}</text>')
    size = f'width="{LEFT + WIDTH + 10}" height="{top}"'
    style = 'font-family="sans-serif" font-size="13" fill="#1f2328"'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}><rect {size} fill="#ffffff"/>'
    (ROOT / "docs/images" / target).write_text(f"{begin}{''.join(parts)}</svg>\n")


def draw_lengths():
    folder = ROOT / "build/lengths"
    folder.mkdir(parents=True, exist_ok=True)
    command = [ROOT / "build/isochron", "simulate", "--cluster", "hl8", "--global-batch", "64", "--steps", "80",
               "--noise", "0.05", "--lengths", "lognormal", "--collate", "padded", "--deal", "both",
               "--policy", "isochron", "--log", folder / "run.jsonl"]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    logs = {"by count": "run.isochron-by-count.jsonl", "by cost": "run.isochron.jsonl"}
    runs = {label: steps_of(folder / name) for label, name in logs.items()}
    draw(runs, ("6 cores", "6 cores", "4 cores", "32 cores"), "lengths.svg")


if __name__ == "__main__":
    if sys.argv[1:] == ["lengths"]:
        draw_lengths()
    else:
        draw({label: steps_of(f"build/demo/{name}") for label, name in LOGS.items()}, CORES, "waiting.svg")
