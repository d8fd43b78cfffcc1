"""Lightning, as its "Lightning in 15 minutes" says, with the strategy ddp; steps are logged by a hook."""

import os

import lightning
import torch_task


class Module(lightning.LightningModule):
    def __init__(self, run, task):
        super().__init__()
        self.run, self.task, self.model = run, task, task.model

    def training_step(self, batch):
        x, y, _ = batch
        return self.task.loss(self.model, x, y)

    def configure_optimizers(self):
        return self.task.optimizer(self.parameters())

    def on_train_batch_end(self, outputs, batch, index):
        if self.run.done(batch[2], self.current_epoch, parameters=self.task.parameters()):
            self.trainer.should_stop = True


def train(run):
    os.environ.setdefault("TORCHELASTIC_RUN_ID", "duel")  # Lightning's sign that processes have been started for it
    os.environ.setdefault("GROUP_RANK", "0")
    task = torch_task.Task(run)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=run.size, strategy="ddp", max_epochs=-1, max_steps=run.steps, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=not run.shares,
    )  # fmt: skip
    trainer.fit(Module(run, task), task.loader())
