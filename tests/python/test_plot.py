"""Pictures hold what the run holds."""

import matplotlib.pyplot
import pytest

import isochron


@pytest.fixture
def run(lines, write_log):
    return isochron.read_run(write_log(lines))


@pytest.fixture(autouse=True)
def close_figures():
    yield
    matplotlib.pyplot.close("all")


def data(axes):
    return [(line.get_label(), list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()]


def test_a_line_for_every_worker_and_a_mark_for_every_event(run):
    lines = data(isochron.plot.batch_sizes(run))
    assert lines[:3] == [("fast", [0, 1], [20, 30]), ("slow", [0, 1], [20, 5]), ("late", [1], [5])]
    assert lines[3][1] == [1, 1]  # the join
    assert data(isochron.plot.worker_times(run))[0] == ("fast", [0, 1], [0.5, 0.75])


def test_several_runs_share_a_picture(run):
    axes = isochron.plot.step_times([run, run])
    assert data(axes) == [("isochron on pair", [0, 1], [2.0, 0.75])] * 2
    assert data(isochron.plot.step_times(run, over="seconds"))[0][1] == [2.0, 2.75]
    assert data(isochron.plot.balance(run))[0][2] == pytest.approx([0.625, 1.75 / 3 / 0.75])


def test_loss_and_accuracy_with_what_the_test_set_says(run):
    lines = data(isochron.plot.loss(run))
    assert lines[0] == ("isochron on pair", [2.0, 2.75], [2.5, 2.0])
    assert lines[1] == ("isochron on pair, test", [2.75], [1.9])
    axes = isochron.plot.accuracy(run)
    assert data(axes)[0][1:] == ([2.75], [0.4])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("seconds of training", "test accuracy")


def test_time_is_training_time_when_runs_took_turns(lines, write_log):
    """Steps of 2 s and 0.75 s with another run's turn of 100 s between them, an evaluation of 5 s after them, and a
    process that goes on with a clock of its own, for 1 s."""
    header, first, join, second, evaluation = lines
    second["start"], evaluation["seconds"] = 102.0, 107.75
    resume = {"type": "event", "step": 2, "seconds": 0.0, "event": "resume", "worker": 0, "words": ""}
    third = {**second, "step": 2, "start": 0.5, "seconds": 1.0}
    run = isochron.read_run(write_log([header, first, join, second, evaluation, resume, third]))
    assert run.training_seconds == [2.0, 2.75, 3.75]
    assert data(isochron.plot.accuracy(run))[0][1:] == ([2.75], [0.4])


def test_time_of_updates_is_training_time_across_the_barriers_of_epochs(lines, write_log):
    """Two workers out of step: an epoch from 2 to 7 s, in which the last update to end began before the one before it,
    an evaluation of 50 s, and an epoch from 57 to 60 s."""
    header, update, *_ = lines
    updates = [(0, 2.0, 1.0), (0, 5.0, 1.0), (0, 4.0, 3.0), (1, 57.0, 1.0), (1, 57.0, 3.0)]
    records = [{**update, "step": step, "epoch": epoch, "start": start, "seconds": seconds, "staleness": 1}
               for step, (epoch, start, seconds) in enumerate(updates)]  # fmt: skip
    evaluation = {"type": "evaluation", "step": 3, "seconds": 7.0, "loss": 1.9, "accuracy": 0.4}
    run = isochron.read_run(write_log([header, *records[:3], evaluation, *records[3:]]))
    assert run.training_seconds == [1.0, 4.0, 5.0, 6.0, 8.0]
    assert data(isochron.plot.accuracy(run))[0][1:] == ([5.0], [0.4])


def test_draws_into_axes_that_are_given(run):
    axes = matplotlib.pyplot.subplots()[1]
    assert isochron.plot.loss(run, axes) is axes


def test_refuses_what_makes_no_picture(run):
    with pytest.raises(ValueError, match="there is no run; permitted: one or more"):
        isochron.plot.loss([])
    with pytest.raises(ValueError, match="over is 'epoch'; permitted: step, seconds"):
        isochron.plot.loss(run, over="epoch")


def test_workers_are_named_however_many_events_there_were(lines, write_log):
    event = next(line for line in lines if line["type"] == "event")
    run = isochron.read_run(write_log(lines + [{**event, "step": step} for step in range(2, 40)]))
    names = [text.get_text() for text in isochron.plot.batch_sizes(run).get_legend().get_texts()]
    assert names == ["fast", "slow", "late"]


def test_an_overview_of_what_the_program_writes(program_log, tmp_path):
    figure = isochron.plot.overview(isochron.read_run(program_log))
    assert figure.axes[3].get_ylabel() == "seconds to compute"  # a simulated run has no loss
    figure.savefig(tmp_path / "overview.png")
    assert (tmp_path / "overview.png").stat().st_size > 10_000
