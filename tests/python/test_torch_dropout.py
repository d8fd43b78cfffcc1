"""Dropout by sample: what is dropped depends on nothing else. That a job with it equals one process is in the matrix of
loops."""

import pickle

import pytest
import torch
from torch import nn

import isochron.torch as isochron
from isochron.torch.dropout import keep

CPU = torch.device("cpu")


@pytest.fixture
def job(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    job = isochron.Job(global_batch=8)
    yield job
    job.close()


def test_a_row_depends_on_its_position_alone():
    whole = keep(7, list(range(100)), 50, 0.3, CPU)
    assert torch.equal(keep(7, [99, 3], 50, 0.3, CPU), whole[[99, 3]])
    assert torch.equal(keep(7, [3], 20, 0.3, CPU)[0], whole[3, :20])  # a padded sentence may be longer elsewhere
    assert not torch.equal(keep(8, list(range(100)), 50, 0.3, CPU), whole)


def splitmix64(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_the_numbers_are_those_of_splitmix64():
    """By whole numbers without a sign: a tensor's have one, and their products wrap."""
    golden, key = 0x9E3779B97F4A7C15, 2**64 - 3
    for position in (0, 1, 2**40):
        row = splitmix64((position * golden + key) % 2**64)
        numbers = [splitmix64((row + place * golden) % 2**64) % 2**24 for place in range(1, 200)]
        expected = [number >= 0.25 * 2**24 for number in numbers]
        assert keep(key, [position], 199, 0.25, CPU)[0].tolist() == expected


def test_the_share_that_is_dropped_is_p():
    """A million draws: a standard deviation is 0.00046; rows, columns and neighbours are independent."""
    for p in (0.0, 0.1, 0.5, 1.0):
        kept = keep(5, list(range(1000)), 1000, p, CPU).double()
        assert kept.mean().item() == pytest.approx(1.0 - p, abs=0.002)
    kept = keep(5, list(range(1000)), 1000, 0.5, CPU).double()
    for other in (kept.roll(1, 0), kept.roll(1, 1)):
        assert torch.corrcoef(torch.stack([kept.flatten(), other.flatten()]))[0, 1].abs().item() < 0.004
    assert kept.mean(0).std().item() == pytest.approx(0.0158, rel=0.15)
    assert kept.mean(1).std().item() == pytest.approx(0.0158, rel=0.15)


def test_layers_differ_and_evaluation_drops_nothing(job):
    model = job.prepare(nn.Sequential(isochron.Dropout(0.5), isochron.Dropout(0.5)))
    for (x,) in job.loader([(torch.ones(64),)] * 8):
        once, twice = model[0](x), model[1](x)
        assert set(once.unique().tolist()) == {0.0, 2.0} and not torch.equal(once, twice)
        assert torch.equal(model[0](x), once)
        assert torch.equal(model.eval()(x), x)
        job.backward(torch.ones(1, requires_grad=True).sum())


def test_what_cannot_be_is_refused(job):
    with pytest.raises(ValueError, match="p is 1.5; permitted: 0 to 1"):
        isochron.Dropout(1.5)
    with pytest.raises(isochron.Error, match=r"no job has prepared; permitted: job.prepare\(model\)"):
        isochron.Dropout()(torch.ones(3))
    model = job.prepare(nn.Sequential(isochron.Dropout(), nn.Linear(4, 1)))
    assert pickle.loads(pickle.dumps(model))[0].p == 0.5
    for (x,) in job.loader([(torch.ones(4),)] * 8):
        with pytest.raises(isochron.Error, match="got 16 rows, which is not the number of samples; permitted"):
            model(torch.cat([x, x]))
        job.backward(model(x).mean())
