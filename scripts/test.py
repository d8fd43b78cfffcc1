#!/usr/bin/env python3
"""Runs the stages of the test suite in the given order and stops at the first that fails.

  quick      the tests of every area that a contributor needs, in the preset dev
  full       those of the preset dev that take longer, documents and examples among them
  lint       the linters, over everything
  core-only, asan, tsan
             all tests that need no LibTorch, in the preset of that name; tsan also runs those of the engine in which
             its threads meet
  fuzz       the fuzz targets of the preset asan

Every command's output goes to build/log/STAGE.log; a line per stage shows what ran and how long it took. The last line
sums up all stages.

The tests of the stage full mostly wait. Meanwhile, with the least priority, what later stages build is built, and what
clang-tidy finds clean is remembered for the stage lint; build/log/ahead.log tells of that.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import build
import test_count
import test_memory

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRESETS = {"quick": "dev", "full": "dev", "fuzz": "asan"}
# What the quick stage needs of the build.
QUICK_PROGRAMS = ("isochron", "isochron-worker", "isochron_python", "core_test", "sim_test", "tools_test",
                  "engine_test", "ranks_test", "worker_test", "elastic_test")  # fmt: skip
PLAIN_PROGRAMS = ("core_test", "sim_test", "tools_test", "isochron")
# The tests of the engine in which its threads meet.
THREADED_TESTS = ("ranks.collectives", "ranks.timeout.TimeoutTest", "ranks.async_job", "ranks.data_parallel",
                  "ranks.job", "ranks.sync_batch_norm", "ranks.trainer", "elastic.threads")  # fmt: skip
# Sanitizers change what the optimizer sees, and with it which warnings are false alarms.
WITHOUT_WERROR = ("asan", "tsan")
# Tests that start real processes and limit their time may fail where other work starves them. So many runs may have
# another try, by themselves, and are named for it.
MOST_REPEATED = 6
STAGES = ("quick", "full", "lint", "core-only", "asan", "tsan", "fuzz")


@dataclasses.dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: list[str] = dataclasses.field(default_factory=list)
    repeated: list[str] = dataclasses.field(default_factory=list)  # passed, but not at the first try
    unchanged: int = 0  # passed earlier, with all that they read as it is now

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.repeated += other.repeated
        self.unchanged += other.unchanged

    def __str__(self):
        unchanged = f" ({self.unchanged} of them earlier, and nothing they read has changed)" if self.unchanged else ""
        repeated = f", {len(self.repeated)} at the second try" if self.repeated else ""
        return f"{self.passed} passed{unchanged}, {self.failed} failed, {len(self.skipped)} skipped{repeated}"


class StageFailed(Exception):
    def __init__(self, reason, outcome=None):
        super().__init__(reason)
        self.outcome = outcome or Outcome(failed=1)


class Stage:
    """A name, its log file, and commands that append to it."""

    def __init__(self, name, log=None):
        self.name = name
        self.preset = PRESETS.get(name, name)
        self.build = ROOT / "build" / self.preset
        self.log = ROOT / "build" / "log" / f"{log or name}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text("")
        # Thread sanitizer of GCC 12 refuses some layouts that address randomisation may choose.
        fixed_layout = ["setarch", "-R"]
        works = subprocess.run([*fixed_layout, "true"], stderr=subprocess.DEVNULL).returncode == 0
        self.prefix = fixed_layout if works and name == "tsan" else []
        self.races = self.build / "races"  # what the thread sanitizer finds

    def run(self, *command, **variables):
        """Whether the command succeeded."""
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(map(str, command))}\n")
            log.flush()
            environment = os.environ | self.environment() | variables
            process = subprocess.run([*self.prefix, *command], cwd=ROOT, stdout=log, stderr=log, env=environment)
            return process.returncode == 0

    def environment(self):
        if self.name != "tsan":
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

    def compile(self, *targets):
        werror = "OFF" if self.preset in WITHOUT_WERROR else "ON"
        try:
            options = {"ISOCHRON_WERROR": werror, "ISOCHRON_TESTS": "ON"}
            if self.preset == "dev":
                options["ISOCHRON_PYTHON"] = "ON"
            if self.name == "full":
                options["ISOCHRON_BENCHMARKS"] = "ON"
            build.configure(self.preset, self.log, **options)
            build.build(self.preset, self.log, targets)
        except build.Failed as failure:
            raise StageFailed(str(failure)) from None


def ctest(stage, *options, **variables):
    """Whether all passed, and what the reports say."""
    report = stage.build / "junit.xml"
    report.unlink(missing_ok=True)
    ok = stage.run("ctest", "--test-dir", stage.build, "--output-junit", report, "--output-on-failure",
                   "--test-output-size-passed", "1000000",  # else the lines that say what was skipped may be cut off
                   "--no-tests=error", *options, **variables)  # fmt: skip
    if not report.exists():
        raise StageFailed("ctest did not run")
    return ok, test_count.read_reports(report, stage.build / "reports")


def select(stage):
    """ctest's options for what the stage runs."""
    if stage.name in ("quick", "full"):
        return ["--label-regex", f"^{stage.name}$"]
    threaded = [f"{name}$" for name in THREADED_TESTS] if stage.name == "tsan" else []
    return ["--tests-regex", "|".join(f"^{name}" for name in (r"core\.", r"sim\.", r"tools\.", *threaded))]


def build_stage(stage):
    targets = {"quick": QUICK_PROGRAMS, "full": ("all",), "core-only": ("all",), "fuzz": ("all",),
               "tsan": (*PLAIN_PROGRAMS, "ranks_test", "elastic_test")}  # fmt: skip
    stage.compile(*targets.get(stage.name, PLAIN_PROGRAMS))


@contextlib.contextmanager
def preparing(names):
    """What these stages build, and what clang-tidy remembers, in a process of its own; waits for its end."""
    log = ROOT / "build" / "log" / "ahead.log"
    log.write_text("")
    command = [sys.executable, __file__, "--ahead", *names]
    with log.open("a") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
    try:
        yield process
        process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def yield_to_others():
    """Gives this process and its children the least priority."""
    os.nice(19)
    # Where the kernel shares processors among sessions first, nice alone counts only within one.
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/autogroup").write_text("19")


def prepare(names):
    """Whatever fails here is found by the stage itself."""
    yield_to_others()
    for name in names:
        print(f"{time.strftime('%X')} {name}", flush=True)
        with contextlib.suppress(StageFailed):
            if name == "lint":
                subprocess.run([ROOT / "scripts/lint/tidy.py", "all"], cwd=ROOT)
            else:
                build_stage(Stage(name, log=f"{name}-ahead"))
    print(f"{time.strftime('%X')} done", flush=True)


def run_selected(stage, known):
    """Runs what the stage has but for the runs that are known to pass; those that fail may have another try."""
    selection = select(stage)
    if known:
        selection += ["--exclude-regex", f"^({'|'.join(map(re.escape, known))})$"]
        listed = subprocess.run(["ctest", "--test-dir", stage.build, "--show-only=json-v1", *selection],
                                capture_output=True, text=True, check=True).stdout  # fmt: skip
        if not json.loads(listed)["tests"]:
            return test_count.Counts([], [], [], [], {}), Outcome()
    # Many tests wait more than they compute, those of the stage full above all.
    ok, counts = ctest(stage, "--parallel", str(build.CORES + (3 if stage.name == "full" else 1)), *selection)
    outcome = Outcome()
    if not ok and len(counts.failed_runs) <= MOST_REPEATED:
        _, again = ctest(stage, "--rerun-failed", *selection, ISOCHRON_FAILED_ONLY="1")
        counts, outcome.repeated = counts.after(again)
    return counts, outcome


def run_ctest(stage, options):
    build_stage(stage)
    for folder in (stage.races, stage.build / "reports"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    memory = test_memory.Memory(stage.build, options.fresh) if stage.name == "quick" else None
    known = memory.unchanged() if memory else {}
    later = options.stages[options.stages.index(stage.name) + 1 :] if stage.name == "full" else []
    with preparing(later) if later else contextlib.nullcontext() as ahead:
        counts, outcome = run_selected(stage, known)
        if ahead and counts.failed_runs:  # nothing comes later
            os.killpg(ahead.pid, signal.SIGTERM)
    if memory:
        memory.remember(counts.passed_runs)
    ok = not counts.failed and not counts.failed_runs
    for entry in known.values():
        counts.passed += entry["passed"]
        counts.skipped += entry["skipped"]
        outcome.unchanged += len(entry["passed"])
    outcome.passed, outcome.failed, outcome.skipped = len(counts.passed), len(counts.failed), counts.skipped
    races = sorted(stage.races.iterdir())
    if races:
        with stage.log.open("a") as log:
            log.writelines(race.read_text() for race in races)
        outcome.failed += 1
        raise StageFailed(f"the thread sanitizer's reports of {len(races)} processes are above", outcome)
    if not ok:
        raise StageFailed(f"failed: {', '.join(counts.failed or counts.failed_runs)}", outcome)
    if options.update_count:
        test_count.write_minimum(stage.name, counts)
    complaints = test_count.complaints(stage.name, stage.build, stage.prefix, counts)
    if complaints:
        outcome.failed += 1
        raise StageFailed("\n".join(complaints), outcome)
    return outcome


def run_lint(stage):
    if not stage.run(ROOT / "scripts" / "lint.sh", "all"):
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
    build_stage(stage)
    targets = sorted((stage.build / "bin").glob("*_fuzz"))
    if not targets:
        raise StageFailed("there is no fuzz target")
    with concurrent.futures.ThreadPoolExecutor(build.CORES) as pool:
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
    if stage.name == "lint":
        return run_lint(stage)
    if stage.name == "fuzz":
        return run_fuzz(stage, options.fuzz_seconds)
    return run_ctest(stage, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="+", choices=STAGES, metavar="STAGE")
    parser.add_argument("--fuzz-seconds", type=int, default=10, help="per target")
    parser.add_argument("--fresh", action="store_true", help="repeat also what passed and has not changed since")
    parser.add_argument("--update-count", action="store_true", help="write tests/expected_count")
    parser.add_argument("--ahead", action="store_true", help="only build what the stages need, and let clang-tidy look")
    options = parser.parse_args()
    if options.ahead:
        return prepare(options.stages)
    for number in (signal.SIGTERM, signal.SIGHUP):  # what runs ahead ends with this
        signal.signal(number, lambda got, frame: sys.exit(128 + got))

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
