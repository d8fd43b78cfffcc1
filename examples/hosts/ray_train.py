"""One job over the machines of a Ray cluster: Ray Train starts a worker on each and makes their process group, which
the job joins. Start it on any machine of the cluster: python ray_train.py (docs/hosts.md)."""

import os

import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

import isochron.torch as isochron


def train() -> None:
    torch.manual_seed(1)
    dataset = torch.utils.data.TensorDataset(torch.randn(640, 8), torch.randn(640, 1))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = isochron.Job(global_batch=32)
    model, optimizer = job.prepare(model, optimizer)
    for x, y in job.loader(dataset):
        job.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
    host = os.uname().nodename
    print("rank", job.rank, "of", job.size, host, *job.batch_sizes, job.ledger.complete, flush=True)
    job.close()


if __name__ == "__main__":
    workers = ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD", resources_per_worker={"CPU": 1})
    # gloo also where all have GPUs: the job adds NCCL for them.
    TorchTrainer(train, scaling_config=workers, torch_config=TorchConfig(backend="gloo")).fit()
