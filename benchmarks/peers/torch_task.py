"""What PyTorch's peers train: a small network for what is counted, a CNN for what is timed."""

import duel
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset


class Numbered(Dataset):
    """Samples that say which one they are."""

    def __init__(self, x, y):
        self._x, self._y = x, y

    def __len__(self):
        return len(self._x)

    def __getitem__(self, index):
        return self._x[index], self._y[index], index


class Task:
    def __init__(self, run):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.run = run
        options = run.options
        x, y = (duel.pictures if options.task == "cnn" else duel.small_data)(options.samples, 1)
        kind = torch.float64 if options.double else torch.float32
        self.dataset = Numbered(torch.as_tensor(x).to(kind), torch.as_tensor(y))
        self.model = (cnn() if options.task == "cnn" else mlp()).to(kind)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=self.run.options.rate)

    def loss(self, model, x, y):
        self.run.compute(len(x))
        return functional.cross_entropy(model(x), y)

    def loader(self, wrap=DistributedSampler):
        """Equal batches, as the guides of PyTorch and of what builds on it have them; or the shares that are given."""
        run = self.run
        if run.shares:
            return DataLoader(Subset(self.dataset, run.my_samples()), batch_size=run.shares[run.rank])
        sampler = wrap(self.dataset, num_replicas=run.size, rank=run.rank, shuffle=True)
        return DataLoader(self.dataset, batch_size=run.batch // run.size, sampler=sampler, drop_last=True)

    def parameters(self, model=None):
        """To be called when a result is wanted."""
        return lambda: [_whole(one) for one in (model or self.model).parameters()]


def _whole(parameter):
    tensor = parameter.detach()
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).cpu().numpy()


def mlp():
    model = nn.Sequential(nn.Linear(duel.SAMPLE, duel.HIDDEN), nn.ReLU(), nn.Linear(duel.HIDDEN, duel.CLASSES))
    model = model.double()
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), duel.small_parameters(), strict=True):
            parameter.copy_(torch.from_numpy(value))
    return model


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def epochs(loader):
    """Batches without end, with the number of their pass."""
    number = 0
    while True:
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(number)
        for batch in loader:
            yield number, batch
        number += 1
