"""Whether all tests that exist ran: a forgotten file or an empty run must not look green.

Three counts must agree with what ctest ran: the cases each test program lists, the TEST macros in the sources, and the
committed minimum per stage in tests/expected_count (`make test-count` rewrites it).
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
    passed: list[str]
    failed: list[str]
    skipped: list[str]

    def ran(self):
        return self.passed + self.failed


def read_report(path):
    """ctest's JUnit file. What pytest skips within one of ctest's tests counts as skipped, too."""
    by_status = collections.defaultdict(list)
    skipped_within = []
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        by_status[case.get("status")].append(case.get("name"))
        output = case.findtext("system-out") or ""
        skipped_within += [f"{case.get('name')}: {words}" for words in PYTEST_SKIP.findall(output)]
    passed, failed = by_status.pop("run", []), by_status.pop("fail", [])
    return Counts(passed, failed, [name for names in by_status.values() for name in names] + skipped_within)


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
    listed = set()
    for program in sorted((build / "bin").glob("*_test")):
        cases = listed_cases(program, prefix)
        listed.update(cases)
        area = program.name.removesuffix("_test") + "."
        ran = sum(name.startswith(area) for name in counts.ran() + counts.skipped)
        if ran < len(cases):
            found.append(f"{program.name} lists {len(cases)} tests, ctest knows {ran}")
    engine = "ISOCHRON_ENGINE:BOOL=ON" in (build / "CMakeCache.txt").read_text()
    for source in sorted(ROOT.glob("tests/**/*_test.cc")):
        if source.parent.name in ENGINE_TESTS and not engine:
            continue
        for suite, name in MACRO.findall(source.read_text()):
            if f"{suite}.{name}" not in listed:
                found.append(f"{source.relative_to(ROOT)}: {suite}.{name} is in no test program")
    minimum = int(read_minimum().get(stage, 1))
    if len(counts.ran()) < minimum:
        found.append(f"{len(counts.ran())} tests ran; tests/expected_count asks for {minimum} (see `make test-count`)")
    return found
