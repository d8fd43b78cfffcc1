"""Small networks of the kinds that people train, and data for them."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset


class Images(Dataset):
    """Random pictures, the same in every process."""

    def __init__(self, size=600, side=8, dtype=torch.float64):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(size, 3, side, side, generator=generator, dtype=torch.float64).to(dtype)
        self.y = torch.randint(0, 10, (size,), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Text(Dataset):
    """Random tokens and those that follow them."""

    def __init__(self, size=600, length=12, vocabulary=20):
        generator = torch.Generator().manual_seed(2)
        self.tokens = torch.randint(0, vocabulary, (size, length + 1), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index, :-1], self.tokens[index, 1:]


class Cnn(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(),
            nn.Linear(256, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10),
        )  # fmt: skip


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.a = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm_a = nn.BatchNorm2d(after)
        self.b = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm_b = nn.BatchNorm2d(after)
        self.short = nn.Identity()
        if stride > 1 or before != after:
            self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = self.norm_b(self.b(functional.relu(self.norm_a(self.a(x)))))
        return functional.relu(y + self.short(x))


class ResNet18(nn.Sequential):
    """ResNet-18's layers, an eighth as wide."""

    def __init__(self, width=8):
        blocks = []
        before = width
        for stage, after in enumerate((width, 2 * width, 4 * width, 8 * width)):
            blocks += [Block(before, after, 1 if stage == 0 else 2), Block(after, after, 1)]
            before = after
        super().__init__(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), *blocks,
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10),
        )  # fmt: skip


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norm_a(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_b(x))


class Gpt2(nn.Module):
    """GPT-2 in a small configuration: tied embeddings, pre-norm blocks."""

    def __init__(self, vocabulary=20, length=12, width=16, layers=2, heads=2):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Attention(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Lstm(nn.Module):
    def __init__(self, vocabulary=20, width=16):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.lstm(self.tokens(tokens))[0])


MODELS = {"cnn": Cnn, "resnet18": ResNet18, "gpt2": Gpt2, "lstm": Lstm}


def make(name, dtype=torch.float64):
    torch.manual_seed(3)
    return MODELS[name]().to(dtype)


def data(name, dtype=torch.float64):
    return Text() if name in ("gpt2", "lstm") else Images(dtype=dtype)


def loss_of(output, target):
    return functional.cross_entropy(output.flatten(0, -2), target.flatten())
