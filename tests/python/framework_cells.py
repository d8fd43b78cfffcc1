"""Cells of the matrix of loops with Lightning and Accelerate."""

import functools

import pytest
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.utils.data import DataLoader

from loop_cells import BATCH, SIZE, STEPS, Checkpointed, Points, PointStream, cell, error, sgd, small_model
from torch_feature_cases import QUIET, torchrun_variables

LENGTHS = {"lengths": lambda index: 1 + index % 7}  # as if samples were sequences


def lightning_run(run, module, dataset=None, batch=BATCH, loader=None, validation=None, **options):
    import lightning

    from isochron.torch.lightning import IsochronCallback

    job = run.job(global_batch=batch)
    with torchrun_variables():  # without them it would start this program again, as another rank
        trainer = lightning.Trainer(
            max_epochs=options.pop("max_epochs", 1), devices=max(job.size, 1),
            strategy="ddp" if job.size > 1 else "auto", callbacks=[IsochronCallback(job)], **QUIET, **options,
        )  # fmt: skip
        trainer.fit(module, job.loader(Points() if dataset is None else dataset, **(loader or {})), validation)
    run.modules.append(module.net)
    return trainer


def compiled(module):
    """By TorchDynamo and AOTAutograd; what generates code would change neither gradients nor hooks."""
    return torch.compile(module, backend="aot_eager")


def checkpointed(module):
    return Checkpointed(module, reentrant=False)


def lightning_module(run, step=None, optimizers=1, manual=False, wrap=None):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = small_model()
            self.other = small_model() if optimizers == 2 else None
            self.automatic_optimization = not manual
            inner = [self.net] if self.other is None else [self.net, self.other]
            self.used = [one if wrap is None else wrap(one) for one in inner]  # in a list: no second names

        def training_step(self, batch, index):
            number, x, y = batch
            run.compute(number, self.current_epoch)
            if step is not None:
                return step(self, x, y)
            return error(self.used[0], x, y)

        def configure_optimizers(self):
            if optimizers == 2:
                return [sgd(self.net), sgd(self.other)]
            return sgd(self.net)

    return Module()


@cell("lightning", "one backward", "automatic")
def lightning_plain(run):
    lightning_run(run, lightning_module(run))


@cell("lightning", "one backward", "lengths")
def lightning_by_cost(run):
    lightning_run(run, lightning_module(run), loader=LENGTHS)


@cell("lightning", "accumulate", "accumulate_grad_batches")
def lightning_accumulated(run):
    lightning_run(run, lightning_module(run), batch=BATCH // 2, accumulate_grad_batches=2)


@cell("lightning", "one backward", "clipping")
def lightning_clipped(run):
    lightning_run(run, lightning_module(run), gradient_clip_val=0.1)


@cell("lightning", "one backward", "log with sync_dist")
def lightning_logged(run):
    """Means of steps and of the epoch, whose last step has one sample, are over samples; a sum stays one over samples,
    whoever stands in for none."""
    seen = []

    def step(module, x, y):
        loss = error(module.net, x, y)
        module.log("loss", loss.detach(), on_step=False, on_epoch=True, sync_dist=True)
        module.log("both", loss.detach(), on_step=True, on_epoch=True, sync_dist=True, batch_size=len(x))
        module.log("samples", float(len(x)), on_step=False, on_epoch=True, reduce_fx="sum", sync_dist=True)
        seen.append((run.jobs[0].share_counts[run.jobs[0].rank], loss.item()))
        return loss

    def end_epoch():
        mean = sum(count * loss for count, loss in seen) / sum(count for count, _ in seen)
        module.log("epoch", torch.tensor(mean, dtype=torch.float64), sync_dist=True)

    module = lightning_module(run, step)
    module.on_train_epoch_end = end_epoch
    found = lightning_run(run, module, Points(SIZE + 1)).callback_metrics
    assert found["samples"] == SIZE + 1
    for name in ("loss", "both_epoch"):
        assert float(found[name]) == pytest.approx(float(found["epoch"]), rel=1e-12)
    run.losses += [float(found[name]) for name in ("loss", "epoch", "both_step")]


@cell("lightning", "one backward", "log of every step")
def lightning_logged_steps(run):
    """Which exchanges the value before the backward pass."""

    def step(module, x, y):
        loss = error(module.net, x, y)
        module.log("loss", loss.detach(), on_step=True, sync_dist=True)
        return loss

    lightning_run(run, lightning_module(run, step))


@cell("lightning", "one backward", "validation with sync_dist")
def lightning_validated(run):
    """In the middle of the epoch, with as many samples on every worker: its means are over workers."""
    found = []

    def validate(x, y):
        module.log("far", error(module.net, x, y), sync_dist=True)

    module = lightning_module(run)
    module.validation_step = lambda batch, batch_idx: validate(*batch[1:])
    module.on_validation_epoch_end = lambda: found.append(module.trainer.callback_metrics["far"].item())
    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    mine = DataLoader(Points(BATCH), batch_size=10, sampler=range(rank, BATCH, size))
    trainer = lightning_run(run, module, validation=mine, val_check_interval=4, num_sanity_val_steps=0)
    run.losses += [*found, float(trainer.callback_metrics["far"])]
    assert len(run.losses) == STEPS + STEPS // 4 + 1


@cell("lightning", "stream", "limit_train_batches")
def lightning_stream(run):
    stream = PointStream(SIZE // 2 + 7)
    lightning_run(run, lightning_module(run), stream, limit_train_batches=STEPS // 2 + 1, max_epochs=2)
    assert run.jobs[0].ledger.complete and run.jobs[0].epoch == 2


@cell("lightning", "stream", "accumulate_grad_batches")
def lightning_stream_accumulated(run):
    """Without a limit Lightning would take batches ahead."""
    options = {"batch": BATCH // 2, "accumulate_grad_batches": 2}
    with pytest.raises(ValueError, match="limit_train_batches of the Trainer is 1.0 with a stream, of which it"):
        lightning_run(run, lightning_module(run), PointStream(), **options)
    run.jobs.pop().close()
    lightning_run(run, lightning_module(run), PointStream(), limit_train_batches=2 * STEPS, **options)


@cell("lightning", "accumulate", "torch.compile")
def lightning_accumulated_compiled(run):
    lightning_run(run, lightning_module(run, wrap=compiled), batch=BATCH // 2, accumulate_grad_batches=2)


@cell("lightning", "accumulate", "activation checkpointing")
def lightning_accumulated_checkpointed(run):
    lightning_run(run, lightning_module(run, wrap=checkpointed), batch=BATCH // 2, accumulate_grad_batches=2)


@cell("lightning", "one backward", "torch.compile")
def lightning_compiled(run):
    lightning_run(run, lightning_module(run, wrap=compiled))


@cell("lightning", "one backward", "activation checkpointing")
def lightning_checkpointed(run):
    lightning_run(run, lightning_module(run, wrap=checkpointed))


def manual_step(run):
    def step(module, x, y):
        optimizer = module.optimizers()
        module.manual_backward(error(module.used[0], x, y))
        run.sleep(len(x) / 2)
        module.manual_backward(module.used[0](x).square().mean() * 0.1)
        optimizer.step()
        optimizer.zero_grad()

    return step


@cell("lightning", "two losses", "manual optimization")
def lightning_manual(run):
    lightning_run(run, lightning_module(run, manual_step(run), manual=True))


@cell("lightning", "two losses", "manual optimization of a root")
def lightning_root(run):
    """A root needs its own value for its backward pass; a graph that is kept goes through the first loss again."""

    def step(module, x, y):
        optimizer = module.optimizers()
        loss = error(module.net, x, y).square().sqrt()
        before = loss.item()
        module.manual_backward(loss, retain_graph=True)
        assert loss.item() == before
        module.manual_backward(0.1 * loss)
        optimizer.step()
        optimizer.zero_grad()

    lightning_run(run, lightning_module(run, step, manual=True))


def scaling_plugins():
    """As precision="16-mixed" makes them on a GPU; doubles stay doubles."""
    from lightning.pytorch.plugins import MixedPrecision

    return [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))]


@cell("lightning", "accumulate", "GradScaler")
def lightning_scaled(run):
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.1, "plugins": scaling_plugins()}
    lightning_run(run, lightning_module(run), batch=BATCH // 2, **options)
    assert all(loss < 10.0 for loss in run.losses)


@cell("lightning", "two losses", "manual optimization and GradScaler")
def lightning_manual_scaled(run):
    lightning_run(run, lightning_module(run, manual_step(run), manual=True), plugins=scaling_plugins())
    assert all(loss < 10.0 for loss in run.losses)


@cell("lightning", "two losses", "torch.compile")
def lightning_manual_compiled(run):
    lightning_run(run, lightning_module(run, manual_step(run), manual=True, wrap=compiled))


@cell("lightning", "two losses", "activation checkpointing")
def lightning_manual_checkpointed(run):
    lightning_run(run, lightning_module(run, manual_step(run), manual=True, wrap=checkpointed))


@cell("lightning", "GAN", "two optimizers")
def lightning_gan(run, wrap=None):
    def step(module, x, y):
        of_net, of_other = module.optimizers()
        net, other = module.used
        module.manual_backward(error(net, x, y) + 0.0 * other(x).sum())
        of_net.step()
        of_net.zero_grad()
        of_other.zero_grad()
        module.manual_backward(functional.mse_loss(other(x), net(x).detach()) + 0.0 * net(x).sum())
        of_other.step()
        of_other.zero_grad()
        of_net.zero_grad()

    module = lightning_module(run, step, optimizers=2, manual=True, wrap=wrap)
    lightning_run(run, module)
    run.modules.append(module.other)


@cell("lightning", "GAN", "two optimizers, torch.compile")
def lightning_gan_compiled(run):
    lightning_gan(run, compiled)


@cell("lightning", "GAN", "two optimizers, activation checkpointing")
def lightning_gan_checkpointed(run):
    lightning_gan(run, checkpointed)


def accelerate_run(run, accumulate=1, batch=BATCH, gather=False, twice=False, checkpoint=False, loader=None, wrap=None,
                   gather_loss=False, clip=False, dataset=None, **options):  # fmt: skip
    from accelerate import Accelerator

    job = run.job(global_batch=batch)
    with torchrun_variables():
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate, **options)
    model = run.model() if wrap is None else wrap(run.model())
    model, optimizer = accelerator.prepare(model, sgd(model))
    job.prepare(model)
    for number, x, y in job.loader(Points() if dataset is None else dataset, **(loader or {})):
        run.compute(number)
        with accelerator.accumulate(model):
            loss = error(model, x, y)
            if gather_loss:
                assert len(accelerator.gather(loss.detach().reshape(1))) == job.size
            accelerator.backward(loss * job.weight)
            if twice:
                run.sleep(len(number) / 2)
                accelerator.backward(model(x).square().mean() * 0.1 * job.weight)
            if clip and accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
        if gather:  # of shares that differ, as objects
            everybodys = accelerator.gather_for_metrics(number.tolist(), use_gather_object=True)
            assert len(set(everybodys)) == len(everybodys) == batch
        if checkpoint and job.step == 3:
            accelerator.save_state(f"{run.folder}/state")
            accelerator.wait_for_everyone()  # the first rank writes the model
            accelerator.load_state(f"{run.folder}/state")
    if gather:  # evaluation with a loader of Accelerate's own
        points = accelerator.prepare_data_loader(DataLoader(Points(45), batch_size=8))
        found = [one for number, *_ in points for one in accelerator.gather_for_metrics(number).tolist()]
        assert sorted(found) == list(range(45))


@cell("accelerate", "one backward", "job.weight")
def accelerate_plain(run):
    accelerate_run(run)


@cell("accelerate", "one backward", "lengths")
def accelerate_by_cost(run):
    accelerate_run(run, loader=LENGTHS)


@cell("accelerate", "two losses", "job.weight")
def accelerate_twice(run):
    accelerate_run(run, twice=True)


@cell("accelerate", "accumulate", "gradient_accumulation_steps")
def accelerate_accumulated(run):
    accelerate_run(run, accumulate=2, batch=BATCH // 2)


@cell("accelerate", "one backward", "gather_for_metrics")
def accelerate_gathered(run):
    accelerate_run(run, gather=True)


@cell("accelerate", "one backward", "gather before backward")
def accelerate_gathered_losses(run):
    accelerate_run(run, gather_loss=True)


@cell("accelerate", "one backward", "its own checkpoints")
def accelerate_saved(run):
    accelerate_run(run, checkpoint=True)


@cell("accelerate", "one backward", "torch.compile")
def accelerate_compiled(run):
    accelerate_run(run, dynamo_backend="aot_eager")


for feature, options in (("gather_for_metrics", {"gather": True}), ("its own checkpoints", {"checkpoint": True})):
    for way, more in (("torch.compile", {"dynamo_backend": "aot_eager"}),
                      ("activation checkpointing", {"wrap": checkpointed})):  # fmt: skip
        cell("accelerate", "one backward", f"{feature}, {way}")(functools.partial(accelerate_run, **options, **more))


@cell("accelerate", "one backward", "activation checkpointing")
def accelerate_checkpointed(run):
    accelerate_run(run, wrap=checkpointed)


@cell("accelerate", "one backward", "clipping")
def accelerate_clipped(run):
    accelerate_run(run, clip=True)


@cell("accelerate", "accumulate", "clipping")
def accelerate_accumulated_clipped(run):
    accelerate_run(run, accumulate=2, batch=BATCH // 2, clip=True)


@cell("accelerate", "accumulate", "torch.compile")
def accelerate_accumulated_compiled(run):
    accelerate_run(run, accumulate=2, batch=BATCH // 2, dynamo_backend="aot_eager")


@cell("accelerate", "accumulate", "activation checkpointing")
def accelerate_accumulated_checkpointed(run):
    accelerate_run(run, accumulate=2, batch=BATCH // 2, wrap=checkpointed)


@cell("accelerate", "stream", "job.weight")
def accelerate_stream(run):
    accelerate_run(run, dataset=PointStream(SIZE + 7))


@cell("accelerate", "stream", "gradient_accumulation_steps")
def accelerate_stream_accumulated(run):
    accelerate_run(run, dataset=PointStream(), accumulate=2, batch=BATCH // 2)


@cell("accelerate", "two losses", "torch.compile")
def accelerate_twice_compiled(run):
    accelerate_run(run, twice=True, dynamo_backend="aot_eager")


@cell("accelerate", "two losses", "activation checkpointing")
def accelerate_twice_checkpointed(run):
    accelerate_run(run, twice=True, wrap=checkpointed)
