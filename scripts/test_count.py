"""Whether all tests that exist ran: a forgotten file or an empty run must not look green.

ctest runs GoogleTest programs whole, each of which writes a report; what else ctest runs counts as one test each.
Three counts must agree with that: the cases each test program lists, the TEST macros in the sources, and the committed
minimum per stage in tests/expected_count (`make test-count` rewrites it).
"""

import collections
import dataclasses
import pathlib
import re
import subprocess
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
MINIMUM = ROOT / "tests" / "expected_count"
ENGINE_TESTS = {"comm", "elastic", "engine", "model", "train", "worker"}  # need LibTorch and MPI
MACRO = re.compile(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)\(\s*(\w+),\s*(\w+)", re.M)
PYTEST_SKIP = re.compile(r"^SKIPPED \[\d+\] (.*)$", re.M)


@dataclasses.dataclass
class Counts:
    """Cases by their names, PROGRAM.Suite.Name, the runs of ctest that failed, and the cases of those that did not."""

    passed: list[str]
    failed: list[str]
    skipped: list[str]
    failed_runs: list[str]
    passed_runs: dict[str, tuple[list[str], list[str]]]  # passed and skipped

    def ran(self):
        return self.passed + self.failed

    def after(self, again):
        """What counts when the runs that failed were repeated, and the cases that passed only then."""
        repeated = sorted(set(self.failed) - set(again.failed))
        passed = sorted({*self.passed, *again.passed})
        skipped = sorted({*self.skipped, *again.skipped})
        # A second try is of what failed alone, so that its run does not count as known.
        return Counts(passed, again.failed, skipped, again.failed_runs, self.passed_runs), repeated or self.failed_runs


def read_cases(path, program):
    """(name, passed, skipped) for every case in a GoogleTest report."""
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "run":
            name = f"{program}.{case.get('classname')}.{case.get('name')}"
            yield name, case.find("failure") is None, case.get("result") == "skipped"


def read_run(run, folder):
    """The cases of one run of ctest: passed, failed, skipped. What pytest skips within a run counts as skipped."""
    name, status = run.get("name"), run.get("status")
    report = folder / f"{name}.xml"
    passed, failed, skipped = [], [], []
    if report.exists():
        for case, succeeded, left_out in read_cases(report, name.split(".")[0]):
            (skipped if left_out else passed if succeeded else failed).append(case)
    else:
        {"run": passed, "fail": failed}.get(status, skipped).append(name)
        skipped += [f"{name}: {reason}" for reason in PYTEST_SKIP.findall(run.findtext("system-out") or "")]
    return passed, failed, skipped


def read_reports(junit, folder):
    """ctest's JUnit file, and the reports of the programs it ran."""
    counts = Counts([], [], [], [], {})
    for run in xml.etree.ElementTree.parse(junit).getroot().iter("testcase"):
        passed, failed, skipped = read_run(run, folder)
        if run.get("status") == "fail":
            counts.failed_runs.append(run.get("name"))
        elif not failed:
            counts.passed_runs[run.get("name")] = (passed, skipped)
        counts.passed += passed
        counts.failed += failed
        counts.skipped += skipped
    return counts


def listed_cases(program, prefix):
    """The cases of a GoogleTest program as Suite.Name, less instance names and parameters."""
    text = subprocess.run([*prefix, program, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    cases, suite = [], ""
    for line in text.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith("  "):
            cases.append(f"{suite}.{word.split('/')[0]}")
        elif word.endswith("."):
            parts = word.rstrip(".").split("/")
            # Instance/Suite for TEST_P, Suite/0 for TYPED_TEST, Suite otherwise.
            suite = parts[0] if len(parts) == 1 or parts[1].isdigit() else parts[1]
    return cases


def read_minimum():
    return dict(line.split() for line in MINIMUM.read_text().splitlines()) if MINIMUM.exists() else {}


def write_minimum(stage, counts):
    minimum = read_minimum() | {stage: len(counts.ran())}
    MINIMUM.write_text("".join(f"{name} {count}\n" for name, count in sorted(minimum.items())))


def complaints(stage, build, prefix, counts):
    """What is wrong, a sentence each; nothing if all is well."""
    found = []
    if stage in ("full", "asan", "tsan", "core-only"):
        found += forgotten(build, prefix)
    if stage in ("asan", "tsan", "core-only"):
        # Every case of these programs runs here; the preset dev has some in the quick stage and some in the full one.
        ran = {without_parameters(name) for name in counts.ran() + counts.skipped}
        for program in ("core", "sim", "tools"):
            cases = listed_cases(build / "bin" / f"{program}_test", prefix)
            missing = {f"{program}.{case}" for case in cases} - ran
            found += [f"{name} did not run" for name in sorted(missing)]
    minimum = int(read_minimum().get(stage, 1))
    if len(counts.ran()) < minimum:
        found.append(f"{len(counts.ran())} tests ran; tests/expected_count asks for {minimum} (see `make test-count`)")
    return found


def without_parameters(name):
    """PROGRAM.Instance/Suite.Name/3 as PROGRAM.Suite.Name."""
    program, suite, case = name.split(".", 2) if name.count(".") >= 2 else (name, "", "")
    parts = suite.split("/")
    return f"{program}.{parts[0] if len(parts) == 1 or parts[1].isdigit() else parts[1]}.{case.split('/')[0]}"


def forgotten(build, prefix):
    """TEST macros that are in no program."""
    listed = set()
    for program in sorted((build / "bin").glob("*_test")):
        listed.update(listed_cases(program, prefix))
    engine = "ISOCHRON_ENGINE:BOOL=ON" in (build / "CMakeCache.txt").read_text() and build.name == "dev"
    for source in sorted(ROOT.glob("tests/**/*_test.cc")):
        if source.parent.name in ENGINE_TESTS and not engine:
            continue
        for suite, name in MACRO.findall(source.read_text()):
            if f"{suite}.{name}" not in listed:
                yield f"{source.relative_to(ROOT)}: {suite}.{name} is in no test program"
