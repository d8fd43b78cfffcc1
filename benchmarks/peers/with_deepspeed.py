"""DeepSpeed's engine with ZeRO-1 on CPUs, over gloo."""

import os

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed  # noqa: E402
import torch_task  # noqa: E402


def train(run):
    task = torch_task.Task(run)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    config = {
        "train_batch_size": run.batch,
        "train_micro_batch_size_per_gpu": run.batch // run.size,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    }
    optimizer = task.optimizer(task.model.parameters())
    engine, *_ = deepspeed.initialize(model=task.model, optimizer=optimizer, config=config)
    for epoch, (x, y, ids) in torch_task.epochs(task.loader()):
        engine.backward(task.loss(engine, x, y))
        engine.step()
        if run.done(ids, epoch, parameters=task.parameters()):
            return
