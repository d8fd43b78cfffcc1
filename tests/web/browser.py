"""What the tests of the page share: Debian's Chromium, a page whose console must stay silent, and checks.

With ISOCHRON_UPDATE_IMAGES=1 the pictures go to docs/images instead of the build folder.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77


def parse_options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--isochron", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--pictures", type=pathlib.Path, required=True, help="folder for pictures")
    options = parser.parse_args()
    options.isochron = options.isochron.resolve()
    if os.environ.get("ISOCHRON_UPDATE_IMAGES"):
        options.pictures = ROOT / "docs" / "images"
    options.pictures.mkdir(parents=True, exist_ok=True)
    return options


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


@contextlib.contextmanager
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if not program:
        skip("there is no Chromium; scripts/setup.sh installs it")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip("there is no Playwright; scripts/setup.sh installs it")
    # As root, as in containers, Chromium has no sandbox.
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield running
        finally:
            running.close()


@contextlib.contextmanager
def silent_page(running, address, **settings):
    """A page that is ready. Whatever it complains of, or asks another host for, fails the test."""
    context = running.new_context(**settings)
    page = context.new_page()
    complaints = []
    page.on("console", lambda message: message.type in ("error", "warning") and complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: address.split("?")[0] in request.url or request.url.startswith("data:")
            or complaints.append(f"asked for {request.url}"))  # fmt: skip
    try:
        page.goto(address)
        page.wait_for_selector("html[data-ready=yes]", state="attached")
        yield page
        check(not complaints, f"the page complains: {complaints}")
    finally:
        context.close()


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def run(*command, folder):
    result = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    check(result.returncode == 0, f"{command}: {result.stderr}")
    return result.stdout


@contextlib.contextmanager
def scratch():
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder)


def window(page):
    """From and to, as the fields show them."""
    return [float(page.input_value(f"#{name}")) for name in ("from", "to")]


def colours(page, selector):
    """How many different colours a canvas has: an empty one has one."""
    return page.eval_on_selector(
        selector,
        """canvas => {
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          const seen = new Set();
          for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
          return seen.size;
        }""",
    )
