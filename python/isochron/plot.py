"""Pictures of runs with matplotlib, for notebooks and papers.

Each function takes one run or several, draws into `axes` (new ones by default) and returns the matplotlib `Axes`, so
that everything can still be changed. Runs are drawn from their records: no frame library is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from isochron.run import Run, balance_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Over = Literal["step", "seconds"]

__all__ = ["accuracy", "balance", "batch_sizes", "loss", "overview", "step_times", "worker_times"]


def batch_sizes(run: Run, axes: Axes | None = None) -> Axes:
    """Every worker's batch size over the steps of one run."""
    return _per_worker(run, "batch_sizes", "batch size", axes)


def worker_times(run: Run, axes: Axes | None = None) -> Axes:
    """Every worker's seconds to its last gradient over the steps of one run: balanced where the lines meet."""
    return _per_worker(run, "compute_seconds", "seconds to compute", axes)


def step_times(runs: Run | Sequence[Run], axes: Axes | None = None, over: Over = "step") -> Axes:
    """How long each step took."""
    return _per_step(runs, lambda record: record.get("seconds"), "seconds per step", axes, over)


def balance(runs: Run | Sequence[Run], axes: Axes | None = None, over: Over = "step") -> Axes:
    """Mean over max of the workers' times: 1 is perfect."""
    axes = _per_step(runs, balance_of, "balance", axes, over)
    axes.set_ylim(0.0, 1.02)
    return axes


def loss(runs: Run | Sequence[Run], axes: Axes | None = None, over: Over = "seconds") -> Axes:
    """Training loss; evaluations on the test set as marks of the same colour."""
    axes = _per_step(runs, lambda record: record.get("loss"), "loss", axes, over)
    listed = _listed(runs)
    for place, run in enumerate(listed):
        points = _evaluations(run, "loss", over)
        if points:
            axes.plot(*zip(*points), "o", color=_colour(place, len(listed)), label=f"{run.label}, test")
    _legend(axes, 2)
    return axes


def accuracy(runs: Run | Sequence[Run], axes: Axes | None = None, over: Over = "seconds") -> Axes:
    """Accuracy on the test set, over training time by default: the curve that says which run is better."""
    axes = _new_axes(axes)
    listed = _listed(runs)
    for place, run in enumerate(listed):
        points = _evaluations(run, "accuracy", over)
        axes.plot(*(zip(*points) if points else ([], [])), "o-", label=run.label, color=_colour(place, len(listed)))
    _finish(axes, over, "test accuracy")
    return axes


def overview(runs: Run | Sequence[Run]) -> Figure:
    """Batch sizes of the last run, and times, balance and loss of all. Without a loss: the last run's worker times."""
    listed = _listed(runs)
    figure, grid = _pyplot().subplots(2, 2, figsize=(11, 7), layout="constrained")
    batch_sizes(listed[-1], grid[0][0]).set_title(f"policy {listed[-1].label}")
    step_times(listed, grid[0][1])
    balance(listed, grid[1][0])
    if any(record.get("loss") is not None for run in listed for record in run.step_records):
        loss(listed, grid[1][1])
    else:
        worker_times(listed[-1], grid[1][1])
    return figure


def _listed(runs: Run | Iterable[Run]) -> list[Run]:
    listed = [runs] if isinstance(runs, Run) else list(runs)
    if not listed:
        raise ValueError("there is no run; permitted: one or more")
    return listed


# Okabe and Ito's, which the colour-blind tell apart: the report's colours.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b88600", "#4aa8dc", "#7a5195", "#222222")


def _colour(place: int, count: int) -> Any:
    if count <= len(_COLOURS):
        return _COLOURS[place]
    import matplotlib

    return matplotlib.colormaps["cividis"](place / (count - 1))


def _new_axes(axes: Axes | None) -> Axes:
    return _pyplot().subplots(layout="constrained")[1] if axes is None else axes


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot
    except ImportError:
        raise ImportError("isochron.plot needs matplotlib: pip install isochron[plot]") from None
    return matplotlib.pyplot


def _places(run: Run, over: Over) -> list[float]:
    """Where each step ends."""
    return run.training_seconds if over == "seconds" else [record["step"] for record in run.step_records]


def _evaluations(run: Run, field: str, over: Over) -> list[tuple[float, float]]:
    """Places and values; in time an evaluation belongs to the end of the step before it."""
    ends = {record["step"] + 1: end for record, end in zip(run.step_records, run.training_seconds)}
    return [(record["step"] if over == "step" else ends.get(record["step"], 0.0), record[field])
            for record in run.evaluation_records if record.get(field) is not None]  # fmt: skip


def _per_step(runs: Run | Sequence[Run], value: Any, name: str, axes: Axes | None, over: Over) -> Axes:
    if over not in ("step", "seconds"):
        raise ValueError(f"over is {over!r}; permitted: step, seconds")
    axes = _new_axes(axes)
    listed = _listed(runs)
    for place, run in enumerate(listed):
        pairs = zip(_places(run, over), run.step_records)
        points = [(where, value(record)) for where, record in pairs if value(record) is not None]
        axes.plot(*(zip(*points) if points else ([], [])), label=run.label, color=_colour(place, len(listed)))
    _finish(axes, over, name)
    return axes


def _per_worker(run: Run, key: str, name: str, axes: Axes | None) -> Axes:
    axes = _new_axes(axes)
    series: dict[int, tuple[list[int], list[float]]] = {}
    for record in run.step_records:
        for worker, value in zip(record.get("workers", []), record.get(key, [])):
            steps, values = series.setdefault(worker, ([], []))
            steps.append(record["step"])
            values.append(float("nan") if value is None else value)
    names = run.worker_names
    for place, (worker, (steps, values)) in enumerate(sorted(series.items())):
        axes.plot(steps, values, label=names.get(worker, f"worker {worker}"), color=_colour(place, len(series)))
    for step in sorted({event["step"] for event in run.event_records}):
        axes.axvline(step, color="grey", linewidth=0.8, linestyle=":")
    _finish(axes, "step", name)
    return axes


def _finish(axes: Axes, over: Over, name: str) -> None:
    axes.set_xlabel("step" if over == "step" else "seconds of training")
    axes.set_ylabel(name)
    axes.grid(alpha=0.3)
    _legend(axes, 1)


def _legend(axes: Axes, least: int) -> None:
    """None where it would be empty, or too long to be of use."""
    if least <= len(axes.get_legend_handles_labels()[0]) <= 16:
        axes.legend(fontsize="small")
