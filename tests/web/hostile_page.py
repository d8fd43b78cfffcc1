#!/usr/bin/env python3
"""A log that means harm, or has lost its mind, is shown harmlessly."""

import json

from browser import browser, check, parse_options, run, scratch, silent_page

SCRIPT = "</script><script>alert('ran')</script><img src=x onerror=\"alert('ran')\">"
NAMES = [SCRIPT, "<!--", "]]>\u2028\u0000'\"`${alert('ran')}", "__proto__", "constructor", "x" * 5000]


def header():
    workers = [{"id": number, "name": name, "kind": SCRIPT} for number, name in enumerate(NAMES)]
    texts = {key: SCRIPT for key in ("program", "version", "policy", "cluster", "model", "dataset")}
    return {"type": "run", "schema": 1, "global_batch": 2**53, "seed": 2**64 - 1, "workers": workers, **texts}


def step(number, value):
    ids = list(range(len(NAMES)))
    columns = ("starts", "compute_seconds", "wait_seconds", "exchange_seconds")
    return {"type": "step", "step": number, "start": value, "seconds": value, "workers": ids,
            "batch_sizes": [2**53 for _ in ids], **{column: [value for _ in ids] for column in columns},
            "learning_rate_factor": value, "changed": True, "reason": "rebalanced", "words": SCRIPT,
            "loss": value}  # fmt: skip


def lines():
    yield header()
    values = [None, 1e308, -1e308, 5e-324, 0, -1, 1]
    for number, value in enumerate(values):
        yield step([5, 2**53, 0, 7][number % 4], value)
        yield {"type": "event", "step": 2**53, "seconds": value, "event": SCRIPT, "worker": 2**64 - 1, "words": SCRIPT}
        yield {"type": "event", "step": 3, "seconds": value, "event": "__proto__", "worker": 0, "words": "constructor"}
        yield {"type": "evaluation", "step": 2**53, "seconds": value, "loss": value, "accuracy": value}


def check_page(page):
    check(page.locator("script:not([nonce])").count() == 0, "a script of the log's")
    check(page.locator("img").count() == 0, "an element of the log's")
    check(page.locator("#workers button").nth(0).inner_text().startswith("</script>"), "the name is text")
    check(len(page.locator("#workers button").nth(5).inner_text()) < 200, "a long name is cut")
    for axis in ("time", "steps"):
        page.click(f"input[name=axis][value={axis}]")
    for shown in ("no", "yes"):
        page.click(f"input[name=stacked][value={shown}]")
    page.locator("#workers button").nth(0).click()
    page.focus("#gantt")
    for key in ("+", "+", "ArrowRight", "ArrowDown", "-", "0"):
        page.keyboard.press(key)


def main():
    options = parse_options(__doc__)
    with scratch() as folder, browser() as running:
        log = folder / "<img src=x>.jsonl"
        log.write_text("".join(json.dumps(line) + "\n" for line in lines()))
        empty = folder / "empty.jsonl"
        empty.write_text(json.dumps(header()) + "\n")
        for name, logs in (("odd", [log]), ("both", [log, empty]), ("empty", [empty])):
            run(options.isochron, "report", *logs, "-o", f"{name}.html", folder=folder)
            with silent_page(running, (folder / f"{name}.html").as_uri()) as page:
                check_page(page)


main()
