"""What the benchmarks train, by name: data, network, optimizer and loss."""

import contextlib

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset


class Task:
    """A small CNN, for emulated CPUs."""

    light = True  # a CPU computes a whole batch of it in a moment

    def dataset(self, count):
        return TensorDataset(torch.randn(count, 3, 32, 32), torch.randint(0, 10, (count,)))

    def network(self):
        return nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(2048, 10),
        )  # fmt: skip

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.01)

    def loss(self, model, batch, device):
        x, y = batch
        return functional.cross_entropy(model(x.to(device)), y.to(device))


class LeNet(Task):
    """The native engine's `cnn`, with its optimizer, on pictures of the size of its `synthetic`."""

    def dataset(self, count):
        return TensorDataset(torch.randn(count, 1, 28, 28), torch.randint(0, 10, (count,)))

    def network(self):
        return nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(True), nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(True), nn.MaxPool2d(2, ceil_mode=True),
            nn.Flatten(), nn.Linear(64 * 7 * 7, 256), nn.ReLU(True), nn.Linear(256, 10),
        )  # fmt: skip

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


class WideCnn(Task):
    """3 million parameters, 18 GFLOP a sample, one BatchNorm layer."""

    light = False

    def network(self):
        layers = [nn.Conv2d(3, 256, 3, padding=1), nn.BatchNorm2d(256), nn.ReLU()]
        for _ in range(5):
            layers += [nn.Conv2d(256, 256, 3, padding=1), nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


class Numbers(Dataset):
    """Samples that say which picture they are, for pictures that lie on the GPU already."""

    def __init__(self, count):
        self._count = count

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        return index


class ResNet50(Task):
    """torchvision's, 224 x 224 pictures, bf16. Pictures lie on the GPU, so that no worker waits for its data."""

    POOL = 256
    light = False

    def __init__(self):
        self._pictures = None

    def dataset(self, count):
        return Numbers(count)

    def network(self):
        from torchvision.models import resnet50

        return resnet50().to(memory_format=torch.channels_last)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)

    def loss(self, model, batch, device):
        if self._pictures is None:
            pictures = torch.randn(self.POOL, 3, 224, 224, device=device)
            self._pictures = pictures.to(memory_format=torch.channels_last)
        numbers = batch.to(device)
        with bf16(device):
            return functional.cross_entropy(model(self._pictures[numbers % self.POOL]), numbers % 1000)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norm_a(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_b(x))


class Transformer(nn.Module):
    def __init__(self, vocabulary, length, width, layers, heads):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.layers(self.tokens(tokens) + self.places(places))))


class Gpt2(Task):
    """GPT-2's size: 12 layers of 768, 98 million parameters with a vocabulary of 16384, 256 tokens, bf16, AdamW."""

    VOCABULARY, LENGTH = 16384, 256
    light = False

    def dataset(self, count):
        return TensorDataset(torch.randint(0, self.VOCABULARY, (count, self.LENGTH + 1)))

    def network(self):
        return Transformer(self.VOCABULARY, self.LENGTH, 768, 12, 12)

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def loss(self, model, batch, device):
        tokens = batch[0].to(device)
        with bf16(device):
            return functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def bf16(device):
    kind = torch.device(device).type
    return torch.autocast(kind, dtype=torch.bfloat16) if kind == "cuda" else contextlib.nullcontext()


TASKS = {"cnn": Task, "lenet": LeNet, "wide-cnn": WideCnn, "resnet50": ResNet50, "gpt2": Gpt2}
