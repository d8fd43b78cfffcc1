"""Run logs become frames, whatever library is there and however the log ended."""

import subprocess
import sys

import pytest

import isochron
from isochron.frames import choose_library, column

LIBRARIES = ["pandas", "polars"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_gives_a_frame_for_every_kind_of_line(lines, write_log, library):
    run = isochron.read_run(write_log(lines), library)
    assert type(run.steps).__module__.split(".")[0] == library
    assert run.header["global_batch"] == 40
    assert column(run.steps, "step") == [0, 1]
    assert column(run.steps, "loss") == [2.5, 2.0]
    assert column(run.steps, "samples") == [40, 40]
    assert column(run.steps, "samples_per_second") == [20.0, 40 / 0.75]
    # (0.5 + 2) / 2 / 2 and (0.75 + 0.5 + 0.5) / 3 / 0.75.
    assert column(run.steps, "balance") == pytest.approx([0.625, 1.75 / 3 / 0.75])
    assert column(run.workers, "step") == [0, 0, 1, 1, 1]
    assert column(run.workers, "batch") == [20, 20, 30, 5, 5]
    assert column(run.workers, "name") == ["fast", "slow", "fast", "slow", "late"]
    assert column(run.events, "event") == ["join"]
    assert column(run.evaluations, "accuracy") == [0.4]
    assert run.label == "isochron on pair"
    assert run.steps is run.steps


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_old_log_has_the_same_columns(lines, write_log, library):
    old = [line for line in lines if line["type"] in ("run", "step")]
    for line in old[1:]:
        line.pop("loss")
    run = isochron.read_run(write_log(old), library)
    assert column(run.steps, "loss") == [None, None]
    assert column(run.steps, "epoch") == [None, None]
    assert len(run.events) == len(run.evaluations) == 0
    assert "accuracy" in run.evaluations.columns


@pytest.mark.parametrize("library", LIBRARIES)
def test_fields_and_lines_of_newer_versions_do_no_harm(lines, write_log, library):
    lines[0]["colour"] = "blue"
    lines[1]["chain"] = "ab12"
    lines.append({"type": "omen", "step": 3})
    run = isochron.read_run(write_log(lines), library)
    assert run.header["colour"] == "blue"
    assert column(run.steps, "chain")[0] == "ab12"
    assert len(run.steps) == 2


@pytest.mark.parametrize("tail", ['{"type": "st', '{"type": "step", "step": 2}', "\n"[:0]])
def test_a_line_that_was_cut_short_is_left_out(lines, write_log, tail):
    assert len(isochron.read_run(write_log(lines, tail)).step_records) == 2


def test_says_what_is_no_run_log(lines, write_log, tmp_path):
    with pytest.raises(isochron.RunLogError, match=r"run.jsonl:1: the first line is no header"):
        isochron.read_run(write_log(lines[1:]))
    with pytest.raises(isochron.RunLogError, match=r"run.jsonl:1: the first line is no header"):
        isochron.read_run(write_log([]))
    with pytest.raises(isochron.RunLogError, match=r"run.jsonl:2: the line is not JSON"):
        isochron.read_run(write_log(lines[:1], tail="{nonsense\n{}\n"))
    with pytest.raises(isochron.RunLogError, match=r"run.jsonl:2: the line is not a JSON object"):
        isochron.read_run(write_log(lines[:1], tail="[]\n"))
    with pytest.raises(isochron.RunLogError, match="schema is 9; permitted: 1"):
        isochron.read_run(write_log([{**lines[0], "schema": 9}]))
    with pytest.raises(OSError):
        isochron.read_run(tmp_path / "none.jsonl")


def test_needs_one_of_the_two_libraries_and_says_so(lines, write_log, monkeypatch):
    assert choose_library() == "pandas"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "polars" else None)
    assert choose_library() == "polars"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    run = isochron.read_run(write_log(lines))  # reading alone needs none
    with pytest.raises(ImportError, match="pandas or polars: pip install isochron.pandas"):
        run.steps
    with pytest.raises(ValueError, match="library is 'excel'; permitted: pandas, polars"):
        choose_library("excel")


def test_reads_what_the_program_writes(program_log):
    run = isochron.read_run(program_log)
    assert len(run.steps) == 40
    assert len(run.workers) == 160
    assert set(column(run.steps, "samples")) == {128}
    assert len(run.events) > 0


def test_importing_is_cheap():
    code = (
        "import sys, isochron\n"
        "heavy = {'json', 'dataclasses', 'pandas', 'polars', 'matplotlib', 'numpy', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert {'read_run', 'plot'} <= set(dir(isochron))\n"
        "import isochron.run\n"
        "assert not {'pandas', 'polars', 'numpy'} & set(sys.modules)\n"
    )
    paths = [path for path in sys.path if path.endswith("python")]
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {paths}\n{code}"]
    subprocess.run(command, check=True)


def test_what_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'isochron' has no attribute 'ploy'"):
        isochron.ploy
