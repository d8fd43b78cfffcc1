"""BatchNorm over the global batch, with workers as threads of one process."""

from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


def make_model(layout):
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4, affine=False),
        nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 2),
    )  # fmt: skip
    return model.double().to(memory_format=layout)


def gradients_by_shares(sizes, x, y, layout):
    """The sum of the workers' gradients, and their running statistics; one without samples has a stand-in of two."""
    from torch_cases import Threads

    from isochron.torch.batch_norm import Statistics, make_exact

    threads = Threads(len(sizes))
    copies = [make_model(layout) for _ in sizes]
    for copy, size in zip(copies, sizes, strict=True):
        statistics = Statistics(threads)
        statistics.counts = size > 0
        make_exact(copy, statistics)

    def compute(rank):
        threads.mine.rank = rank
        first = sum(sizes[:rank])
        mine = slice(first, first + sizes[rank]) if sizes[rank] else slice(0, 2)
        loss = functional.cross_entropy(copies[rank](x[mine]), y[mine]) * (sizes[rank] / len(x))
        return torch.autograd.grad(loss, list(copies[rank].parameters()))

    with ThreadPoolExecutor(len(sizes)) as pool:
        parts = list(pool.map(compute, range(len(sizes))))
    return [sum(part) for part in zip(*parts, strict=True)], [list(copy.buffers()) for copy in copies]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "operations"])  # the latter: GPUs and other types
@pytest.mark.parametrize("sizes", [(4, 2), (6, 0), (0, 5, 1)], ids=str)
def test_gradients_are_those_of_one_batch_whoever_has_no_samples(sizes, kernels, layout, monkeypatch):
    if not kernels:
        monkeypatch.setattr("isochron.torch.batch_norm._has_kernels", lambda x: False)
    x = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0)).double().to(memory_format=layout)
    y = torch.tensor([0, 1, 1, 0, 1, 0])
    reference = make_model(layout)
    functional.cross_entropy(reference(x), y).backward()
    expected = [parameter.grad for parameter in reference.parameters()]
    gradients, buffers = gradients_by_shares(sizes, x, y, layout)
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    for mine in buffers:
        for one, other in zip(mine, reference.buffers(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
