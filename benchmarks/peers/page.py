#!/usr/bin/env python3
"""Writes the results of run.py into docs/comparison.md, between <!-- duel: NAME --> and <!-- end of duel -->, and draws
docs/images/comparison-NAME.svg. With --check it changes nothing and says which file is old; --merge FOLDER first takes
the results of quiet.py from there, in place of older ones. Speeds of a machine with more to do than cores are left out.
"""

import json
import pathlib
import re
import sys

import environments

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs/comparison.md"
COLOURS = ("#2f6fb7", "#e08a3c", "#4c9f70", "#8d6cab")
LEFT, WIDTH, BAR, GAP = 330, 420, 16, 6


def read(path):
    return json.loads(path.read_text())["rows"] if path.exists() else []


def rows_of(name):
    return read(HERE / "results" / f"{name}.json")


def title(row):
    name = environments.PEERS[row["peer"]].title
    return f"{name} ({row['variant']})" if row.get("variant") else name


def table(head, lines):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for line in lines:
        yield "| " + " | ".join(line) + " |"


def number(value, digits=0):
    return "" if value is None else f"{value:.{digits}f}"


def small(value):
    """7e-16 and 0.55 both can be read."""
    return f"{value:.0e}".replace("e-0", "e-") if value < 1e-3 else f"{value:.2f}"


def quiet(row):
    """A load that is null was not noted."""
    load = row["machine"]["load"]
    return load is not None and load <= row["machine"]["cores"]


def speed(row, *names):
    """Samples a second, before and after; nothing where the machine was busy."""
    return " → ".join(number(row[name]) for name in names) if quiet(row) else "—"


def merged(old, new):
    def key(row):
        return row["peer"], row.get("variant", ""), row.get("cluster", "")

    taken = {key(row) for row in new}
    return [row for row in old if key(row) not in taken] + new


def save(path, duel, rows):
    """A line for each, in the order of the peers."""
    order = list(environments.PEERS)
    rows.sort(key=lambda row: (row.get("cluster", ""), order.index(row["peer"]), row.get("variant", "")))
    lines = ",\n  ".join(json.dumps(one) for one in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"duel": "{duel}", "rows": [\n  {lines}\n]}}\n')


def machines(rows):
    """One sentence on where and when."""
    places = [row["machine"] for row in rows]
    kinds = sorted({f"{one['cores']} cores ({one['processor']}), {one['date']}" for one in places})
    loads = [one["load"] for one in places if one["load"] is not None]
    return f"Measured on {' and '.join(kinds)}; load average {min(loads):.0f} to {max(loads):.0f} while it ran."


def gradient():
    rows = rows_of("gradient")
    good = [row for row in rows if "failed" not in row]
    yield from table(
        ("", "distance from the one-process gradient, relative", "verdict"),
        ([title(row), small(row["relative_error"]), "exact" if row["relative_error"] < 1e-6 else "another gradient"]
         for row in good),
    )  # fmt: skip
    yield from failures(rows)
    yield ""
    yield machines(rows)


def shares():
    rows = rows_of("shares")
    good = [row for row in rows if "failed" not in row]
    yield from table(
        ("", "", "samples of each worker (5.3, 5.3, 8 and 1 ms a sample)", "samples a step", "updates/s", "samples/s"),
        ([environments.PEERS[row["peer"]].title, row["variant"], ", ".join(map(str, row["per_worker"])),
          number(row["batch"]), number(row["updates_per_second"], 1) if quiet(row) else "—",
          speed(row, "samples_per_second")] for row in good),
    )  # fmt: skip
    yield from failures(rows)
    yield ""
    yield machines(rows)


def paused(row):
    load = number(row["machine"]["load"]) or "unknown height"
    return number(row["pause"], 2) + ("" if quiet(row) else f" at a load of {load}")


def kill():
    rows = rows_of("kill")

    def cells(row):
        if not row["goes_on"]:
            said = f"no further step: `{row['error'][:100]}`" if row["error"] else "no further step"
            return [title(row), said, "", "", "", ""]
        unused = f"{row['never_used']} / {row['used_again']}" if "never_used" in row else "no epochs" \
            if row["peer"] == "hivemind" else "epoch not finished"  # fmt: skip
        return [title(row), "goes on", paused(row), unused,
                f"{number(row['batch_before'])} → {number(row['batch_after'])}",
                speed(row, "rate_before", "rate_after")]  # fmt: skip

    yield from table(
        ("", "the others", "pause, s", "of the epoch never used / computed again", "samples a step", "samples/s"),
        (cells(row) for row in rows if "failed" not in row),
    )
    yield from failures(rows)
    yield ""
    yield machines(rows)


def join():
    rows = rows_of("join")

    def cells(row):
        if not row.get("joined"):
            return [title(row), "does not come in", "", "", ""]
        return [title(row), paused(row), number(row["seconds_until_it_trains"], 1),
                f"{number(row['batch_before'])} → {number(row['batch_after'])}",
                speed(row, "rate_before", "rate_after")]  # fmt: skip

    yield from table(
        ("", "pause of the others, s", "from its start to its first step, s", "samples a step", "samples/s"),
        (cells(row) for row in rows if "failed" not in row),
    )
    yield from failures(rows)
    yield ""
    yield machines(rows)


def overhead():
    rows = rows_of("overhead")
    good = [row for row in rows if "failed" not in row]
    yield from table(
        ("", "processor time of a step, ms", "against DDP (lowest, highest)", "wall-clock time of a step, ms",
         "against DDP (lowest, highest)"),
        ([title(row), number(row["cpu_milliseconds"], 1), spread(row, "cpu"), number(row["wall_milliseconds"], 1),
          spread(row, "wall")] for row in good),
    )  # fmt: skip
    yield from failures(rows)
    yield ""
    yield machines(rows)


def spread(row, name):
    lowest, highest = row[f"{name}_spread"]
    return f"{row[f'{name}_over_ddp']:.3f} ({lowest:.2f}, {highest:.2f})"


def throughput():
    rows = rows_of("throughput")
    base = {row["cluster"]: row for row in rows if row["peer"] == "ddp" and "failed" not in row}

    def cells(row):
        other = base.get(row["cluster"])
        ratio = row["samples_per_second"] / other["samples_per_second"] if other else None
        return [row["cluster"], environments.PEERS[row["peer"]].title, number(row["samples_per_second"]),
                number(ratio, 2), number(row["seconds_to_target"], 1) or "not reached",
                number(100 * row["last_accuracy"], 1) if row["last_accuracy"] is not None else ""]  # fmt: skip

    good = [row for row in rows if "failed" not in row]
    target = f"s to {100 * good[0]['target']:.0f} %" if good else "s to target"
    yield from table(("cluster", "", "samples/s", "x DDP", target, "accuracy at the end, %"), map(cells, good))
    yield from failures(rows)
    if rows:
        yield ""
        yield machines(rows)


def failures(rows):
    for row in rows:
        if "failed" in row:
            yield ""
            where = f" on {row['cluster']}" if "cluster" in row else ""
            yield f"{title(row)}{where}: not measured, `{row['failed']}`."


DUELS = {one.__name__: one for one in (gradient, shares, kill, join, overhead, throughput)}


def svg(lines, height):
    size = f'width="{LEFT + WIDTH + 130}" height="{height}"'
    style = 'font-family="sans-serif" font-size="13" fill="#1f2328"'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}><rect {size} fill="#ffffff"/>'
    return begin + "".join(lines) + "</svg>\n"


def bars(items, unit, heading):
    """`items` are (label, parts, text): parts lie behind one another, in colours of their own."""
    most = max((sum(parts) for _, parts, _ in items), default=0) or 1
    lines, y = [f'<text x="8" y="20" font-weight="bold">{heading}</text>'], 34
    for label, parts, text in items:
        lines.append(f'<text x="8" y="{y + BAR - 4}">{escaped(label)}</text>')
        x = LEFT
        for colour, part in zip(COLOURS * 9, parts):
            width = WIDTH * part / most
            lines.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>')
            x += width
        lines.append(f'<text x="{x + 6:.1f}" y="{y + BAR - 4}">{text}{unit}</text>')
        y += BAR + GAP
    return svg(lines, y + 8)


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


def shortened(row):
    return title(row) if len(title(row)) < 48 else title(row)[:45] + "…"


def pictures():
    """By name of the file."""
    found = {}
    rows = [row for row in rows_of("gradient") if "failed" not in row]
    if rows:
        items = [(shortened(row), [row["relative_error"]], small(row["relative_error"])) for row in rows]
        found["gradient"] = bars(items, "", "Distance from the gradient of one process, batches of 5, 11, 17 and 31")
    rows = [row for row in rows_of("shares") if "failed" not in row and row["variant"] == "B = 384"]
    if rows:
        items = [(environments.PEERS[row["peer"]].title[:44], row["per_worker"],
                  ", ".join(number(one) for one in row["per_worker"])) for row in rows]  # fmt: skip
        found["shares"] = bars(items, "", "Who computes how many of 384; workers of 5.3, 5.3, 8 and 1 ms a sample")
    rows = [row for row in rows_of("kill") if "failed" not in row]
    if rows:
        items = [(shortened(row), [row.get("batch_after") or 0.0],
                  number(row.get("batch_after")) or "no further step") for row in rows]  # fmt: skip
        found["kill"] = bars(items, "", "Samples a step after one of four workers was killed; before, 64")
    rows = [row for row in rows_of("throughput") if "failed" not in row]
    if rows:
        items = [(f"{row['cluster']}: {environments.PEERS[row['peer']].title}", [row["samples_per_second"]],
                  number(row["samples_per_second"])) for row in rows]  # fmt: skip
        found["throughput"] = bars(items, " samples/s", "A CNN on unequal workers (CPU quotas)")
    return found


def filled(text):
    def section(match):
        body = "\n".join(DUELS[match[1]]()) if rows_of(match[1]) else "Not measured yet."
        return f"<!-- duel: {match[1]} -->\n{body}\n<!-- end of duel -->"

    return re.sub(r"<!-- duel: (\w+) -->\n.*?<!-- end of duel -->", section, text, flags=re.DOTALL)


def main():
    old = []
    if "--merge" in sys.argv:
        for path in pathlib.Path(sys.argv[sys.argv.index("--merge") + 1]).glob("*.json"):
            save(HERE / "results" / path.name, path.stem, merged(rows_of(path.stem), read(path)))
    files = {PAGE: filled(PAGE.read_text())}
    files |= {ROOT / f"docs/images/comparison-{name}.svg": text for name, text in pictures().items()}
    for path, text in files.items():
        if not path.exists() or path.read_text() != text:
            old.append(path)
            if "--check" not in sys.argv:
                path.write_text(text)
    verdict = "is old; run benchmarks/peers/page.py" if "--check" in sys.argv else "written"
    for path in old:
        print(f"{path.relative_to(ROOT)} {verdict}")
    return int(bool(old) and "--check" in sys.argv)


if __name__ == "__main__":
    raise SystemExit(main())
