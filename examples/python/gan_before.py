"""A small GAN on points of a circle, in the style of PyTorch's DCGAN example: two models, two optimizers, two passes."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from data import Circle

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--samples", type=int, default=12800)
parser.add_argument("--nz", type=int, default=4)
args = parser.parse_args()

torch.manual_seed(1)
dataset = Circle(args.samples)
dataloader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True)
netG = nn.Sequential(nn.Linear(args.nz, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
netD = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
optimizerG = torch.optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.999))
optimizerD = torch.optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.999))

for epoch in range(args.epochs):
    for real in dataloader:
        # Update D: maximise log(D(x)) + log(1 - D(G(z)))
        fake = netG(torch.randn(len(real), args.nz))
        errD = F.softplus(-netD(real)).mean() + F.softplus(netD(fake.detach())).mean()
        errD.backward()
        optimizerD.step()
        optimizerD.zero_grad()
        # Update G: maximise log(D(G(z)))
        errG = F.softplus(-netD(fake)).mean()
        errG.backward()
        optimizerG.step()
        optimizerG.zero_grad()
        optimizerD.zero_grad()
    with torch.no_grad():
        radius = netG(torch.randn(1000, args.nz)).norm(dim=1).mean()
    print(f"epoch {epoch} loss {errD.item():.4f} radius {radius:.2f}")
