"""A job whose workers are not in step (sync="asp", "ssp"): isochron.served carries it, this file ties it to TensorFlow.

One iteration:
  a) the dataset asks the coordinator for samples, pulls the parameters from the shards of all workers, and hands out a
     batch;
  b) the step function computes this worker's own gradients, and notes them in place of applying them;
  c) they are sent, with the present learning rate; the shards take the step, each with the user's optimizer for its
     slices, and the worker waits until all have.

At the end of an epoch is a barrier: all have the same parameters then, and sum(), save() and evaluation_dataset() are
possible there.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from isochron import _core
from isochron.errors import Error
from isochron.served.job import ServedJob
from isochron.served.session import Owner, Session
from isochron.served.sockets import Sockets
from isochron.tensorflow import data, shard_optimizer, shard_state
from isochron.tensorflow.job import OUT_OF_MEMORY, Job, LossOf, is_scalar
from isochron.tensorflow.pair_links import PairNetwork
from isochron.tensorflow.parameters import Parameters
from isochron.tensorflow.served_batches import ServedBatches
from isochron.tensorflow.shard_optimizer import SliceUpdater
from isochron.tensorflow.step import Computed, Step

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from isochron.tensorflow.options import TensorFlowKeywords


class AsyncJob(ServedJob, Job):
    """What Job() makes of sync="asp" and sync="ssp"."""

    def __init__(self, global_batch: int, **options: Unpack[TensorFlowKeywords]) -> None:
        super().__init__(global_batch, **options)
        self._batch_is_out = False
        self._parameters: Parameters  # with the session
        self._updaters: list[SliceUpdater] = []
        self._barriers = 0
        self._network: PairNetwork | None = None  # with the session, over TensorFlow's collectives
        self._iterations_before = 0  # of the optimizer, when the job had made no step

    # What it is asked for.

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """A strategy of one device: no gradient is added up."""
        return tf.distribute.get_strategy()

    @property
    def step_number(self) -> int:
        return self._steps_dealt()

    def prepare(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer
    ) -> tuple[keras.Model, keras.optimizers.Optimizer]:
        """As in step, but BatchNormalization uses this worker's own samples."""
        self._require_unbegun("prepare()")
        shard_optimizer.check(optimizer, self.options.sync, self.options.momentum_correction)
        return super().prepare(model, optimizer)

    def compile(self, model: keras.Model, **arguments: Any) -> None:
        raise self._refusal("compile() for model.fit()", "with sync 'bsp', or a loop of your own with @job.step")

    def set_bounds(self, bounds: Sequence[tuple[int, int]]) -> None:
        raise self._refusal("set_bounds()", "with sync 'bsp', or min_batch and max_batch of the job")

    def _refusal(self, what: str, permitted: str) -> ValueError:
        return ValueError(f"{what} with sync '{self.options.sync}'; permitted: {permitted}")

    def dataset(self, samples: Any) -> ServedBatches:  # type: ignore[override]  # the loop over it is the same
        source = data.make_source(samples, self.options.global_batch)
        self._replica.open(source.size())
        self._source = source
        self._dataset_name = type(samples).__name__
        return ServedBatches(source.signature, self._hand_out)

    def end_epoch(self) -> None:
        raise self._refusal("end_epoch()", "with sync 'bsp'")

    def _hand_out(self) -> Iterator[Any]:  # type: ignore[override]  # of the one dataset
        while not self._stopping:
            if self._batch_is_out:
                raise RuntimeError("a batch was asked for before the step with the one before it")
            batch = self._take_batch()
            if batch is None:
                return
            yield batch

    # Iterations.

    def _take_batch(self) -> Any:
        """None: all are at the barrier."""
        assert self._source is not None
        if self._session is None:
            self._session = self._set_out()
        session = self._session
        with self._until_others_know():
            if self._at_barrier:
                session.enter()
            order = session.next(int(self._stop_wanted))
            if order.barrier:
                self._come_together(order)
                return None
        self._started, self._cpu_started = time.perf_counter(), _core.cpu_seconds()
        session.start_pull()
        sampler = self._replica.sampler
        batch = self._source.take(
            sampler.epoch, (order.first, order.last), lambda: sampler.samples(order.first, order.last))  # fmt: skip
        with self._until_others_know():
            session.finish_pull()
        self._parameters.take(session.values)
        self._batch_is_out = True
        return batch

    def _set_out(self) -> Session:
        """With what the first worker's model and optimizer hold now. Collective."""
        model, optimizer = self.trained
        if not model.built:
            raise ValueError(
                f"the model has no variables yet with sync '{self.options.sync}'; permitted: one that was built, by an "
                "Input layer, build() or a first call"
            )
        shard_optimizer.check_variables(model.trainable_variables, self.options.sync)
        self._weight.assign(1.0)  # gradients are means over this worker's samples
        with self._peers.watched("the variables of the first worker"):
            self._agree_on_variables(model.trainable_variables)
        self._start_log()
        self._iterations_before = int(optimizer.iterations.numpy()) - self.step_number
        self._parameters = Parameters(shard_optimizer.by_decay(optimizer, model.trainable_variables), self.size)
        self._updaters = self._cut(optimizer)
        owner = Owner(self._gather, self._average, self._books.note_update)
        if self.options.transport == "tensorflow":
            self._network = PairNetwork(self.rank, self._peers, self.options.timeout)
            link, owner.closed = self._network.link, self._network.close
        else:
            link = Sockets(self.rank, super().gather, self._cluster.rendezvous_host, self.options.timeout).connect()
        return Session(
            owner, self._replica, self.options, link, self._parameters.layout, self._updaters,
            self._books.updates)  # fmt: skip

    def _gather(self, mine: bytes) -> list[bytes]:
        return [text.encode("latin-1") for text in super(AsyncJob, self).gather(mine.decode("latin-1"))]

    def _cut(self, optimizer: keras.optimizers.Optimizer) -> list[SliceUpdater]:
        """This worker's chunks."""
        parameters, updaters = self._parameters, []
        values = [variable.numpy() for variable in parameters.variables]
        strips = parameters.layout.strips
        for chunk in parameters.layout.chunks_on(self.rank):
            mine = parameters.strip(chunk.strip, values)[chunk.first : chunk.last]
            decays = strips[chunk.strip].group == 0
            updaters.append(SliceUpdater(optimizer, mine, decays=decays, corrected_for=self._corrected_for))
        steps = self._books.shard_steps or int(optimizer.iterations.numpy())
        shard_state.spread(optimizer, parameters, updaters, self.rank, steps)
        return updaters

    def _synchronize_norms(self) -> bool:
        return False

    def run_step(
        self, step: Step, batch: Sequence[Any], loss_of: LossOf | None = None
    ) -> tuple[Any, list[tf.Tensor]] | None:
        """What the function returned, when all shards have its update."""
        if not self._batch_is_out:
            raise RuntimeError("a step without a batch of job.dataset(...)")
        warm = not step.is_new(batch)
        step.trace(batch)
        computed = self._compute_alone(step, batch)
        self.last_loss = float(computed.outputs) if is_scalar(computed.outputs) else math.nan
        self._send(step.variables, computed.gradients, warm)
        self._batch_is_out = False
        if self.options.on_step is not None:
            self.options.on_step(self)
        return computed.outputs, computed.states

    def _compute_alone(self, step: Step, batch: Sequence[Any]) -> Computed:
        try:
            return step.compute(batch)
        except OUT_OF_MEMORY as error:
            raise Error(
                f"the memory of task {self.rank} did not hold {self._order.batch} samples; with sync "
                f"'{self.options.sync}' nobody else takes them. Start again with a smaller max_batch there"
            ) from error

    def _send(self, variables: Sequence[Any], gradients: Sequence[tf.Tensor], warm: bool) -> None:
        session, parameters = self._running, self._parameters
        parameters.put(gradients, variables, session.gradients)  # waits for a GPU
        finite = self.options.on_nonfinite == "ignore" or all(
            bool(np.isfinite(gradient.numpy()).all()) for gradient in gradients)  # fmt: skip
        usage = _core.process_usage(self._cpu_started, time.perf_counter() - self._started)
        session.computed(self.last_loss, usage, warm)
        with self._until_others_know():
            if finite:
                rate = {"learning_rate": self._learning_rate()}
                session.send([rate] * len(parameters.layout.strips), float(self._order.batch))
            else:
                session.leave_out()
            session.finish()

    @contextmanager
    def _until_others_know(self) -> Iterator[None]:
        """Who hears why the job ends may end at once, and with it the threads that tell the others; they would take it
        for a lost one then."""
        try:
            yield
        except Error:
            if self._network is not None:
                self._network.say_last_words()
            raise

    def _learning_rate(self) -> float:
        """Schedules go by steps of the global batch, as in step."""
        optimizer = self._prepared[1].optimizer
        optimizer.iterations.assign(self._iterations_before + self.step_number)
        return float(optimizer.learning_rate)

    # Barriers.

    def _come_together(self, order: _core.Assignment) -> None:
        self._barriers += 1
        self._peers.note(self._barriers)
        self._running.reach_barrier()
        self._running.arrive(self._replica)
        self._stopping = order.stopping

    def _average(self, samples: int) -> None:
        """The parameters are here; BatchNormalization's statistics, by the samples of each worker since the last
        barrier, come to them."""
        self._parameters.take(self._running.values)
        running = [variable for variable in self._changing if tf.as_dtype(variable.dtype).is_floating]
        if not running:
            return
        mine = [np.asarray(variable.numpy(), np.float64).reshape(-1) * samples for variable in running]
        with self._peers.watched("the average of running statistics"):
            total = self._collectives.sum(np.concatenate([[float(samples)], *mine]))
        if total[0] == 0:
            return
        cuts = np.cumsum([len(values) for values in mine])[:-1]
        for variable, mean in zip(running, np.split(total[1:] / total[0], cuts), strict=True):
            variable.assign(mean.reshape(variable.shape))

    def gather(self, value: Any) -> list[Any]:
        self._require_barrier("gather()")
        return super().gather(value)

    def evaluation_dataset(self, samples: Any, batch_size: int = 256) -> tf.data.Dataset:
        self._require_barrier("evaluation_dataset()")
        return super().evaluation_dataset(samples, batch_size)

    def save(self, path: str | os.PathLike[str]) -> None:
        """When all are at the barrier."""
        self._require_barrier("save()")
        if self._session is not None:
            _, optimizer = self.trained
            total = self._collectives.sum
            with self._peers.watched("what the shards have learned"):
                shard_state.gather(optimizer, self._parameters, self._updaters, self.rank, total)
                # The last worker has a chunk always.
                mine = max(updater.steps for updater in self._updaters) if self.rank == self.size - 1 else 0
                self._books.shard_steps = int(total([mine])[0])
            optimizer.iterations.assign(self._iterations_before + self.step_number)
        super().save(path)

    def _end(self, orderly: bool) -> None:
        self._leave(orderly=True)
        super()._end(orderly)

    def _leave(self, orderly: bool) -> None:
        super()._leave(orderly)
        self._session = None
