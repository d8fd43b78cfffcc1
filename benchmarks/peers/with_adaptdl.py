"""AdaptDL, as its guide to PyTorch says, without its scheduler, which is Kubernetes' or Ray's; B stays as it is."""

import os

import torch_task


def train(run):
    os.environ |= {"ADAPTDL_MASTER_ADDR": "127.0.0.1", "ADAPTDL_MASTER_PORT": str(run.options.port),
                   "ADAPTDL_REPLICA_RANK": str(run.rank), "ADAPTDL_NUM_REPLICAS": str(run.size),
                   "ADAPTDL_NUM_NODES": "1", "ADAPTDL_CHECKPOINT_PATH": str(run.folder)}  # fmt: skip
    import adaptdl.torch as adl

    task = torch_task.Task(run)
    adl.init_process_group("gloo")
    optimizer = task.optimizer(task.model.parameters())
    model = adl.AdaptiveDataParallel(task.model, optimizer)
    if run.shares:
        for epoch, (x, y, ids) in torch_task.epochs(task.loader()):
            step(run, task, model, optimizer, x, y)
            if run.done(ids, epoch, parameters=task.parameters()):
                return
    loader = adl.AdaptiveDataLoader(task.dataset, batch_size=run.batch, shuffle=True, drop_last=True)
    for epoch in adl.remaining_epochs_until(1000000):
        for x, y, ids in loader:
            step(run, task, model, optimizer, x, y)
            if run.done(ids, epoch, parameters=task.parameters()):
                return


def step(run, task, model, optimizer, x, y):
    optimizer.zero_grad()
    task.loss(model, x, y).backward()
    optimizer.step()
