"""A training script for the tests of launchers: one rank kills itself once; whoever is started again goes on."""

import argparse
import os
import pathlib
import signal

import torch

import isochron.torch as isochron
import torch_cases
import torch_models as models

STEPS = 12
parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--victim", type=int, default=1)
options = parser.parse_args()
saved = options.folder / "job.pt"

torch.set_num_threads(1)
model = models.make("cnn")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
dataset = models.Images(size=24 * STEPS)
log, weight = options.folder / "run.jsonl", 1.0 + int(os.environ["RANK"])
with isochron.Job(global_batch=24, policy="static", weight=weight, reseed=False, log=log) as job:
    model, optimizer = job.prepare(model, optimizer)
    if saved.exists():
        job.restore(saved)
    first = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == 0
    for x, y in job.loader(dataset):
        if first and job.step == 5 and int(os.environ["RANK"]) == options.victim:
            os.kill(os.getpid(), signal.SIGKILL)
        job.backward(models.loss_of(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
        if job.step == 2 and first:
            job.save(saved)
    assert job.ledger.complete
    if job.is_first:
        alone = torch_cases.train_alone("cnn", STEPS, 24, torch.float64, dataset=dataset)
        far = (torch_cases.flat(model) - alone).abs().max().item()
        print(f"workers {job.size} far {far:.3g}", flush=True)
