"""What has passed in a run of ctest, so that a second try (scripts/test.py) leaves it out, also if the first one was
ended by a signal or its time limit. The names are the lines of the file ISOCHRON_PASSED.

For pytest this module is a plugin; conftest.py registers it.
"""

import os
import pathlib

_file = pathlib.Path(os.environ.get("ISOCHRON_PASSED") or os.devnull)


def passed_before():
    """The names; none in a first try."""
    if os.environ.get("ISOCHRON_FAILED_ONLY") == "1" and _file.is_file():
        return set(_file.read_text().splitlines())
    if _file.is_file():
        _file.unlink()
    return set()


def note(name):
    with _file.open("a") as file:
        file.write(f"{name}\n")


def pytest_collection_modifyitems(config, items):
    before = passed_before()
    gone = [item for item in items if item.nodeid in before]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item.nodeid not in before]


def pytest_sessionfinish(session, exitstatus):
    # All had passed before the first try was ended.
    if exitstatus == 5 and os.environ.get("ISOCHRON_FAILED_ONLY") == "1":
        session.exitstatus = 0


_failed = set()


def pytest_runtest_logreport(report):
    if report.failed:
        _failed.add(report.nodeid)
    elif report.when == "teardown" and report.nodeid not in _failed:
        note(report.nodeid)
