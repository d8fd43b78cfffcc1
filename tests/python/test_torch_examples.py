"""The examples: short differences, and they run."""

import difflib
import pathlib

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
RUNS = {
    "mnist": (["--samples", "1200"], "epoch 1"),
    "imagenet": (["--samples", "320"], "epoch 1"),
    "nanogpt": (["40"], "iter 39"),
    "gan": (["--samples", "3200"], "epoch 1"),
    "stream": (["1607"], "epoch 1"),
    "lengths": (["640"], "epoch 1"),
    "finetune": (["--samples", "640"], "finetuning epoch 1"),
}


def lines(name):
    return [line for line in (EXAMPLES / f"{name}.py").read_text().splitlines() if line]


def new_lines(name):
    difference = difflib.ndiff(lines(f"{name}_before"), lines(f"{name}_after"))
    return sum(line.startswith("+ ") for line in difference)


@pytest.mark.parametrize("name", [name for name in RUNS if name != "finetune"])
def test_converting_takes_six_lines(name):
    assert 0 < new_lines(name) <= 6


def test_two_datasets_and_checkpoints_take_ten_lines():
    assert 0 < new_lines("finetune") <= 10


@pytest.mark.parametrize("name", RUNS)
def test_after_runs_alone_and_on_two_workers(name, alone, pair):
    arguments, begins = RUNS[name]
    path = str(EXAMPLES / f"{name}_after.py")
    single = alone.run("example", path=path, arguments=arguments)
    both = pair.run("example", path=path, arguments=arguments)
    for output in (*single, *both):
        assert output.startswith(begins)
        assert float(output.split("loss ")[1].split()[0]) < 2.0  # of 10 classes or 28 characters by chance: 2.3, 3.3


@pytest.mark.parametrize("name", ["mnist", "nanogpt", "gan", "stream", "lengths", "finetune"])
def test_before_runs(name, alone):
    arguments, begins = RUNS[name]
    (output,) = alone.run("example", path=str(EXAMPLES / f"{name}_before.py"), arguments=arguments)
    assert output.startswith(begins)
