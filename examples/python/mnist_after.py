"""A small network on pictures of digits, in the style of PyTorch's MNIST example."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR

import isochron.torch as isochron
from data import Bars


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 2)
        self.conv2 = nn.Conv2d(8, 16, 3, 2)
        self.dropout = nn.Dropout(0.25)
        self.fc = nn.Linear(576, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return F.log_softmax(self.fc(self.dropout(torch.flatten(x, 1))), dim=1)


def test(model, device, test_loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            output = model(data.to(device))
            correct += (output.argmax(1) == target.to(device)).sum().item()
    return correct / len(test_loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=6000)
    args = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    dataset1, dataset2 = Bars(args.samples), Bars(500, seed=1)
    job = isochron.Job(global_batch=args.batch_size)
    train_loader = job.loader(dataset1)
    test_loader = torch.utils.data.DataLoader(dataset2, batch_size=500)

    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    model, optimizer = job.prepare(model, optimizer)
    for epoch in range(args.epochs):
        model.train()
        for data, target in train_loader:
            optimizer.zero_grad()
            output = model(data.to(device))
            loss = F.nll_loss(output, target.to(device))
            job.backward(loss)
            optimizer.step()
        scheduler.step()
        print(f"epoch {epoch} loss {loss.item():.4f} accuracy {test(model, device, test_loader):.3f}")


if __name__ == "__main__":
    main()
