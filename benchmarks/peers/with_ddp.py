"""PyTorch's DDP and FSDP2 (fully_shard), as its tutorials say; with a snapshot under torchrun's restarts."""

import os

import torch
import torch.distributed
import torch_task
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def train(run):
    task = torch_task.Task(run)
    torch.distributed.init_process_group("gloo")
    if run.options.peer == "fsdp2":
        model = task.model
        for layer in model:
            if any(True for _ in layer.parameters()):
                fully_shard(layer)
        fully_shard(model)
    else:
        model = DistributedDataParallel(task.model)
    optimizer = task.optimizer(model.parameters())
    snapshot, first = run.folder / "snapshot.pt", 0
    if "TORCHELASTIC_RUN_ID" in os.environ and snapshot.exists():
        state = torch.load(snapshot)
        task.model.load_state_dict(state["model"])
        first = state["step"]
    loader = task.loader()
    per_epoch = len(loader)
    for step, (epoch, (x, y, ids)) in enumerate(torch_task.epochs(loader)):
        if step < first:
            continue  # read already, before the restart
        weight = run.shares[run.rank] * run.size / run.batch if run.options.by_hand else 1.0
        (task.loss(model, x, y) * weight).backward()
        optimizer.step()
        optimizer.zero_grad()
        if run.done(ids, epoch, step, task.parameters()):
            return
        if run.options.restarts and run.rank == 0 and (step + 1) % 50 == 0:
            torch.save({"model": task.model.state_dict(), "step": step + 1, "epoch": step // per_epoch}, snapshot)
