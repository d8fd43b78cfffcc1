"""Writes the TorchScript file that 03_torchscript.cc trains: torchscript_model.py MODEL.pt"""

import sys

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Conv2d(1, 8, 5, stride=3)
        self.norm = torch.nn.BatchNorm2d(8)
        self.classify = torch.nn.Linear(8 * 8 * 8, 10)

    def forward(self, x):
        return self.classify(torch.relu(self.norm(self.features(x))).flatten(1))


torch.jit.script(Net()).save(sys.argv[1])
