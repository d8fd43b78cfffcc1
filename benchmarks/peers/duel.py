"""What a worker of any peer has in common: who it is, what it trains, and the log of what it did.

No framework is imported here. A line of the log is a step that has happened: when, which one by the peer's own count,
which pass over the data, which samples of this worker's. The first line is the process's number.
"""

import json
import mmap
import os
import pathlib
import time

import numpy

SAMPLE, HIDDEN, CLASSES = 20, 50, 5  # of the small network
CPU_EVERY = 20  # steps; looking costs milliseconds


class Run:
    def __init__(self, options):
        self.options = options
        self.batch, self.steps, self.folder = options.batch, options.steps, pathlib.Path(options.folder)
        variables = os.environ
        self.rank = int(variables.get("RANK") or variables.get("OMPI_COMM_WORLD_RANK", "0"))
        self.size = int(variables.get("WORLD_SIZE") or variables.get("OMPI_COMM_WORLD_SIZE", "1"))
        self.shares = [int(one) for one in options.shares.split(",")] if options.shares else None
        pace = [float(one) for one in options.pace.split(",")]  # milliseconds a sample
        self._pace = pace[self.rank % len(pace)] / 1000
        self._log = (self.folder / f"{self.rank}.jsonl").open("a")
        self._lines = 0
        self._step_file = None if options.peer == "isochron" else _open_step_file(self.rank)
        self._write({"pid": os.getpid(), "time": time.time()})

    def publish(self):
        """For frameworks that look for a launcher's variables."""
        os.environ |= {"RANK": str(self.rank), "WORLD_SIZE": str(self.size), "LOCAL_RANK": str(self.rank),
                       "LOCAL_WORLD_SIZE": str(self.size), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(self.options.port), "GLOO_SOCKET_IFNAME": "lo"}  # fmt: skip

    def my_samples(self):
        """Which ones `shares` gives to this worker."""
        begin = sum(self.shares[: self.rank])
        return list(range(begin, begin + self.shares[self.rank]))

    def compute(self, samples):
        """What an emulated device takes longer than this processor."""
        if self._pace:
            time.sleep(self._pace * samples)

    def done(self, samples, epoch=0, step=None, parameters=None):
        """A step has happened with these of this worker's samples. True: it was the last one. `parameters` makes a list
        of arrays, for results and for snapshots."""
        line = {"step": self._lines if step is None else step, "epoch": epoch, "time": time.time(),
                "samples": len(samples)}  # fmt: skip
        if self._lines % CPU_EVERY == 0:
            line["cpu"] = cpu_seconds()
        if self.options.ids:
            line["ids"] = [int(one) for one in samples]
        self._write(line)
        self._lines += 1
        last = line["step"] + 1 >= self.steps
        if parameters and self.options.snapshots and self.rank == self.size - 1:
            if (line["step"] + 1) % self.options.snapshots == 0:
                self.save(f"snapshot-{line['step']}", parameters())
                self.note(snapshot=line["step"], time=line["time"])
        elif parameters and last:
            self.save(f"result-{self.rank}", parameters())
        return last

    def note(self, **facts):
        self._write(facts)

    def save(self, name, arrays):
        numpy.savez(self.folder / f"{name}.npz", *arrays)

    def _write(self, line):
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()
        if self._step_file:
            self._step_file[0] = self._lines


def _open_step_file(rank):
    """Where `isochron launch --cluster` reads at which step the job is; Isochron's own jobs write it themselves."""
    path = os.environ.get("ISOCHRON_STEP_FILE")
    if not path or rank:
        return None
    with open(path, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 8)).cast("q")


def cpu_seconds():
    """Counts this process and all that it has started, such as Hivemind's."""
    parents, ticks = {}, {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = pathlib.Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # gone in between
            parents[int(name)], ticks[int(name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    mine, total = {os.getpid()}, time.process_time()
    grown = True
    while grown:
        children = {one for one, parent in parents.items() if parent in mine} - mine
        total += sum(ticks[one] for one in children) / os.sysconf("SC_CLK_TCK")
        mine |= children
        grown = bool(children)
    return total


def small_data(count, seed=1):
    random = numpy.random.default_rng(seed)
    x = random.normal(size=(count, SAMPLE))
    return x, (x @ random.normal(size=(SAMPLE, CLASSES))).argmax(1)


def small_parameters():
    """Weights as (out, in), then biases, layer by layer."""
    random = numpy.random.default_rng(2)
    return [random.normal(size=(HIDDEN, SAMPLE)) / 4, random.normal(size=HIDDEN) / 4,
            random.normal(size=(CLASSES, HIDDEN)) / 7, random.normal(size=CLASSES) / 7]  # fmt: skip


def pictures(count, seed, noise=2.2):
    """Ten blurred patterns under noise, moved by up to three points: a CNN needs some hundred steps for them."""
    patterns = numpy.random.default_rng(3).normal(size=(10, 7, 7)).repeat(4, 1).repeat(4, 2)
    random = numpy.random.default_rng(seed)
    labels = random.integers(0, 10, count)
    shifts = random.integers(-3, 4, (count, 2))
    x = numpy.stack([numpy.roll(patterns[y], tuple(s), (0, 1)) for y, s in zip(labels, shifts, strict=True)])
    return (x + noise * random.normal(size=x.shape)).astype("float32")[:, None], labels
