"""A training job: this process is one of its workers. See the package's documentation for the whole picture."""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from isochron import _core
from isochron.errors import Error, NonFiniteError
from isochron.log_files import refusal, trouble_of_writing
from isochron.summary import Summary, summarize
from isochron.tensorflow import batch_norm, data, fit, saving
from isochron.tensorflow.cluster import find_cluster
from isochron.tensorflow.collectives import Collectives
from isochron.tensorflow.datasets import HandsOut
from isochron.tensorflow.deferral import DeferredApply
from isochron.tensorflow.options import JobOptions
from isochron.tensorflow.peers import Peers
from isochron.tensorflow.bookkeeping import Bookkeeping
from isochron.tensorflow.step import Computed, Exchanged, Step, all_finite

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from isochron.tensorflow.options import TensorFlowKeywords

log = logging.getLogger("isochron")
LossOf = Callable[[Any, list[tf.Tensor]], float | None]
OUT_OF_MEMORY = (tf.errors.ResourceExhaustedError, MemoryError)


class Job(HandsOut):
    """`Job(global_batch=256)` under TF_CONFIG, torchrun, Slurm, Open MPI, or alone, with the options of JobOptions. It
    must be made before anything else of TensorFlow's is used. With sync="asp" or "ssp" it is an AsyncJob."""

    def __new__(cls, global_batch: int, **options: Unpack[TensorFlowKeywords]) -> Job:
        if cls is Job and options.get("sync") in ("asp", "ssp"):
            from isochron.tensorflow.async_job import AsyncJob

            return super().__new__(AsyncJob)
        return super().__new__(cls)

    def __init__(self, global_batch: int, **options: Unpack[TensorFlowKeywords]) -> None:
        super().__init__()
        self.options = JobOptions(global_batch=global_batch, **options)
        self.options.validate()
        self._cluster = find_cluster(os.environ, self.options.timeout)
        self._collectives = Collectives(self._cluster, self.options.timeout)
        self._peers = Peers(self._collectives, self._cluster, self.options.timeout)
        self._check_log()
        self._replica = self._agree()
        self._began = time.perf_counter()  # at about the same moment on all workers
        self._books = Bookkeeping(self._replica, self.options)
        self._weight = tf.Variable(0.0, dtype=tf.float64, trainable=False, name="isochron_weight")
        self._weighed = 0.0  # what it holds
        self._moments = batch_norm.GlobalMoments(self._collectives, self._weight)
        self._model: keras.Model | None = None
        self._deferred: DeferredApply | None = None
        self._fit: fit.KerasFit | None = None
        self.failed = False  # for good: others are lost, or wait for what will not come
        self.rescue: str | None = None  # where the job is saved then
        self._waits_inside = False  # others may wait for this worker in the middle of its computing
        self._changing: list[Any] = []  # what computing changes besides the gradients
        self._source: data.Source | None = None
        self._steps: list[Step] = []
        self._variables_agree = False
        self.left_out = False  # the last step, since its gradient was not finite
        self._started = self._cpu_started = 0.0
        self._stop_wanted = self._stopping = False
        self._resumed = self._evaluation_is_shared = False
        self.last_loss = math.nan  # of the last step, over the global batch

    def _check_log(self) -> None:
        path = self.options.log
        trouble = trouble_of_writing(path) if path is not None and self.is_first else ""
        if trouble := self._collectives.gather(trouble)[0]:
            raise refusal(path, trouble)

    def __repr__(self) -> str:
        where = f"step {self.step_number}, epoch {self.epoch}, batches {self.batch_sizes}"
        return f"<Job: worker {self.rank} of {self.size}, {where}, policy {self.options.policy}>"

    def _agree(self) -> _core.Replica:
        """All workers must have been told the same; what each says of itself becomes known to all."""
        options = self.options
        self._gpu = bool(tf.config.list_physical_devices("GPU"))
        device = "gpu" if self._gpu else "cpu"
        mine = options.settings.introduction(device, first=self.is_first)
        workers = _core.agree([_core.Introduction.decode(one) for one in self._collectives.gather(mine.encode())])
        return _core.Replica(options.settings, workers, self.rank, cpu=device == "cpu")

    # Who and where.

    @property
    def rank(self) -> int:
        """The task index."""
        return self._collectives.rank

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self._collectives.size

    @property
    def is_first(self) -> bool:
        """Whether this worker has rank 0, which writes what one worker writes for all."""
        return self.rank == 0

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """What carries the job's messages. Models of the job are made outside of its scope."""
        return self._collectives.strategy

    @property
    def batch_sizes(self) -> list[int]:
        """Those of the step under way, or of the coming one between two steps."""
        per_sample = self._replica.units_per_sample
        return [round(size / per_sample) for size in self.decision.batch_sizes]

    @property
    def decision(self) -> _core.Decision:
        """The one for the step under way, or the coming one: the split, the learning rate's factor, and why."""
        return self._replica.decision

    @property
    def step_number(self) -> int:
        """The number of the step under way, or of the coming one between two steps."""
        return self._replica.step

    @property
    def epoch(self) -> int:
        """The number of the epoch under way, from 0."""
        return self._replica.epoch

    @property
    def steps_per_epoch(self) -> int:
        """How many steps an epoch of the dataset has that the loop is in."""
        return self._replica.sampler.steps_per_epoch

    @property
    def ledger(self) -> _core.Ledger:
        """Which positions of the epoch were used."""
        return self._replica.ledger

    def summary(self) -> Summary:
        """Speed, waiting, and what the shares gain, until now; print() makes it a sentence."""
        return summarize(self._books.meter)

    @property
    def traces(self) -> int:
        """How often step functions were traced."""
        return sum(step.traces for step in self._steps)

    @property
    def compilations(self) -> int:
        """How many shapes XLA has compiled step functions for."""
        return sum(step.compilations for step in self._steps)

    # What is trained.

    def prepare(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer
    ) -> tuple[keras.Model, keras.optimizers.Optimizer]:
        """Before the first step, which gives all workers the first one's variables. BatchNormalization uses the global
        batch from now on, and the optimizer applies gradients in a job.step only."""
        if self._model is not None and model is not self._model:
            raise ValueError("a second model; permitted: one per job")
        if any(isinstance(variable.value, tf.distribute.DistributedValues) for variable in model.variables):
            raise ValueError("the model was made in a strategy's scope; permitted: a model that was made outside of it")
        self._check_rate(optimizer)
        self._let_go()
        self._model, self._deferred = model, DeferredApply(optimizer)
        self._steps.clear()
        self._variables_agree = False
        return model, optimizer

    def _check_rate(self, optimizer: keras.optimizers.Optimizer) -> None:
        if self.options.lr_rule == "none" or self.options.asynchronous:
            return
        inner = getattr(optimizer, "inner_optimizer", optimizer)  # of one that scales losses
        if isinstance(inner.get_config().get("learning_rate"), dict):
            raise ValueError(
                f"lr_rule is '{self.options.lr_rule}' with a schedule as learning rate; "
                "permitted: 'none', or a constant one"
            )

    def _let_go(self) -> None:
        """Model and optimizer become what they were before."""
        if self._deferred is not None:
            self._deferred.undo()
        if self._fit is not None:
            self._fit.undo()
        self._moments.undo()
        self._model = self._deferred = self._fit = None

    @property
    def _prepared(self) -> tuple[keras.Model, DeferredApply]:
        if self._model is None or self._deferred is None:
            raise RuntimeError("call job.prepare(model, optimizer) or job.compile(model, ...) first")
        return self._model, self._deferred

    def step(
        self, function: Callable[..., Any] | None = None, *, jit_compile: bool = False, autograph: bool = True
    ) -> Callable[..., Any]:
        """Decorates a function that computes a batch's mean loss and applies its gradients once, in place of
        tf.function. If it returns the loss, the decorated one returns the mean over the global batch. None means that
        the step did not happen, since some worker's memory did not hold its share: the dataset gives it out again."""
        if function is None:
            return lambda function: self.step(function, jit_compile=jit_compile, autograph=autograph)
        step: Step | None = None

        def run(*batch: Any) -> Any:
            nonlocal step
            if step is None or step not in self._steps:  # prepare() makes all of them anew
                step = self.make_step(function, jit_compile=jit_compile, autograph=autograph)
            done = self.run_step(step, batch)
            if done is None:
                return None
            outputs, _ = done
            return tf.constant(self.last_loss) if is_scalar(outputs) else outputs

        return run

    def compile(self, model: keras.Model, **arguments: Any) -> None:
        """model.compile(), for a model.fit() that trains on all workers."""
        self._fit = fit.compile_model(self, model, arguments)

    def callback(self, **options: Any) -> keras.callbacks.Callback:
        """For model.fit(): keeps the run log's evaluations, and checkpoints if told a path; see fit.JobCallback."""
        return fit.JobCallback(self, **options)

    def epochs(self, count: int) -> Iterator[int]:
        """Epoch numbers from the present one to count - 1, again one that was not trained to its end; ends early when
        the job stops."""
        while self.epoch < count and not self._stopping:
            yield self.epoch

    def _take_batch(self) -> Any:
        assert self._source is not None
        self._abandon()
        self._begin_step()
        return self._take_share()

    def _begin_step(self) -> None:
        self._started, self._cpu_started = time.perf_counter(), _core.cpu_seconds()
        self._plan = self._plan_step()

    def _abandon(self) -> None:
        if self._replica.phase != "between":
            self._replica.abandon()

    # One step.

    def make_step(
        self,
        function: Callable[..., Any],
        *,
        states: Callable[[], Sequence[Any]] = tuple,
        jit_compile: bool = False,
        autograph: bool = True,
    ) -> Step:
        """What step() makes of a function, for fit() and whoever wants more of it than its loss."""
        model, deferred = self._prepared
        synchronizes = self.options.sync_batch_norm and not self.options.asynchronous and self.size > 1
        if jit_compile and synchronizes and batch_norm.batch_norms(model):
            raise ValueError(
                "jit_compile is True for a model with BatchNormalization; permitted: False, or sync_batch_norm=False "
                "in the job, since XLA cannot exchange statistics in the middle of a step"
            )
        step = Step(
            function, deferred, self._collectives, self._weight, states=states,
            prepare=self._synchronize_norms, jit_compile=jit_compile, autograph=autograph,
            flat=not self.options.asynchronous)  # fmt: skip
        self._steps.append(step)
        return step

    def _synchronize_norms(self) -> bool:
        """Whether there were layers that had not been."""
        if self.size == 1 or not self.options.sync_batch_norm:
            return False
        found = [self._moments.take_over(layer) for layer in batch_norm.batch_norms(self._prepared[0])]
        return any(found)

    def run_step(
        self, step: Step, batch: Sequence[Any], loss_of: LossOf | None = None
    ) -> tuple[Any, list[tf.Tensor]] | None:
        """What the function returned and the sums of its states; None if the step did not happen. `loss_of` finds the
        local mean loss in both where the function does not return it, or None if they do not say it."""
        if self._replica.phase != "computing":
            raise RuntimeError("a step without a batch of job.dataset(...)")
        self._compare_sequences()
        self._start_log()
        self._peers.note(self.step_number)
        if self._weighed != (weight := self._share_of_step()):  # gradients are added up
            self._weight.assign(weight)
            self._weighed = weight
        fresh = step.is_new(batch)
        with self._peers.watched(f"step {self.step_number}"):
            fresh = step.trace(batch) or fresh
            self._agree_on_variables(step.variables)
        undo = self._snapshot()
        try:
            computed = self._compute(step, batch)
            if self._plan.batch == 0:
                self._forget_metrics(step, computed, undo)
            report = self._report(computed, loss_of, warm=not fresh)
            with self._peers.watched(f"the gradients of step {self.step_number}"):
                exchanged = step.exchange(computed, report)
        except Error:
            self._give_up(undo)
            raise
        reduced = self._now()
        verdict = self._replica.judge(exchanged.reports, exchanged.finite or self._scales_losses)
        if verdict.action != "take":
            _put_back(undo)
        if verdict.action == "stop":
            self._abandon()
            raise NonFiniteError(f"{verdict.message}; the model is as before the step")
        if verdict.action == "redo":
            self._books.write(self._replica.redo(exchanged.reports, self._now()))
            if verdict.ranks:  # they had too little memory
                log.warning("%s on tasks %s; the step is dealt anew", verdict.message, verdict.ranks)
                return None
            self._begin_step()  # with the same samples, to see whose gradient it is
            return self.run_step(step, batch, loss_of)
        self.left_out = verdict.action == "leave-out"
        self._finish(step, exchanged, reduced)
        return computed.outputs, exchanged.states

    def _finish(self, step: Step, exchanged: Exchanged, reduced: float) -> None:
        if not self.left_out:
            self._apply(step, exchanged)
        finish = self._replica.leave_out if self.left_out else self._replica.complete
        outcome = finish(exchanged.reports, reduced, self._now())
        self._books.write([outcome.record, *outcome.events])
        self._stopping, self.last_loss = outcome.stop, outcome.loss
        if self.options.on_step is not None:
            self.options.on_step(self)

    def _compare_sequences(self) -> None:
        """Every worker reads its own copy of a tf.data.Dataset, which must have the same order on all."""
        beginning = self._source.new_beginning() if isinstance(self._source, data.StreamSource) else None
        before = time.perf_counter()
        same = beginning is None or len(set(self.gather(beginning))) == 1
        self._started += time.perf_counter() - before  # waiting for others is no work
        if same:
            return
        self._abandon()
        raise ValueError(
            f"the workers' tf.data.Datasets begin epoch {self.epoch} with different samples; permitted: the same "
            "sequence on all workers: shuffle(..., seed=...) and the same tf.random.set_seed(); random augmentation "
            "likewise, or of the batches of job.dataset(...) in its map()"
        )

    def _give_up(self, undo: list[tuple[Any, tf.Tensor]]) -> None:
        """The job cannot go on. It is as before the step, and saved if somebody has said where."""
        _put_back(undo)
        self._abandon()
        self.failed = True
        if self.rescue is not None:
            try:
                self.save(self.rescue)
            except Error as error:
                log.warning("the state before step %d could not be saved: %s", self.step_number, error)

    @property
    def _scales_losses(self) -> bool:
        """An optimizer that does wants to see a gradient that is not finite: it leaves it out, and scales less."""
        return isinstance(self._prepared[1].optimizer, keras.optimizers.LossScaleOptimizer)

    def _agree_on_variables(self, trained: Sequence[Any]) -> None:
        if self._variables_agree:
            return
        model, optimizer = self.trained
        if not optimizer.built:
            optimizer.build(trained)
        self._collectives.broadcast([*model.variables, *optimizer.variables])
        for layer in batch_norm.layers_of(model):
            generator = getattr(layer, "seed_generator", None)
            if generator is not None:  # other masks of dropout on every worker
                generator.state.assign(generator.state + tf.constant([0, self.rank], generator.state.dtype))
        frozen = {id(variable) for layer in batch_norm.layers_of(model) if not layer.trainable
                  for variable in layer.variables}  # fmt: skip
        self._changing = [variable for variable in model.non_trainable_variables if id(variable) not in frozen]
        self._waits_inside = self._moments.in_use
        self._variables_agree = True

    def _snapshot(self) -> list[tuple[Any, tf.Tensor]]:
        model, _ = self._prepared
        return [(variable, tf.identity(variable.value)) for variable in (*self._changing, *model.metrics_variables)]

    def _forget_metrics(self, step: Step, computed: Computed, before: list[tuple[Any, tf.Tensor]]) -> None:
        """A stand-in counts for nothing."""
        metrics = {id(variable) for variable in self._prepared[0].metrics_variables}
        for variable, value in before:
            if id(variable) in metrics:
                variable.assign(value)
        computed.states = step.read_states()

    def _compute(self, step: Step, batch: Sequence[Any]) -> Computed:
        try:
            with self._peers.watched(f"statistics of BatchNormalization in step {self.step_number}"):
                computed = step.compute(batch if self._plan.batch else step.stand_in(batch))
                if self._gpu:
                    computed.gradients[-1][:1].numpy()  # waits for it
                return computed
        except OUT_OF_MEMORY as error:
            if self._waits_inside:
                message = (
                    f"step {self.step_number}: the memory of task {self.rank} did not hold {self._plan.batch} "
                    "samples; the others wait for its BatchNormalization, so the step cannot be redone. Start again "
                    "from the last checkpoint, with a smaller max_batch there"
                )
                self._peers.announce(message, [self.rank])
                raise Error(message) from error
            return step.nothing()

    def _report(self, computed: Computed, loss_of: LossOf | None, warm: bool) -> _core.StepReport:
        loss = None
        if self._plan.batch and computed.outputs is not None:
            if loss_of is not None:
                loss = loss_of(computed.outputs, computed.states)
            elif is_scalar(computed.outputs):
                loss = float(computed.outputs)
        waited, exchanges = self._moments.take_waited()
        seconds = max(time.perf_counter() - self._started - waited, 0.0)
        measured = _core.StepReport()
        measured.start, measured.warm = self._started - self._began, warm
        measured.seconds, measured.waited, measured.sync_points = seconds, waited, exchanges + 1
        measured.usage = _core.process_usage(self._cpu_started, seconds)
        measured.loss, items = (0.0, 0.0) if loss is None else (loss, self._items)
        if items is not None:
            measured.items = items
        measured.finite = not self._plan.diagnose or bool(all_finite(computed.gradients))
        measured.out_of_memory = computed.out_of_memory
        measured.stop = self._stop_wanted
        return self._replica.report(measured)

    def _apply(self, step: Step, exchanged: Exchanged) -> None:
        factor = self.decision.learning_rate_factor
        if factor == 1.0:
            step.apply(exchanged.gradients)
            return
        optimizer = self._prepared[1].optimizer
        rate = float(optimizer.learning_rate)
        optimizer.learning_rate = rate * factor
        try:
            step.apply(exchanged.gradients)
        finally:
            optimizer.learning_rate = rate

    def _now(self) -> float:
        return time.perf_counter() - self._began

    # Around the steps.

    def set_bounds(self, bounds: Sequence[tuple[int, int]]) -> None:
        """For those who know more than the policy: smallest and largest batch of every worker from the coming step on.
        Between two steps, and the same on all workers."""
        self._replica.change_bounds(bounds)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Element-wise over the workers, between two steps; all must call it."""
        with self._peers.watched("a sum over the workers"):
            return self._collectives.sum(values).tolist()

    def gather(self, value: Any) -> list[Any]:
        """What every worker gives, in their order; anything that JSON can hold. Between two steps; all must call it."""
        with self._peers.watched("an exchange between the workers"):
            return self._collectives.gather(value)

    def barrier(self) -> None:
        """Waits until all workers are here, at most for the job's time-out. Collective."""
        self.sum([0.0])

    def evaluation_dataset(self, samples: Any, batch_size: int = 256) -> tf.data.Dataset:
        """This worker's share of `samples`, in batches, for model.evaluate() and as validation_data: the workers divide
        the work by their speed, and the metrics' results are those of all samples. All workers must use it."""
        source = data.make_source(samples, batch_size)
        shares = _core.deal(source.size(), [max(1, size) for size in self.batch_sizes])
        first = sum(shares[: self.rank])
        numbers = range(first, first + shares[self.rank])
        passes = itertools.count()

        def take() -> Iterator[Any]:
            self._evaluation_is_shared = True
            number = next(passes)
            for start in range(0, len(numbers), batch_size):
                yield batch(number, numbers[start : start + batch_size])

        def batch(number: int, part: range) -> Any:
            return source.take(number, (part[0], part[-1] + 1), lambda: part)

        return data.batches(source.signature, take)

    def evaluation(self, samples: Any, batch_size: int = 256) -> tf.data.Dataset:
        """The name of evaluation_dataset() before."""
        return self.evaluation_dataset(samples, batch_size)

    def take_shared_evaluation(self) -> bool:
        """Whether the workers shared out the evaluation that has just ended."""
        shared, self._evaluation_is_shared = self._evaluation_is_shared, False
        return shared

    def note_evaluation(self, loss: float, accuracy: float = math.nan) -> None:
        """Into the run log."""
        if self._books.log is not None:
            self._books.log.evaluation(step=self._books.line, seconds=self._now(), loss=loss, accuracy=accuracy)

    def stop(self) -> None:
        """All workers end their loops after the coming step."""
        self._stop_wanted = True

    @property
    def stopping(self) -> bool:
        """Whether the loops of all workers end, after stop() or a signal on any of them."""
        return self._stopping

    def save(self, path: str | os.PathLike[str]) -> None:
        """Between two steps; all workers call it and the first one writes. Model, optimizer, place in the data and
        what was learned of the workers, as a tf.train.Checkpoint with that prefix. After an error that ends the job in
        the middle of a step it is the state before that step, and nobody waits for anybody."""
        batch_is_out = self._replica.phase == "computing"
        self._abandon()
        saving.save(self, os.fspath(path))
        if batch_is_out:
            self._plan = self._plan_step()  # the same as before

    def restore(self, path: str | os.PathLike[str]) -> None:
        """After prepare() or compile(), before or after dataset(), on any number of workers; the first one reads."""
        saving.restore(self, os.fspath(path))

    def has_checkpoint(self, path: str | os.PathLike[str]) -> bool:
        """Whether the first worker sees one; all must ask."""
        return saving.exists(self, os.fspath(path))

    @property
    def books(self) -> Bookkeeping:
        """Its log, and what it says of steps."""
        return self._books

    @property
    def trained(self) -> tuple[keras.Model, keras.optimizers.Optimizer]:
        """The model and the optimizer that were prepared."""
        model, deferred = self._prepared
        return model, deferred.optimizer

    def take_over(self, state: str) -> None:
        """What the first worker has read: its variables, and the state of the job."""
        model, optimizer = self.trained
        if not model.built:
            raise ValueError("the model has no variables yet; build it before restore()")
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        self._abandon()
        self._books.restore(state, self.restore_places)
        self._variables_agree = False
        self._resumed = True
        with self._peers.watched("the variables of the checkpoint"):
            self._agree_on_variables(model.trainable_variables)

    def close(self) -> None:
        """Lets go of model and optimizer, when all workers do, or some seconds later."""
        self._end(orderly=True)

    def _end(self, orderly: bool) -> None:
        self._let_go()
        self._books.close()
        self._peers.close(orderly)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._end(orderly=kind is None)

    def _start_log(self) -> None:
        """With a step, when it is known whether the job goes on with an earlier one."""
        if self.options.log is not None and self.is_first:
            number = self._data.number if self._data is not None else 0
            others = len(self._datasets) + len(self._saved_places) > 1
            model, dataset = self._prepared[0].name, self._dataset_name
            self._books.start_log(number, model, dataset, self._resumed, others, self._now())


def _put_back(undo: list[tuple[Any, tf.Tensor]]) -> None:
    for variable, value in undo:
        variable.assign(value)


def is_scalar(value: Any) -> bool:
    return tf.is_tensor(value) and value.shape.rank == 0 and value.dtype.is_floating
