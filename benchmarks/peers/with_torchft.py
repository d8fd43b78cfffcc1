"""torchft, as its train_ddp.py has it: every worker is a replica group of its own, a lighthouse counts them."""

from datetime import timedelta

import torch_task
from torch.distributed import TCPStore
from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo


def train(run):
    task = torch_task.Task(run)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    inner = task.optimizer(task.model.parameters())

    def load(state):
        task.model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=10)), load_state_dict=load,
        state_dict=lambda: {"model": task.model.state_dict(), "optimizer": inner.state_dict()},
        init_sync=False,  # all begin with the same parameters
        min_replica_size=run.size if run.shares else 1, replica_id=f"worker-{run.rank}", store_addr="127.0.0.1",
        store_port=store.port, rank=0, world_size=1, timeout=timedelta(seconds=10), hostname="127.0.0.1",
    )  # fmt: skip
    model, optimizer = DistributedDataParallel(manager, task.model), Optimizer(manager, inner)

    def sampler(dataset, num_replicas, rank, shuffle):
        return DistributedSampler(dataset, rank, num_replicas, group_rank=0, num_replicas=1, shuffle=shuffle)

    for epoch, (x, y, ids) in torch_task.epochs(task.loader(sampler)):
        before = manager.current_step()
        optimizer.zero_grad()
        loss = task.loss(model, x, y)
        loss.backward()
        optimizer.step()
        if manager.current_step() == before:
            continue  # not committed: these samples are passed over
        if run.done(ids, epoch, before, task.parameters()):
            break
    manager.shutdown(wait=False)
