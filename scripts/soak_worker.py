"""What every worker of `scripts/soak.py --frontend torch` runs: a small model, slowly, until it is asked to end."""

import sys
import time
from pathlib import Path

import torch
from torch import nn

import isochron.torch as isochron

SAVED = Path("job.pt")


def main():
    torch.manual_seed(1)
    dataset = torch.utils.data.TensorDataset(torch.randn(2048, 20), torch.randint(0, 5, (2048,)))
    model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    job = isochron.Job(global_batch=64, timeout=float(sys.argv[1]), log="run.jsonl", handle_signals=True)
    model, optimizer = job.prepare(model, optimizer)
    if SAVED.exists():
        job.restore(SAVED)
    for _ in job.epochs(1_000_000):
        for x, y in job.loader(dataset):
            job.backward(lambda x=x, y=y: nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.05)  # so that an hour of it costs little
            if job.step % 200 == 0:
                job.save(SAVED)
    job.save(SAVED)
    job.close()


main()
