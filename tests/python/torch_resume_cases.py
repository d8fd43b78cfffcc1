"""What the processes of test_torch_resume.py do: half of a run with a framework's own checkpoint, and the rest with a
new job, a new model and a new trainer or accelerator."""

import isochron.torch as isochron
from loop_cells import BATCH, STEPS, Points, error, sgd, small_model
from torch_feature_cases import QUIET, torchrun_variables


class Part:
    """One part of a run: a job, and what it used."""

    def __init__(self, folder):
        self.job = isochron.Job(global_batch=BATCH, log=f"{folder}/run.jsonl")
        self.seen = []

    def use(self, number):
        if not self.job._share.stand_in:
            self.seen += number.tolist()

    def result(self, model):
        self.job.finish_step()
        weights = [value for one in model.parameters() for value in one.flatten().tolist()]
        told = {"seen": self.seen, "weights": weights, "step": self.job.step, "complete": self.job.ledger.complete}
        self.job.close()
        return told


def with_accelerate(folder, half):
    """The job is one of the objects that Accelerate saves; the model and the optimizer are Accelerate's."""
    from accelerate import Accelerator

    parts = []
    for resume in (False, True) if half else (False,):
        part = Part(folder)
        with torchrun_variables():
            accelerator = Accelerator(cpu=True)
        model = small_model()
        model, optimizer = accelerator.prepare(model, sgd(model))
        part.job.prepare(model)
        loader = part.job.loader(Points())
        accelerator.register_for_checkpointing(part.job)
        if resume:
            accelerator.load_state(f"{folder}/state")
        for number, x, y in loader:
            part.use(number)
            accelerator.backward(error(model, x, y) * part.job.weight)
            optimizer.step()
            optimizer.zero_grad()
            if half and not resume and part.job.step == STEPS // 2 - 1:  # the step under way is the sixth
                accelerator.save_state(f"{folder}/state")
                accelerator.wait_for_everyone()
                break
        parts.append(part.result(model))
    return parts


def with_lightning(folder, half):
    """The callback hands the job's state to the trainer's checkpoints."""
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    from isochron.torch.lightning import IsochronCallback

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = small_model()

        def training_step(self, batch, index):
            number, x, y = batch
            part.use(number)
            return error(self.net, x, y)

        def configure_optimizers(self):
            return sgd(self.net)

    parts = []
    for resume in (False, True) if half else (False,):
        part = Part(folder)
        module = Module()
        saver = ModelCheckpoint(f"{folder}/saved", "half", every_n_train_steps=STEPS // 2)
        first = half and not resume
        quiet = {**QUIET, "enable_checkpointing": first}
        with torchrun_variables():  # without them it would start this program again, as another rank
            trainer = lightning.Trainer(
                max_epochs=1, max_steps=STEPS // 2 if first else -1, devices=max(part.job.size, 1),
                strategy="ddp" if part.job.size > 1 else "auto",
                callbacks=[IsochronCallback(part.job), *([saver] if first else [])], **quiet,
            )  # fmt: skip
            trainer.fit(module, part.job.loader(Points()), ckpt_path=f"{folder}/saved/half.ckpt" if resume else None)
        assert trainer.global_step == (STEPS // 2 if first else STEPS)
        parts.append(part.result(module.net))
    return parts
