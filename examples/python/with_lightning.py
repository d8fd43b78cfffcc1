"""A LightningModule on unequal workers: torchrun --nproc-per-node 2 with_lightning.py"""

import lightning
import torch
import torch.nn.functional as F
from torch import nn

import isochron.torch as isochron
from data import Bars
from isochron.torch.lightning import IsochronCallback


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch, index):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    job = isochron.Job(global_batch=64)
    trainer = lightning.Trainer(
        callbacks=[IsochronCallback(job)], use_distributed_sampler=False,  # what Isochron needs
        max_epochs=2, accelerator="cpu", devices=job.size, strategy="ddp" if job.size > 1 else "auto",
        logger=False, enable_checkpointing=False, enable_progress_bar=False,  # a quiet example that leaves no files
    )  # fmt: skip
    trainer.fit(Classifier(), job.loader(Bars(1280)))
    print(f"steps {job.step} complete {job.ledger.complete} batches {job.batch_sizes}")
