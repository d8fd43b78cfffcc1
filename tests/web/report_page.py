#!/usr/bin/env python3
"""The report in a browser: what it shows, how it is used, on a wide screen and on a phone, light and dark."""

import json

from browser import browser, check, colours, parse_options, run, scratch, silent_page, window

FIGURES = ("batches", "times", "gantt", "balance", "utilization", "speed", "curves")
TOP = {"x": 0, "y": 0, "width": 1100, "height": 1500}
CLUSTER = """
name = "workshop"
[[worker]]
name = "tower"
cores = 8.0
noise = 0.03
[[worker]]
name = "laptop"
cores = 3.0
overhead = 2
noise = 0.05
[[worker]]
name = "old-server"
cores = 2.0
noise = 0.04
[[worker]]
name = "spot"
cores = 4.0
noise = 0.04
[[change]]
at_step = 80
worker = "tower"
cores = 4.0
[[change]]
at_step = 150
worker = "spot"
event = "kill"
[[change]]
at_step = 200
worker = "tower"
cores = 8.0
"""


def write_report(isochron, folder):
    (folder / "workshop.toml").write_text(CLUSTER)
    run(isochron, "simulate", "--cluster", "workshop.toml", "--policy", "uniform,isochron", "--steps", 300,
        "--gradient-bytes", "2mbyte", "--link-rate", "1gbit", "--log", "run.jsonl", folder=folder)  # fmt: skip
    run(isochron, "report", "run.uniform.jsonl", "run.isochron.jsonl", folder=folder)
    return (folder / "report.html").as_uri()


def check_content(page):
    headline = page.inner_text("#headline")
    check("times the samples per second of equal batches on workshop (4 workers)" in headline, headline)
    check(headline.endswith(" over the whole run."), headline)
    head = page.locator("#runs thead").inner_text()
    check("x equal shares in the last 32 steps" in head, head)
    check(page.locator("#runs tbody tr").count() == 2, "a row per run")
    workers = page.locator("#workers tbody tr").all_inner_texts()
    check(len(workers) == 4 and "old-server" in workers[2], workers)
    head = page.locator("#workers thead").inner_text()
    check("of all work" not in head and "peak memory" not in head and "kind" in head, "what is unknown is left out")
    check("(gone)" in workers[3], workers)
    check("All 300 steps are here" in page.inner_text("#notice"), "the notice")
    notes = page.inner_text("#notes")
    check("speed" in notes and "kill" in notes and "split: speed-changed" in notes, notes)
    for figure in FIGURES:
        check(page.locator(f"#{figure} canvas").is_visible(), figure)
        check(colours(page, f"#{figure} canvas") > 3, f"{figure} is empty")
    marks = page.inner_text("#marks")
    check("S speed" in marks and "D kill" in marks and "s new split (speed-changed)" in marks, marks)
    check(not page.locator("#accuracy").is_visible(), "there was no evaluation, so there is nothing to show")


def check_zoom(page):
    page.locator("#balance .u-over").scroll_into_view_if_needed()
    box = page.locator("#balance .u-over").bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=4)
    page.mouse.up()
    low, high = window(page)
    check(70 <= low <= 80 and 145 <= high <= 155, f"zoomed to {low}, {high}")
    page.locator("#balance .u-over").dblclick()
    check(window(page) == [0, 299], "a double-click shows all")
    page.fill("#from", "100")
    page.press("#from", "Enter")
    page.fill("#to", "110")
    page.press("#to", "Enter")
    check(window(page) == [100, 110], window(page))
    check("Each bar is one step." in page.inner_text("#gantt output"), "the Gantt chart follows")
    page.click("input[name=axis][value=time]")
    seconds = window(page)
    check(0 < seconds[0] < seconds[1] < 100, seconds)
    page.click("input[name=axis][value=steps]")
    check(window(page) == [100, 110], "the same steps again")
    page.click("#all")
    check(window(page) == [0, 299], "all again")


def check_keyboard(page):
    page.focus("#times")
    page.keyboard.press("+")
    check(window(page) == [75, 224], window(page))
    page.keyboard.press("ArrowRight")
    check(window(page)[0] > 75, "moved")
    page.keyboard.press("0")
    check(window(page) == [0, 299], "all")
    page.focus("#gantt")
    page.keyboard.press("ArrowDown")
    check(page.locator("#workers button").nth(0).get_attribute("aria-pressed") == "true", "the first worker")
    page.keyboard.press("ArrowUp")
    check(page.locator("#workers button").nth(3).get_attribute("aria-pressed") == "true", "round to the last")
    page.locator("#workers button").nth(3).press("Enter")
    check(page.locator("#workers button[aria-pressed=true]").count() == 0, "none")


def check_selection(page):
    page.locator("#workers button", has_text="laptop").click()
    check(page.locator("#workers button[aria-pressed=true]").inner_text() == "laptop", "the laptop stands out")
    page.hover("#times .u-over")
    check("laptop: " in page.inner_text("#times output"), page.inner_text("#times output"))
    check("tower" not in page.inner_text("#times output"), "only the chosen one")
    page.locator("#workers button", has_text="laptop").click()
    page.hover("#times .u-over")
    check("tower" in page.inner_text("#times output"), "all of them")
    page.click("input[name=stacked][value=no]")
    page.hover("#batches .u-over")
    check("step" in page.inner_text("#batches output"), "lines tell as well")
    page.click("input[name=stacked][value=yes]")


def check_runs(page):
    page.hover("#speed .u-over")
    check("uniform: " in page.inner_text("#speed output"), "both runs")
    page.locator("#runs input").nth(0).uncheck()
    page.hover("#utilization .u-over")
    check("uniform" not in page.inner_text("#utilization output"), "hidden")
    page.locator("#runs input").nth(0).check()
    page.select_option("#run", label="uniform")
    check("speed-changed" not in page.inner_text("#notes"), "equal batches are never changed for speed")
    page.select_option("#run", label="isochron")


def check_notes(page):
    page.locator("#notes tr", has_text="speed-changed").first.locator("button").click()
    low, high = window(page)
    check(high - low == 24, f"a mark zooms in: {low} to {high}")
    page.click("#all")


def check_buttons(page):
    """What a finger has instead of the keyboard."""
    page.get_by_role("button", name="Zoom in").tap()
    check(window(page) == [75, 224], window(page))
    page.get_by_role("button", name="Later").tap()
    check(window(page)[0] > 75, "moved")
    page.get_by_role("button", name="All").tap()
    check(window(page) == [0, 299], "all")


def trained_lines(policy, seconds):
    """Ten steps of a worker, evaluated in the middle and after the last."""
    yield {"type": "run", "schema": 1, "program": "train", "version": "1", "policy": policy, "cluster": "c",
           "global_batch": 8, "seed": 1, "workers": [{"id": 0, "name": "w0", "kind": "cpu"}]}  # fmt: skip
    for step in range(10):
        start = step * seconds + 100.0 * (step // 5)  # the other run's turn comes after five steps
        yield {"type": "step", "step": step, "start": start, "seconds": seconds, "workers": [0],
               "batch_sizes": [8], "starts": [start], "compute_seconds": [seconds], "wait_seconds": [0.25 * seconds],
               "exchange_seconds": [0], "inner_wait_seconds": [0.125 * seconds], "work": [80], "padding": [20],
               "learning_rate_factor": 1, "changed": False, "reason": "kept", "loss": 2 / (step + 1)}  # fmt: skip
        if step in (4, 9):
            yield {"type": "evaluation", "step": step + 1, "seconds": start + 2 * seconds, "loss": 1 / (step + 1),
                   "accuracy": 0.09 * (step + 1)}  # fmt: skip


def write_trained_report(isochron, folder):
    for policy, seconds in (("uniform", 0.2), ("isochron", 0.1)):
        lines = trained_lines(policy, seconds)
        (folder / f"{policy}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run(isochron, "report", "uniform.jsonl", "isochron.jsonl", "-o", "trained.html", folder=folder)
    return (folder / "trained.html").as_uri()


def check_learning(page):
    """Loss and accuracy of both runs; the last evaluation, after the last step, is on the axis."""
    for axis, end in (("steps", 10), ("time", 2)):
        page.click(f"input[name=axis][value={axis}]")
        check(window(page) == [0, end], f"{axis}: {window(page)}")
        for figure, last in (("test-loss", "0.1000"), ("accuracy", "90.0 %")):
            over = page.locator(f"#{figure} .u-over")
            over.scroll_into_view_if_needed()
            box = over.bounding_box()
            over.hover(position={"x": box["width"] - 2, "y": 40})
            text = page.inner_text(f"#{figure} output")
            check(f"uniform: {last}" in text and f"isochron: {last}" in text, text)
    check(colours(page, "#loss canvas") > 3, "the training loss is drawn")
    check("1:40 min between steps" in page.inner_text("#notice"), page.inner_text("#notice"))
    ticks = page.evaluate("formatPercentTicks([0.81, 0.8125, 0.815])")
    check(len(set(ticks)) == 3, ticks)
    times = page.evaluate("[0.9994, 0.9999999, 1].map(formatSeconds)")
    check(times == ["999 ms", "1.00 s", "1.00 s"], times)
    head = page.locator("#workers thead").inner_text()
    check("of all work" in head and "padding" in head, head)
    cells = page.locator("#workers tbody").inner_text()
    check("25.0 %" in cells, "20 of 80 are padding")
    check("of it within steps" in head and "10.0 %" in cells, "an eighth of 1 + a quarter")


def write_once_evaluated_report(isochron, folder):
    """Evaluated after the last step alone."""
    lines = [line for line in trained_lines("isochron", 0.1) if line["type"] != "evaluation" or line["step"] == 10]
    (folder / "once.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run(isochron, "report", "once.jsonl", "-o", "once.html", folder=folder)
    return (folder / "once.html").as_uri()


def check_single_evaluation(page):
    """One value is in the table; a chart would be a dot in an empty grid."""
    for figure in ("test-loss", "accuracy"):
        check(not page.locator(f"#{figure}").is_visible(), f"{figure} shows one value")
    row = page.locator("#runs tbody").inner_text()
    check("90.0 %" in row, row)
    check(page.locator("#loss").is_visible(), "the loss of ten steps is a line")


def check_wide(page):
    """Charts stand side by side where there is room for it."""
    left, right = (page.locator(f"#{figure}").bounding_box() for figure in ("balance", "utilization"))
    check(left["x"] + left["width"] <= right["x"] and abs(left["y"] - right["y"]) < 2, (left, right))
    check(not page.locator("#wider").is_visible(), "no table is cut off")


def check_fits(page):
    width = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    check(width[0] <= width[1], f"the page is {width[0]} wide in a window of {width[1]}")


def check_long_run(page):
    """More steps than points: the page says so, and keeps the extremes."""
    notice = page.inner_text("#notice")
    check("20,000 steps are drawn as " in notice and "the smallest and the largest" in notice, notice)
    check("Each bar is up to" in page.inner_text("#gantt output"), page.inner_text("#gantt output"))
    check(window(page) == [0, 19999], window(page))
    page.locator("#workers button").nth(0).click()
    page.hover("#times .u-over", position={"x": 300, "y": 60})
    check(" to " in page.inner_text("#times output").split("w0:")[1], "the range of the chosen worker")
    page.locator("#notes tr", has_text="speed").first.locator("button").click()
    check("Each bar is one step." in page.inner_text("#gantt output"), "steps around an event are exact")


def write_long_report(isochron, folder):
    run(isochron, "simulate", "--cluster", "dynamic", "--policy", "isochron", "--steps", 20000, "--noise", 0.05,
        "--log", "long.jsonl", folder=folder)  # fmt: skip
    run(isochron, "report", "long.jsonl", "-o", "long.html", folder=folder)
    return (folder / "long.html").as_uri()


def write_asynchronous_report(isochron, folder):
    run(isochron, "simulate", "--cluster", "hl8", "--policy", "uniform", "--sync", "ssp", "--steps", 20,
        "--noise", 0.05, "--log", "async.jsonl", folder=folder)  # fmt: skip
    run(isochron, "report", "async.jsonl", "-o", "async.html", folder=folder)
    return (folder / "async.html").as_uri()


def check_asynchronous(page):
    """Between its updates a worker has the values of the one before, and its waiting comes before it computes."""
    rows = page.evaluate("currentRun().workers.map((_, k) => currentRun().row(currentRun().timeline.batch.mean, k))")
    for row in rows:
        there = [place for place, value in enumerate(row) if value is not None]
        check(there == list(range(there[0], there[-1] + 1)), f"a row with holes: {row}")
    check("waits for the others" in page.inner_text("#notice"), page.inner_text("#notice"))
    early = page.evaluate("""(() => {
      const run = currentRun(), t = run.timeline;
      const at = t.wait.findIndex((seconds) => seconds > 0);
      return charts.find((chart) => chart.parts).parts(run, [at % t.bins, at % t.bins], Math.floor(at / t.bins)).start -
             t.start[at % t.bins] + t.wait[at];
    })()""")
    check(abs(early) < 1e-6, early)


def main():
    options = parse_options(__doc__)
    with scratch() as folder, browser() as running:
        address = write_report(options.isochron, folder)
        desk = {"viewport": {"width": 1100, "height": 900}}
        with silent_page(running, address, color_scheme="light", **desk) as page:
            check_content(page)
            check(not page.locator("#wider").is_visible(), "no table is cut off")
            page.screenshot(path=options.pictures / "report-light.png", clip=TOP, full_page=True)
            check_zoom(page)
            check_keyboard(page)
            check_selection(page)
            check_runs(page)
            check_notes(page)
            page.emulate_media(color_scheme="dark")
            page.fill("#from", "76")
            page.fill("#to", "96")
            page.press("#to", "Enter")
            page.locator("#gantt").scroll_into_view_if_needed()
            page.locator("section", has=page.locator("#gantt")).screenshot(path=options.pictures / "gantt-dark.png")
        with silent_page(running, address, color_scheme="dark", **desk) as page:
            page.screenshot(path=options.pictures / "report-dark.png", clip=TOP, full_page=True)
        phone = {"viewport": {"width": 375, "height": 740}, "device_scale_factor": 2, "has_touch": True}
        with silent_page(running, address, **phone) as page:
            check_content(page)
            check_fits(page)
            check_buttons(page)
            check(page.locator("#wider").is_visible(), "tables can be moved")
            page.screenshot(path=options.pictures / "report-phone.png")
        with silent_page(running, address, viewport={"width": 1600, "height": 900}) as page:
            check_wide(page)
            check_fits(page)
        with silent_page(running, write_trained_report(options.isochron, folder), **desk) as page:
            check_learning(page)
        with silent_page(running, write_once_evaluated_report(options.isochron, folder), **desk) as page:
            check_single_evaluation(page)
        with silent_page(running, write_asynchronous_report(options.isochron, folder), **desk) as page:
            check_asynchronous(page)
        with silent_page(running, write_long_report(options.isochron, folder), **desk) as page:
            check_long_run(page)


main()
