"""The examples: short differences, and they run."""

import difflib
import pathlib
import re

import pytest
import torch

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


def new_lines(name, before="before"):
    difference = difflib.ndiff(lines(f"{name}_{before}")[1:], lines(f"{name}_after")[1:])
    return sum(line.startswith("+ ") for line in difference)


@pytest.mark.parametrize("name", [name for name in RUNS if name != "finetune"])
def test_converting_takes_six_lines(name):
    assert 0 < new_lines(name) <= 6


def test_two_datasets_and_checkpoints_take_ten_lines():
    assert 0 < new_lines("finetune") <= 10


def test_dealing_by_cost_takes_three_lines(alone, pair):
    """An isochron job by count is the before; from a plain loop it is six lines as for the others."""
    assert 0 < new_lines("lengths", "by_count") <= 3
    arguments, begins = RUNS["lengths"]
    path = str(EXAMPLES / "lengths_by_count.py")
    for workers in (alone, pair):
        for output in workers.run("example", path=path, arguments=arguments):
            assert output.startswith(begins)


@pytest.mark.parametrize("name", RUNS)
def test_after_runs_alone_and_on_two_workers(name, alone, pair):
    arguments, begins = RUNS[name]
    path = str(EXAMPLES / f"{name}_after.py")
    single = alone.run("example", path=path, arguments=arguments)
    both = pair.run("example", path=path, arguments=arguments)
    for output in (*single, *both):
        assert output.startswith(begins)
        assert float(output.split("loss ")[1].split()[0]) < 2.0  # of 10 classes or 28 characters by chance: 2.3, 3.3


@pytest.mark.parametrize("name", RUNS)
def test_after_trains_on_two_workers_as_before_on_one(name, alone, pair):
    """In double precision, in one order, without dropout and with noise that is alike for all samples."""
    arguments, _ = RUNS[name]
    grouped = "_in_a_group" if name == "imagenet" else ""  # the script before is for DistributedDataParallel
    before, after = (str(EXAMPLES / f"{name}_{side}.py") for side in ("before", "after"))
    (single,) = alone.run(f"torch_example_cases:trained{grouped}", path=before, arguments=arguments)
    both = pair.run("torch_example_cases:trained", path=after, arguments=arguments)
    assert both[0]["weights"] == both[1]["weights"]
    assert all(whole for one in both for whole in one["whole"]) and both[0]["whole"]
    mine, theirs = (torch.tensor(one["weights"], dtype=torch.float64) for one in (both[0], single))
    assert (mine - theirs).abs().max().item() < 1e-9


@pytest.mark.parametrize("name", ["mnist", "nanogpt", "gan", "stream", "lengths", "finetune"])
def test_before_runs(name, alone):
    arguments, begins = RUNS[name]
    (output,) = alone.run("example", path=str(EXAMPLES / f"{name}_before.py"), arguments=arguments)
    assert output.startswith(begins)


# What each prints last, and the most that the number in it may be where one worker has the whole batch: the loss of a
# share may be that of a single sample.
FEATURES = {
    "accumulation": (r"loss (\S+) after 30 updates", 0.5),
    "batch_norm": (r"milliseconds a step: (\S+) over the global batch, \S+ over each worker's samples", 1e6),
    "clipping": (r"loss (\S+), [1-9]\d* of 60 steps clipped", 0.6),
    "device": (r"loss (\S+) on (?:cpu|cuda)", 0.5),
    "early_exit": (r"loss (\S+) after 16 and 4 steps, epoch 3", 0.6),
    "ema": (r"accuracy of the average (0\.9\d*)", 1.0),
    "evaluation": (r"accuracy (0\.9\d*) of 1000 samples", 1.0),
    "resume": (r"loss (\S+); every sample used once: True", 0.5),
    "scheduler": (r"loss (\S+), learning rate 0\.0000 after 60 steps", 0.5),
    "several_losses": (r"loss (\S+), and of the last finished step on all workers \S+", 0.5),
    "token_mean": (r"loss (\S+)", 0.2),
    "two_optimizers": (r"distance (\S+) at step 100", 1.5),
}


def test_every_feature_is_known():
    assert sorted(FEATURES) == sorted(path.stem for path in (EXAMPLES / "by_feature").glob("*.py"))


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_runs_alone_and_on_two_workers(name, alone, pair, tmp_path):
    pattern, most = FEATURES[name]
    path = str(EXAMPLES / "by_feature" / f"{name}.py")
    for workers in (alone, pair):
        for output in workers.run("example", path=path, arguments=[str(tmp_path)]):
            found = re.fullmatch(pattern, output)
            assert found and (workers is pair or float(found[1]) <= most), output
