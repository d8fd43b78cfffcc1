"""Data for the examples that needs no download: bars, points of a circle, text with a pattern and sequences of unequal
length, easy to learn."""

import torch
from torch.utils.data import Dataset


class Bars(Dataset):
    """Grey pictures with a bright row or column; the class says which."""

    def __init__(self, size, side=28, channels=1, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.x = 0.3 * torch.randn(size, channels, side, side, generator=generator)
        self.y = torch.randint(0, 10, (size,), generator=generator)
        for picture, label in zip(self.x, self.y.tolist(), strict=True):
            line = (label % 5 * 2 + 1) * side // 10
            (picture[:, line] if label < 5 else picture[:, :, line]).add_(2.0)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], int(self.y[index])


class Circle(Dataset):
    """Points near the circle of radius 1."""

    def __init__(self, size):
        generator = torch.Generator().manual_seed(3)
        angle = 6.2832 * torch.rand(size, generator=generator)
        radius = 1.0 + 0.05 * torch.randn(size, generator=generator)
        self.points = torch.stack((radius * angle.cos(), radius * angle.sin()), 1)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        return self.points[index]


class Blocks(Dataset):
    """Pieces of a text, each with the same piece one character later, as nanoGPT trains on."""

    def __init__(self, size, block_size=32):
        text = "the quick brown fox jumps over the lazy dog. " * (size * block_size // 45 + 2)
        characters = sorted(set(text))
        self.vocab_size = len(characters)
        self.data = torch.tensor([characters.index(character) for character in text])
        self.size, self.block_size = size, block_size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        start = index * self.block_size
        piece = self.data[start : start + self.block_size + 1]
        return piece[:-1], piece[1:]


class Speeches(Dataset):
    """Sequences that count upwards from somewhere, some of them thirty times as long as others."""

    vocab_size = 28

    def __init__(self, size):
        generator = torch.Generator().manual_seed(4)
        lengths = torch.exp(3.0 + 0.8 * torch.randn(size, generator=generator)).round().clamp(4, 120)
        self.lengths = [int(length) for length in lengths]
        self.starts = torch.randint(0, self.vocab_size, (size,), generator=generator).tolist()

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return (self.starts[index] + torch.arange(self.lengths[index] + 1)) % self.vocab_size
