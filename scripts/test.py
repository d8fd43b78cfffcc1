#!/usr/bin/env python3
"""Runs the stages of the test suite in the given order and stops at the first that fails.

A stage is a preset (its tests are built and run by ctest; of tsan-engine some), `lint`, or `fuzz` (the fuzz targets of
preset asan). Every command's output goes to build/log/STAGE.log; a line per stage shows what ran and how long it took.
The last line sums up all stages.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import test_count

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORES = len(os.sched_getaffinity(0))
CTEST_STAGES = ("dev", "core-only", "asan", "tsan", "tsan-engine")
# Those of the engine in which its threads meet, by program.
THREADED_TESTS = {
    "comm_collectives": r"\..*(InFlight|Observer|Allgather|AnySource)",
    "comm_timeout": r"\.",
    "engine_async_job": r"\.",
    "engine_data_parallel": r"\..*(LikeOneProcess|WhileBackward|BackwardIsMissing)",
    "engine_job": r"\..*(LikeOneProcess|WhileTheSplitChanges|Pieces|Slow|Stop|BitByBit)",
    "engine_sync_batch_norm": r"\..*LikeOneProcess",
    "elastic": r"\..*(NewWorkerWhile|StoppedWorker|LackOfMemory|RecoveryFromAnother)",
    "async_elastic": r"\.",
    "train_trainer": r"\..*(Learns|EveryTestSample|Resumes|Saves)",
}
# Sanitizers change what the optimizer sees, and with it which warnings are false alarms.
WITHOUT_WERROR = ("asan", "tsan", "tsan-engine")
# Tests that start real processes and limit their time may fail where other work starves them. So many may have another
# try, by themselves, and are named for it.
MOST_REPEATED = 3


@dataclasses.dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: list[str] = dataclasses.field(default_factory=list)
    repeated: list[str] = dataclasses.field(default_factory=list)  # passed, but not at the first try

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.repeated += other.repeated

    def __str__(self):
        words = f"{self.passed} passed, {self.failed} failed, {len(self.skipped)} skipped"
        return f"{words}, {len(self.repeated)} at the second try" if self.repeated else words


class StageFailed(Exception):
    def __init__(self, reason, outcome=None):
        super().__init__(reason)
        self.outcome = outcome or Outcome(failed=1)


class Stage:
    """A name, its log file, and commands that append to it."""

    def __init__(self, name):
        self.name = name
        self.preset = "asan" if name == "fuzz" else name
        self.build = ROOT / "build" / self.preset
        self.log = ROOT / "build" / "log" / f"{name}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text("")
        # Thread sanitizer of GCC 12 refuses some layouts that address randomisation may choose.
        fixed_layout = ["setarch", "-R"]
        works = subprocess.run([*fixed_layout, "true"], stderr=subprocess.DEVNULL).returncode == 0
        self.prefix = fixed_layout if works and name.startswith("tsan") else []
        self.tests = THREADED_TESTS if name == "tsan-engine" else {}  # none: all
        self.races = self.build / "races"  # what the thread sanitizer finds

    def run(self, *command):
        """Whether the command succeeded."""
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(map(str, command))}\n")
            log.flush()
            environment = os.environ | self.environment()
            process = subprocess.run([*self.prefix, *command], cwd=ROOT, stdout=log, stderr=log, env=environment)
            return process.returncode == 0

    def environment(self):
        if self.name != "tsan-engine":
            return {}
        options = {
            # LibTorch and MPI were not built with the sanitizer, so that it does not see how they synchronise: what
            # they touch by themselves is not looked at.
            "ignore_noninstrumented_modules": 1,
            "log_path": self.races / "race",  # mpirun and jobs that go on without a worker hide its status
            "allocator_may_return_null": 1,  # some tests ask for too much memory
            "atexit_sleep_ms": 100,  # instead of a second for each process
        }
        return {
            "TSAN_OPTIONS": " ".join(f"{name}={value}" for name, value in options.items()),
            "PMIX_MCA_gds": "hash",  # another would map memory where the sanitizer has no place for it
            "UCX_MEM_EVENTS": "n",  # its hooks take locks in threads that the sanitizer knows no longer
        }

    def compile(self):
        werror = "OFF" if self.preset in WITHOUT_WERROR else "ON"
        if not self.run("cmake", "--preset", self.preset, f"-DISOCHRON_WERROR={werror}", "--log-level=WARNING"):
            raise StageFailed("configuring failed")
        targets = [f"{program}_test" for program in self.tests] or ["all"]
        if not self.run("cmake", "--build", self.build, "--parallel", str(CORES), "--target", *targets):
            raise StageFailed("building failed")


def ctest(stage, report_name, *options):
    """Whether all passed, and what its report says."""
    report = stage.build / report_name
    report.unlink(missing_ok=True)
    ok = stage.run("ctest", "--test-dir", stage.build, "--output-junit", report, "--output-on-failure", *options)
    if not report.exists():
        raise StageFailed("ctest did not run")
    return ok, test_count.read_report(report)


def run_ctest(stage, update_count):
    stage.compile()
    shutil.rmtree(stage.races, ignore_errors=True)
    stage.races.mkdir()
    chosen = "|".join(f"^{program}{pattern}" for program, pattern in stage.tests.items())
    ok, counts = ctest(stage, "junit.xml", "--parallel", str(CORES), "--no-tests=error", "--tests-regex", chosen or ".")
    outcome = Outcome(skipped=counts.skipped)
    if not ok and len(counts.failed) <= MOST_REPEATED:
        ok, again = ctest(stage, "again.xml", "--rerun-failed")
        outcome.repeated = sorted(set(counts.failed) - set(again.failed))
        counts = dataclasses.replace(counts, passed=counts.passed + outcome.repeated, failed=again.failed)
    outcome.passed, outcome.failed = len(counts.passed), len(counts.failed)
    races = sorted(stage.races.iterdir())
    if races:
        with stage.log.open("a") as log:
            log.writelines(race.read_text() for race in races)
        outcome.failed += 1
        raise StageFailed(f"the thread sanitizer's reports of {len(races)} processes are above", outcome)
    if not ok:
        raise StageFailed(f"failed: {', '.join(counts.failed)}", outcome)
    if update_count:
        test_count.write_minimum(stage.name, counts)
    if stage.tests:
        ran = {name.split(".")[0] for name in counts.passed}
        complaints = [f"no test of {program} ran" for program in stage.tests if program not in ran]
    else:
        complaints = test_count.complaints(stage.name, stage.build, stage.prefix, counts)
    if complaints:
        outcome.failed += 1
        raise StageFailed("\n".join(complaints), outcome)
    outcome.passed += 1  # the count is a check of its own
    return outcome


def run_lint(stage):
    if not stage.run(ROOT / "scripts" / "lint.sh"):
        raise StageFailed("see the findings above")
    return Outcome(passed=len(re.findall(r"^ok ", stage.log.read_text(), re.MULTILINE)))


def fuzz(stage, target, seconds):
    """The target starts from its corpus in the repository and from what earlier runs found."""
    seeds = ROOT / "tests" / "fuzz" / "corpus" / target.name.removesuffix("_fuzz")
    found = stage.build / "corpus" / target.name
    found.mkdir(parents=True, exist_ok=True)
    inputs = [found] + ([seeds] if seeds.is_dir() else [])
    command = [target, f"-max_total_time={seconds}", "-timeout=10", "-print_final_stats=1",
               f"-artifact_prefix={stage.build}/{target.name}-", *inputs]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def run_fuzz(stage, seconds):
    """A target has one thread, so there are as many at a time as there are cores."""
    stage.compile()
    targets = sorted((stage.build / "bin").glob("*_fuzz"))
    if not targets:
        raise StageFailed("there is no fuzz target")
    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        results = list(pool.map(lambda target: fuzz(stage, target, seconds), targets))
    with stage.log.open("ab") as log:
        for result in results:
            log.write(result.stdout)
    broken = [target.name for target, result in zip(targets, results) if result.returncode != 0]
    outcome = Outcome(len(targets) - len(broken), len(broken))
    if broken:
        raise StageFailed(f"an input breaks {', '.join(broken)}", outcome)
    return outcome


def run_stage(stage, options):
    if stage.name in CTEST_STAGES:
        return run_ctest(stage, options.update_count)
    if stage.name == "lint":
        return run_lint(stage)
    return run_fuzz(stage, options.fuzz_seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="+", choices=[*CTEST_STAGES, "lint", "fuzz"], metavar="STAGE")
    parser.add_argument("--fuzz-seconds", type=int, default=10, help="per target")
    parser.add_argument("--update-count", action="store_true", help="write tests/expected_count")
    options = parser.parse_args()

    total = Outcome()
    for name in options.stages:
        if sys.stdout.isatty():
            print(f"{name:<10} …", end="\r", flush=True)
        start = time.monotonic()
        stage = Stage(name)
        try:
            outcome = run_stage(stage, options)
        except StageFailed as failure:
            shutil.copyfileobj(stage.log.open(), sys.stdout)
            total.add(failure.outcome)
            print(f"{name:<10} FAILED after {time.monotonic() - start:.0f} s: {failure}")
            print(total)
            return 1
        total.add(outcome)
        print(f"{name:<10} {outcome}, {time.monotonic() - start:.0f} s", flush=True)
        for test in outcome.skipped:
            print(f"{name:<10} skipped: {test}")
        for test in outcome.repeated:
            print(f"{name:<10} passed at the second try only, see build/log/{name}.log: {test}")
    print(total)
    return 0


if __name__ == "__main__":
    sys.exit(main())
