"""One step of training, in three parts that TensorFlow runs one after the other:

compute   the user's function on this worker's samples, to its weighted gradients; exchanges nothing but statistics
          of BatchNormalization, so running out of memory here keeps nobody waiting (unless there are such);
exchange  one message: gradients, the reports of all workers, and the state of metrics, each added up;
apply     the optimizer's own update with the gradient of the global batch.

Between the parts gradients are one flat tensor of each type: what TensorFlow spends on handing a tensor from one
function to the next is the same for a bias as for a large matrix.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from isochron import _core
from isochron.tensorflow.deferral import DeferredApply, only_noted

if TYPE_CHECKING:
    from isochron.tensorflow.collectives import Collectives


@dataclasses.dataclass
class Computed:
    """What this worker has computed."""

    outputs: Any  # what the function returned
    gradients: list[tf.Tensor]  # weighted by its share; flat, unless the step leaves them apart
    states: list[tf.Tensor]
    out_of_memory: bool = False


@dataclasses.dataclass
class Exchanged:
    """What all workers have computed together."""

    gradients: list[tf.Tensor]
    reports: list[_core.StepReport]
    states: list[tf.Tensor]
    finite: bool


class Step:
    """`function` applies gradients once, by the deferred optimizer. `states` are variables to be added up besides, read
    after the function has run; `prepare` is called before every trace, and again after it until it returns False."""

    def __init__(
        self,
        function: Callable[..., Any],
        deferred: DeferredApply,
        collectives: Collectives,
        weight: tf.Variable,
        *,
        states: Callable[[], Sequence[Any]],
        prepare: Callable[[], bool],
        jit_compile: bool,
        autograph: bool,
        flat: bool = True,
    ) -> None:
        self._function = function
        self._deferred = deferred
        self._collectives = collectives
        self._weight = weight
        self._states = states
        self._prepare = prepare
        self._jit_compile = jit_compile
        self._autograph = autograph
        self._flat = flat
        self._computes: dict[Any, Any] = {}  # graphs, by the kinds of the arguments
        self._latest: dict[Any, tuple[Any, Any]] = {}  # signature and graph, by their structure
        self._shapes: set[Any] = set()
        self.variables: list[Any] = []  # that get gradients; known after the first trace
        self._exchange = tf.function(self._exchange_all, autograph=False)
        self._apply = tf.function(self._apply_all, autograph=False)

    @property
    def traces(self) -> int:
        """Graphs that were made: one serves all batch sizes."""
        return len({id(graph) for graph in self._computes.values()})

    @property
    def compilations(self) -> int:
        """XLA compiles once for every shape."""
        return len(self._shapes) if self._jit_compile else 0

    def is_new(self, arguments: Sequence[Any]) -> bool:
        """Whether to compute these takes longer for once: the first of all, and with XLA the first of its shape."""
        key: Any = ()
        if self._jit_compile:
            key = tuple(tuple(value.shape) for value in tf.nest.flatten(list(arguments)) if hasattr(value, "shape"))
        known = key in self._shapes
        self._shapes.add(key)
        return not known

    def trace(self, arguments: Sequence[Any]) -> bool:
        """Once for all batch sizes, and once more when other dimensions turn out to change, as those of padded batches
        do; creates the variables that were not there before. Whether there was something to trace."""
        key = _kinds(arguments)
        if key in self._computes:
            return False
        signature, structure = tf.nest.map_structure(_any_batch, list(arguments)), _structure(arguments)
        if structure in self._latest:
            known, graph = self._latest[structure]
            signature = tf.nest.map_structure(_both, known, signature)
            if tf.nest.flatten(signature) == tf.nest.flatten(known):
                self._computes[key] = graph
                return False
        self._prepare()
        while True:
            compute = tf.function(self._compute, autograph=self._autograph, jit_compile=self._jit_compile or None)
            concrete = compute.get_concrete_function(*signature)
            if not self._prepare():  # layers that were made while the model was built
                break
        self._computes[key], self._latest[structure] = concrete, (signature, concrete)
        return True

    def compute(self, arguments: Sequence[Any]) -> Computed:
        return Computed(*self._computes[_kinds(arguments)](*arguments))

    def stand_in(self, arguments: Sequence[Any]) -> list[Any]:
        """One sample of zeros in place of none: convolutions of oneDNN give an empty batch the wrong shape."""
        return tf.nest.map_structure(_one_sample, list(arguments))

    def read_states(self) -> list[tf.Tensor]:
        """Whole numbers as floats, of which double precision stays double."""
        values = [tf.convert_to_tensor(state) for state in self._states()]
        return [value if value.dtype == tf.float64 else tf.cast(value, tf.float32) for value in values]

    def nothing(self) -> Computed:
        """In place of what memory did not hold."""
        gradients = [tf.zeros(variable.shape, variable.dtype) for variable in self.variables]
        joined = _join(gradients) if self._flat else gradients
        return Computed(None, joined, self.read_states(), out_of_memory=True)

    def exchange(self, computed: Computed, report: _core.StepReport) -> Exchanged:
        row = tf.constant(report.numbers(), tf.float32)
        gradients, rows, states, finite = self._exchange(computed.gradients, row, computed.states)
        return Exchanged(gradients, _core.read_reports(rows.numpy().tobytes()), states, bool(finite))

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        self._apply(list(gradients))

    def _compute(self, *arguments: Any) -> tuple[Any, list[tf.Tensor], list[tf.Tensor]]:
        with self._deferred.noting() as noted:
            outputs = self._function(*arguments)
        gradients, self.variables = only_noted(noted)
        weight = tf.identity(self._weight)
        weighted = []
        for gradient in gradients:
            scaled = gradient * tf.cast(weight, gradient.dtype)
            # Nothing counts without samples, whatever their mean came out as.
            weighted.append(tf.where(weight > 0, scaled, tf.zeros_like(scaled)))
        return outputs, _join(weighted) if self._flat else weighted, self.read_states()

    def _exchange_all(
        self, gradients: list[tf.Tensor], report: tf.Tensor, states: list[tf.Tensor]
    ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor], tf.Tensor]:
        row = self._collectives.row(tf.ensure_shape(report, [_core.REPORT_NUMBERS]))
        sums = self._collectives.all_reduce([*gradients, row, *states])
        total, row, states = sums[: len(gradients)], sums[len(gradients)], sums[len(gradients) + 1 :]
        return total, row, states, all_finite(total)

    def _apply_all(self, gradients: list[tf.Tensor]) -> None:
        self._deferred.apply(_part(gradients, self.variables), self.variables)


def _join(gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """One flat tensor of each type, in the order of the types' names."""
    kinds = sorted({gradient.dtype.name for gradient in gradients})
    return [tf.concat([tf.reshape(one, [-1]) for one in gradients if one.dtype.name == kind], 0) for kind in kinds]


def _part(joined: Sequence[tf.Tensor], variables: Sequence[Any]) -> list[tf.Tensor]:
    """What _join() made of gradients of these variables."""
    parts: dict[int, tf.Tensor] = {}
    for flat in joined:
        places = [place for place, one in enumerate(variables) if tf.as_dtype(one.dtype) == flat.dtype]
        sizes = [math.prod(variables[place].shape) for place in places]
        for place, part in zip(places, tf.split(flat, sizes), strict=True):
            parts[place] = tf.reshape(part, variables[place].shape)
    return [parts[place] for place in range(len(variables))]


def _kinds(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The same for all batch sizes."""
    return tuple(
        (value.dtype, tuple(value.shape)[1:], value.shape.rank) if tf.is_tensor(value) else str(value)
        for value in tf.nest.flatten(list(arguments))
    )


def all_finite(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])


def _any_batch(value: Any) -> Any:
    """What a function is traced for: tensors of any number of samples."""
    if not tf.is_tensor(value):
        return value
    if isinstance(value, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None, *value.shape[1:]], value.dtype, value.ragged_rank, value.row_splits.dtype)
    shape = value.shape if value.shape.rank == 0 else [None, *value.shape[1:]]
    return tf.TensorSpec(shape, value.dtype)


def _structure(arguments: Sequence[Any]) -> tuple[str, ...]:
    """Everything but the sizes of tensors."""
    return tuple(
        f"{type(value).__name__} {value.shape.rank} {value.dtype}" if tf.is_tensor(value) else str(value)
        for value in tf.nest.flatten(list(arguments))
    )


def _both(known: Any, other: Any) -> Any:
    """What is traced for either."""
    if not isinstance(known, tf.TensorSpec) or known.shape == other.shape:
        return known
    sizes = [one if one == two else None for one, two in zip(known.shape, other.shape, strict=True)]
    return tf.TensorSpec(sizes, known.dtype)


def _one_sample(value: Any) -> Any:
    if isinstance(value, tf.RaggedTensor):
        one = tf.zeros([1, *value.values.shape[1:]], value.dtype)
        return value if value.nrows() > 0 else tf.RaggedTensor.from_row_lengths(one, [1])
    if not tf.is_tensor(value) or value.shape.rank == 0 or value.shape[0] != 0:
        return value
    return tf.zeros([1, *value.shape[1:]], value.dtype)
