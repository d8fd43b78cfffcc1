"""What workers tell each other cannot run anything on who reads it."""

import collections
import io
import os
import pathlib
import pickle

import pytest
import torch

import isochron
from isochron.torch import words

SENDER = "rank 1 on there (process 7)"


class Trap:
    """Makes a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mknod, (str(self.path),)


def hostile_states(path):
    """Pickles with a reducer: bare, and in the place of what torch.save has written."""
    yield pickle.dumps(Trap(path))
    yield pickle.dumps({"models": [Trap(path)]})
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        buffer = io.BytesIO()
        torch.save({"state": [torch.zeros(2), Trap(path)]}, buffer, pickle_protocol=protocol)
        yield buffer.getvalue()
    buffer = io.BytesIO()
    torch.save(Trap(path), buffer, _use_new_zipfile_serialization=False)
    yield buffer.getvalue()


def test_a_pickle_with_a_reducer_is_refused_and_does_not_run(tmp_path):
    trap = tmp_path / "ran"
    for said in hostile_states(trap):
        with pytest.raises(isochron.Error, match=r"the state that rank 1 on there .* permitted .* tensors, numbers"):
            words.unpack_state(said, SENDER)
        with pytest.raises(isochron.Error, match=r"rank 1 on there .* said what cannot be read"):
            words.unpack_words(said, SENDER)
        assert not trap.exists()
    pickle.loads(pickle.dumps(Trap(trap)))  # what would have happened
    assert trap.exists()


def test_words_and_states_that_make_no_sense_are_errors_that_name_their_sender(chance):
    true = words.pack_state({"step": 1, "momentum": torch.ones(3)})
    deep = b"[" * 100_000
    for said in (b"", b"{", deep, b"\xff", *(chance.randbytes(chance.randrange(1, 200)) for _ in range(50))):
        with pytest.raises(isochron.Error, match="rank 1 on there"):
            words.unpack_state(said, SENDER)
    for said in (b"", b"{", deep, b"\xff", true):
        with pytest.raises(isochron.Error, match="rank 1 on there"):
            words.unpack_words(said, SENDER)


def test_words_arrive_as_they_were_said():
    told = {"a": [1, -1.5, None, True, "ä"], "b": {"c": [[1, 2]]}, "big": 1 << 70}
    assert words.unpack_words(words.pack_words(told), SENDER) == told
    assert words.unpack_words(words.pack_words((1, (2, 3))), SENDER) == [1, [2, 3]]


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "LBFGS"])
def test_the_states_of_torchs_optimizers_and_schedules_arrive_as_they_were(kind):
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = getattr(torch.optim, kind)([parameter], lr=0.1)
    schedules = [
        torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2]),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4),
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0),
    ]

    def closure():
        optimizer.zero_grad()
        loss = (parameter**2).sum()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
        for schedule in schedules:
            schedule.step()
    told = {"state": optimizer.state_dict(), "others": [one.state_dict() for one in schedules], "bytes": b"\0\xff"}
    told["counted"] = collections.Counter([1, 1, 2])
    assert flat(words.unpack_state(words.pack_state(told), SENDER)) == flat(told)


def flat(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    if isinstance(value, dict):
        return {key: flat(one) for key, one in value.items()}
    return [flat(one) for one in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("exchange", ["gather_words", "gather_states", "broadcast_words", "broadcast_state"])
def test_a_worker_that_sends_a_pickle_ends_the_job_of_all_with_its_name(pair, tmp_path, exchange):
    for result in pair.run("sends_a_pickle", exchange=exchange, path=str(tmp_path / "ran")):
        assert "rank 1 on " in result["words"] and "cannot be read" in result["words"], result
        assert result["sound"] == ([["one", 1], ["one", 1]] if exchange.startswith("gather") else ["one", 1]), result
    assert not (tmp_path / "ran").exists()


def test_an_optimizer_that_remembers_more_than_data_is_an_error_that_says_what_to_do(pair):
    for result in pair.run("remembers_an_object"):
        assert "permitted in the state_dict() of optimizers" in result and "add_safe_globals" in result, result


def test_no_module_that_talks_to_other_workers_unpickles():
    """But for pool.py, which reads what processes of the same worker have made."""
    folder = pathlib.Path(isochron.__file__).parent
    found = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if "pickle" in path.read_text()}
    assert found - {"torch/words.py", "torch/batch_norm.py"} == {"torch/pool.py"}
    for path in folder.rglob("*.py"):
        for called in ("all_gather_object(", "broadcast_object_list(", "scatter_object_list(", "weights_only=False"):
            assert called not in path.read_text(), (path, called)
