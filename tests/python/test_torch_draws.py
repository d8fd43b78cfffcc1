"""A dataset that draws random numbers is noticed, whatever it draws them from."""

import random

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

SOURCES = {
    "random": random.random,
    "numpy": lambda: float(numpy.random.random()),
    "torch": lambda: torch.rand(()).item(),
}


@pytest.fixture(params=["MT19937", "PCG64"])
def numpy_generator(request):
    before = numpy.random.get_bit_generator()
    numpy.random.set_bit_generator(getattr(numpy.random, request.param)(3))
    yield
    numpy.random.set_bit_generator(before)


@pytest.mark.parametrize("name", SOURCES)
def test_draws_are_noticed_and_undone(name, numpy_generator):
    from isochron.torch.pool import Draws

    watched = Draws()
    assert not watched.happened()
    drawn = SOURCES[name]()
    assert watched.happened()
    SOURCES[name]()
    watched.undo()
    assert not watched.happened()
    assert SOURCES[name]() == drawn


@pytest.mark.parametrize("name", SOURCES)
def test_samples_depend_on_seed_epoch_and_sample_alone(name):
    """From the first fetch on, in which it is not known yet that the dataset draws."""
    from isochron.torch.pool import Fetcher

    class Noisy:
        def __getitem__(self, index):
            return torch.tensor([index, SOURCES[name]()], dtype=torch.float64)

    first = Fetcher(Noisy(), None, seed=5).fetch(2, [7, 8, 9], restore=True)
    SOURCES[name]()
    fetcher = Fetcher(Noisy(), None, seed=5)
    before = SOURCES[name]()
    again = torch.cat((fetcher.fetch(2, [7], restore=True), fetcher.fetch(2, [8, 9], restore=True)))
    assert torch.equal(first, again)
    assert not torch.equal(first, Fetcher(Noisy(), None, seed=5).fetch(3, [7, 8, 9], restore=True))
    assert SOURCES[name]() != before
