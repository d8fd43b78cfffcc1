#!/usr/bin/env python3
"""How long a report of a long run takes, how large it is, and how soon the page can be used.

The simulator writes the log: workers of four speeds with noise, speeds that change every tenth of the run. Median of
several runs of `isochron report`; the page is opened in Chromium from a cold start.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cluster(workers, steps):
    lines = ['name = "long"']
    for worker in range(workers):
        lines += ["[[worker]]", f'name = "w{worker}"', f"cores = {[1, 2, 4, 8][worker % 4]}.0", "noise = 0.05"]
    for change in range(1, 10):
        at_step = f"at_step = {change * steps // 10}"
        lines += ["[[change]]", at_step, f'worker = "w{change}"', f"cores = {1 + change % 4}.0"]
    return "\n".join(lines) + "\n"


def write_log(isochron, folder, workers, steps):
    (folder / "long.toml").write_text(cluster(workers, steps))
    subprocess.run([isochron, "simulate", "--cluster", "long.toml", "--policy", "isochron", "--steps", str(steps),
                    "--global-batch", str(32 * workers), "--gradient-bytes", "1mbyte", "--link-rate", "10gbit",
                    "--log", "long.jsonl"], cwd=folder, check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    return folder / "long.jsonl"


def time_report(isochron, log, runs):
    seconds = []
    for _ in range(runs):
        start = time.monotonic()
        subprocess.run([isochron, "report", log, "-o", "long.html"],
                       cwd=log.parent, check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        seconds.append(time.monotonic() - start)
    return statistics.median(seconds)


def time_page(html):
    """Seconds until the page is ready, and until a zoom is drawn; None without a browser."""
    program = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None, None
    if not program:
        return None, None
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = running.new_page(viewport={"width": 1200, "height": 900})
        page.goto("about:blank")
        start = time.monotonic()
        page.goto(html.as_uri())
        page.wait_for_selector("html[data-ready=yes]", state="attached")
        page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        ready = time.monotonic() - start
        zoom = page.evaluate("""async () => {
          const start = performance.now();
          zoomWindow(0.5);
          await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
          return (performance.now() - start) / 1e3;
        }""")
        running.close()
    return ready, zoom


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isochron", type=pathlib.Path, default=ROOT / "build" / "release" / "bin" / "isochron")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, help="write the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        folder = pathlib.Path(name)
        log = write_log(options.isochron.resolve(), folder, options.workers, options.steps)
        seconds = time_report(options.isochron.resolve(), log, options.runs)
        ready, zoom = time_page(folder / "long.html")
        figures = {"steps": options.steps, "workers": options.workers, "log_megabytes": log.stat().st_size / 1e6,
                   "report_seconds": seconds, "html_megabytes": (folder / "long.html").stat().st_size / 1e6,
                   "page_seconds": ready, "zoom_seconds": zoom}  # fmt: skip
    print("\n".join(f"{key:16} {value if value is None or isinstance(value, int) else round(value, 3)}"
                    for key, value in figures.items()))  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


main()
