"""Samples fetched by number, in this process or ahead of time in worker processes.

What a sample becomes depends on (seed, epoch, sample) alone: if the dataset draws random numbers, Python's, NumPy's and
torch's generators are seeded with them before it is asked, so random augmentation is the same however many workers and
processes there are, and after a resume. With torch's default_collate the processes hand over chunks that are collated
already, in shared memory; with another function the samples themselves, since only a whole batch may be given to it.
"""

from __future__ import annotations

import collections
import ctypes
import multiprocessing.connection
import pickle
import random
import struct
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import default_collate

from isochron._core import mix_key
from isochron.errors import Error, SampleError
from isochron.torch import collate
from isochron.torch.memory import is_out_of_memory

TASKS_PER_PROCESS = 4  # in its pipe; more wait here


class Fetcher:
    """What a process needs to know."""

    def __init__(self, dataset: Any, collate_fn: Callable[[list[Any]], Any] | None, seed: int) -> None:
        self.dataset = dataset
        self.collate_fn = collate_fn
        self.seed = seed
        self._draws = False  # random numbers, as far as is known

    def fetch(self, epoch: int, indices: list[int], restore: bool = False) -> Any:
        """With `restore` the generators of this process are as before."""
        if not self._draws:
            # Seeding costs more than many a sample, so it is left out until a random number is drawn.
            before = Draws()
            try:
                samples = self._get_all(indices)
            finally:
                self._draws = before.happened()
                if self._draws and restore:
                    before.undo()
        if self._draws:
            states = Generators() if restore else None
            try:
                samples = self._fetch_seeded(epoch, indices)
            finally:
                if states is not None:
                    states.restore()
        return samples if self.collate_fn is not None else default_collate(samples)

    def _get_all(self, indices: list[int]) -> list[Any]:
        """All at once if the dataset can do that, as those of Hugging Face do."""
        together = getattr(self.dataset, "__getitems__", None)
        if together is None:
            return [self._get(index) for index in indices]
        try:
            return list(together(indices))
        except Exception as error:
            if is_out_of_memory(error):
                raise
            return [self._get(index) for index in indices]  # which says at what sample it fails

    def _get(self, index: int) -> Any:
        try:
            return self.dataset[index]
        except Exception as error:
            if is_out_of_memory(error):
                raise
            message = f"sample {index} of the dataset failed with {type(error).__name__}: {error}"
            raise SampleError(message, index) from error

    def _fetch_seeded(self, epoch: int, indices: list[int]) -> list[Any]:
        samples = []
        for index in indices:
            seed_everything(mix_key([self.seed, epoch, index]))
            samples.append(self._get(index))
        return samples

    def assemble(self, chunks: list[tuple[Any, int, int]]) -> Any:
        """The batch of parts (chunk, first, last) of what fetch() gave."""
        parts = [self.cut(*chunk) for chunk in chunks]
        if self.collate_fn is None:
            return collate.join(parts)
        return self.collate_fn([sample for part in parts for sample in part])

    def cut(self, chunk: Any, first: int, last: int) -> Any:
        """Samples first .. last - 1 of what fetch() gave."""
        return collate.take(chunk, first, last) if self.collate_fn is None else chunk[first:last]


def seed_everything(seed: int) -> None:
    random.seed(seed)
    torch.random.default_generator.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


class Generators:
    """The states of all of them."""

    def __init__(self) -> None:
        numpy = sys.modules.get("numpy")
        self._python = random.getstate()
        self._torch = torch.random.default_generator.get_state()
        self._numpy = numpy.random.get_state() if numpy else None

    def restore(self) -> None:
        random.setstate(self._python)
        torch.random.default_generator.set_state(self._torch)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


class Draws:
    """Whether somebody draws random numbers from now on. Every step asks, so NumPy's state is looked at where it lies:
    numpy.random.get_state() takes a hundred times as long."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._torch = torch.random.default_generator.get_state()
        self._numpy = _numpy_state()

    def happened(self) -> bool:
        if self._numpy != _numpy_state() or random.getstate() != self._python:
            return True
        return not torch.equal(torch.random.default_generator.get_state(), self._torch)

    def undo(self) -> None:
        """But for the second of two normal numbers that NumPy's old generator may have kept for later."""
        random.setstate(self._python)
        torch.random.default_generator.set_state(self._torch)
        numpy = sys.modules.get("numpy")
        if numpy is None or self._numpy is None:
            return
        if len(self._numpy) == struct.calcsize(_NUMPY_FORMAT):
            words, position = struct.unpack(_NUMPY_FORMAT, self._numpy)
            numpy.random.set_state(("MT19937", numpy.frombuffer(words, dtype="uint32"), position))
        else:
            numpy.random.set_state(pickle.loads(self._numpy))


_NUMPY_FORMAT = "2496si"  # 624 words, and how many of them are used up


def _numpy_state() -> bytes | None:
    """The state of NumPy's global generator; None if there is none."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    generator = numpy.random.mtrand._rand._bit_generator
    if isinstance(generator, numpy.random.MT19937):
        return ctypes.string_at(generator.ctypes.state_address, struct.calcsize(_NUMPY_FORMAT))
    return pickle.dumps(numpy.random.get_state(legacy=False))  # somebody has put another one there


def _serve(fetcher: Fetcher, number: int, init: Callable[[int], None] | None, pipe: Any, others: list[Any]) -> None:
    """A process: answers tasks until its pipe is closed, also by the death of whoever holds the other end."""
    for other in others:
        other.close()  # else this process would keep its siblings' pipes open
    torch.set_num_threads(1)
    with suppress(EOFError, KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        if init is not None:
            init(number)
        while True:
            ticket, epoch, indices = pipe.recv()
            try:
                chunk = fetcher.fetch(epoch, indices)
                answer = chunk if fetcher.collate_fn is None else pickle.dumps(chunk)
                pipe.send((ticket, answer, None))
            except (EOFError, BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:
                sample = error.sample if isinstance(error, SampleError) else -1
                pipe.send((ticket, None, (type(error).__name__, str(error), traceback.format_exc(), sample)))


class SamplePool:
    """Not thread-safe. Every ticket is either collected or dropped."""

    def __init__(
        self,
        fetcher: Fetcher,
        processes: int,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._ticket = 0
        self._done: dict[int, Any] = {}
        self._dropped: set[int] = set()
        self._local: dict[int, tuple[int, list[int]]] = {}  # without processes: fetched when collected
        self._queue: collections.deque[tuple[int, int, list[int]]] = collections.deque()
        self._pipes: list[Any] = []
        self._processes: list[Any] = []
        self._loads: list[int] = [0] * processes
        context: Any = torch.multiprocessing.get_context(multiprocessing_context)
        for number in range(processes):
            mine, theirs = context.Pipe()
            others = [*self._pipes, mine] if context.get_start_method() == "fork" else []
            process = context.Process(
                target=_serve, args=(fetcher, number, worker_init_fn, theirs, others), daemon=True,
                name=f"isochron-loader-{number}",
            )  # fmt: skip
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self._processes.append(process)

    def request(self, epoch: int, indices: list[int]) -> int:
        self._ticket += 1
        if not self._processes:
            self._local[self._ticket] = (epoch, indices)
        else:
            self._queue.append((self._ticket, epoch, indices))
            self._hand_out()
        return self._ticket

    def collect(self, ticket: int) -> Any:
        """The chunk; waits for it. Raises SampleError where the dataset failed, Error where anything else did."""
        if not self._processes:
            return self._fetcher.fetch(*self._local.pop(ticket), restore=True)
        while ticket not in self._done:
            self._receive()
        chunk = self._done.pop(ticket)
        if isinstance(chunk, Failure):
            if chunk.sample >= 0:
                raise SampleError(f"{chunk.message}\n{chunk.trace}", chunk.sample)
            raise Error(f"the dataset failed in a loader process with {chunk.name}: {chunk.message}\n{chunk.trace}")
        return chunk

    def drop(self, ticket: int) -> None:
        """It is not wanted any more."""
        self._local.pop(ticket, None)
        waiting = [task for task in self._queue if task[0] == ticket]
        if waiting:
            self._queue.remove(waiting[0])
        elif self._done.pop(ticket, None) is None and self._processes:
            self._dropped.add(ticket)

    def _hand_out(self) -> None:
        while self._queue:
            number = min(range(len(self._loads)), key=self._loads.__getitem__)
            if self._loads[number] >= TASKS_PER_PROCESS:
                return
            self._loads[number] += 1
            try:
                self._pipes[number].send(self._queue.popleft())
            except OSError:
                self._complain(number)

    def _receive(self) -> None:
        ready: list[Any] = multiprocessing.connection.wait(self._pipes)
        for pipe in ready:
            number = self._pipes.index(pipe)
            try:
                ticket, chunk, failure = pipe.recv()
            except (EOFError, OSError):
                self._complain(number)
            self._loads[number] -= 1
            if ticket in self._dropped:
                self._dropped.remove(ticket)
            elif failure is not None:
                self._done[ticket] = Failure(*failure)
            else:
                self._done[ticket] = chunk if self._fetcher.collate_fn is None else pickle.loads(chunk)
        self._hand_out()

    def _complain(self, number: int) -> None:
        process = self._processes[number]
        process.join(1.0)
        raise Error(f"loader process {number} (process {process.pid}) ended with code {process.exitcode}")

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()
        self._pipes, self._processes = [], []


class Failure:
    def __init__(self, name: str, message: str, trace: str, sample: int) -> None:
        self.name, self.message, self.trace, self.sample = name, message, trace, sample
