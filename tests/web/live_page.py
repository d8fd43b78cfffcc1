#!/usr/bin/env python3
"""The live page: a log grows, and the page follows; the server goes away, and the page says so."""

import re
import signal
import subprocess
import time

from browser import browser, check, parse_options, run, scratch, silent_page, window

TOKEN = "a-token-for-testing"
CLUSTER = """
name = "workshop"
[[worker]]
name = "tower"
cores = 8.0
[[worker]]
name = "laptop"
cores = 4.0
[[worker]]
name = "old-server"
cores = 2.0
[[worker]]
name = "spot"
cores = 6.0
[[change]]
at_step = 60
worker = "tower"
cores = 4.0
"""


def serve(isochron, log, *options):
    """The running server and where it is."""
    server = subprocess.Popen([isochron, "serve", log, "--port", "0", *options], stdout=subprocess.PIPE, text=True)
    line = server.stdout.readline()
    address = re.search(r"http://\S+", line)
    check(address, f"the server says: {line}")
    return server, address[0]


def lines_of(isochron, folder):
    (folder / "workshop.toml").write_text(CLUSTER)
    run(isochron, "simulate", "--cluster", "workshop.toml", "--policy", "isochron", "--steps", 120, "--noise", 0.02,
        "--log", "whole.jsonl", folder=folder)  # fmt: skip
    return (folder / "whole.jsonl").read_text().splitlines(keepends=True)


def gain(page):
    """In the table of runs, beside the steps that it is of."""
    titles = page.locator("#runs th").all_inner_texts()
    place = titles.index("x equal shares in the last 32 steps")
    return page.locator("#runs tbody tr").first.locator("td").nth(place).inner_text()


def check_growth(page, log, rest):
    page.locator("#status", has_text="step 40").wait_for()
    check(2.2 <= float(gain(page)) <= 2.6, f"20 cores against four times 2, and the gain is {gain(page)}")
    with log.open("a") as stream:
        stream.writelines(rest)
    page.locator("#status", has_text="step 120").wait_for()
    check(window(page) == [0, 119], f"the axis grows: {window(page)}")
    check("120" in page.locator("#runs tbody tr").first.inner_text(), "the table grows")
    check(1.7 <= float(gain(page)) <= 2.1, f"16 cores against four times 2, and the gain is {gain(page)}")
    check(f"about {gain(page)} times as fast" in page.inner_text("#headline"), page.inner_text("#headline"))
    check("over 120 steps" in page.inner_text("#headline"), page.inner_text("#headline"))
    events = page.locator("#notes tr", has_text="speed").count()
    check(events > 0, "the changes of speed are told")


def main():
    options = parse_options(__doc__)
    with scratch() as folder, browser() as running:
        lines = lines_of(options.isochron, folder)
        log = folder / "growing.jsonl"
        half = next(place for place, line in enumerate(lines) if '"type":"step","step":40,' in line)
        log.write_text("".join(lines[:half]))
        server, address = serve(options.isochron, log)
        try:
            with silent_page(running, address, viewport={"width": 900, "height": 900}, color_scheme="light") as page:
                check_growth(page, log, lines[half:])
                page.screenshot(path=options.pictures / "live.png")
                page.set_viewport_size({"width": 375, "height": 740})
                page.locator("#wider").wait_for()
                width = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
                check(width[0] <= width[1], f"the page is {width[0]} wide in a window of {width[1]}")
                page.screenshot(path=options.pictures / "live-phone.png")
                server.send_signal(signal.SIGINT)
                page.locator("#status", has_text="has ended").wait_for()
            check(server.wait(10) == 0, "the server ends well")
        finally:
            server.kill()

        server, address = serve(options.isochron, log, "--host", "0.0.0.0", "--token", TOKEN)
        try:
            local = address.replace("0.0.0.0", "127.0.0.1")
            with silent_page(running, local) as page:
                page.locator("#status", has_text="Live: step 120").wait_for()
                time.sleep(1)  # the stream of events has the token too: otherwise the console complains
        finally:
            server.kill()


main()
