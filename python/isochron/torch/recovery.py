"""What happens when a step fails: a worker that died or kept the others waiting, or memory that ran out.

  a) Whoever notices gives up its groups, so that all others fail too. A step that the optimizer has not taken is
     undone: gradients are dropped, running statistics are as before it.
  b) Those that are left meet (peers.py) and make new groups.
  c) Who is behind gets models, optimizers and job from the first of those who are furthest. If nobody knows the reports
     of the last step, it counts without them. Who is lost during b) or c) has them done again without it, by all.
  d) Each, by itself, takes the lost ones from the roster, lowers the ceiling of those who ran out of memory, skips the
     samples at which the dataset failed, and deals B anew.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from isochron.errors import Error, PeerError, PeerLostError, SampleError, TimeoutError
from isochron.torch import state
from isochron.torch.memory import release_cached_memory
from isochron.torch.peers import Peer
from isochron.torch.report import Report, make_record

if TYPE_CHECKING:
    from isochron.torch.job import Job

log = logging.getLogger("isochron")

MOST_ATTEMPTS = 5  # at a step that fails again and again though nobody is lost


def recover(job: Job, error: BaseException) -> None:
    """Collective among those that are left. Raises PeerError naming the lost if the job cannot go on without them."""
    from isochron.torch.job import Phase

    world = job._world
    suspects: tuple[int, ...] = ()
    if job._failed_batch == 0 and job._bad_sample is None:
        named = world.name_failure(f"step {job.step}", error)
        if not world.elastic or not job._models.can_be_rebuilt or job._attempts >= MOST_ATTEMPTS:
            raise named from error
        log.warning("%s", named)
        suspects = named.ranks if isinstance(named, TimeoutError) else ()
    if job._phase is not Phase.COMPUTED or not job._synchronises:
        _undo(job)
        job._phase = Phase.BETWEEN
    job._rate.restore()
    job._exchange = None
    _forget_frames(error)
    while True:
        job._models.let_go()
        world.give_up()
        if job._failed_batch:
            release_cached_memory()
        standings, lost, late = world.meet(lambda: _standing(job), lambda stood: _catch_up(job, stood), suspects)
        job._phase = Phase.BETWEEN
        failed = {rank: standing["failed"] for rank, standing in standings.items() if standing["failed"]}
        bad = [SampleError(**standing["bad"]) for standing in standings.values() if standing["bad"]]
        job._failed_batch, job._bad_sample = 0, None
        job._attempts = 0 if lost or failed or bad else job._attempts + 1
        _deal_anew(job, lost, late, failed)
        if bad and job.options.on_bad_sample == "stop":
            raise bad[0]
        _skip_samples(job, bad)
        try:
            world._guard("rebuilding the model", job._models.take_up)
        except PeerError as another:
            if job._attempts >= MOST_ATTEMPTS:
                raise
            log.warning("%s", another)
            continue
        world.take_waits()
        return


def _standing(job: Job) -> dict[str, Any]:
    bad = job._bad_sample
    told = {"words": str(bad), "sample": bad.sample, "place": bad.place} if bad is not None else None
    return {"progress": _progress(job), "failed": job._failed_batch, "bad": told}


def _progress(job: Job) -> int:
    from isochron.torch.job import Phase

    return 2 * job.step + int(job._phase is Phase.COMPUTED)


def give_up_sample(job: Job, error: SampleError) -> None:
    """It would fail wherever it is dealt to: so all hear of it before anybody goes on."""
    if job._world.size == 1 and job.options.on_bad_sample == "skip":
        _skip_samples(job, [error])
    elif job._world.size > 1 and job._world.elastic and job._models.can_be_rebuilt:
        job._bad_sample = error
        recover(job, error)
    else:
        raise error


def _skip_samples(job: Job, bad: list[SampleError]) -> None:
    """The same on all workers. The samples count as used, and the mean is over the others."""
    if bad and job._group.begun:
        _undo(job)
    for error in bad:
        epoch, position = error.place
        job._source.skip(epoch, position)  # type: ignore[union-attr]
        words = f"position {position} of epoch {epoch}: {str(error).splitlines()[0]}"
        job._tell("skipped", job._controller.workers[0].id, words)


def _forget_frames(error: BaseException | None) -> None:
    """They hold exchanges under way, and with them the group, and the tensors that were too much for the memory."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _undo(job: Job) -> None:
    """The step under way, and those before it whose gradients are still accumulating: the lost ones' part of them is
    lost, too."""
    job._models.undo()
    if job._group.beginning and job._group.begun:
        state.go_back(job, job._group.beginning)
        job._tell("rollback", 0, "to the first of the batches that were being accumulated")
    job._group.end()


def _catch_up(job: Job, standings: dict[int, Any]) -> None:
    """May be done again, from wherever it was left."""
    from isochron.torch.job import Phase

    progress = {rank: standing["progress"] for rank, standing in standings.items()}
    mine, furthest = _progress(job), max(progress.values())
    if job._phase is Phase.COMPUTED and mine == furthest:
        _finish_unreported(job)
        job._phase = Phase.BETWEEN
    if min(progress.values()) == furthest:
        return
    ranks = [peer.rank for peer in job._world.members]
    source = next(k for k, rank in enumerate(ranks) if progress[rank] == furthest)
    packed, record = job._world.broadcast((state.pack(job), job._record) if job.rank == source else None, source)
    if mine < furthest:
        state.unpack(job, packed)
        # The workers are still those of before, in the same order.
        state.go_back(job, packed["job"])
        job._record = record
        job._trace.step(record)
        job._phase = Phase.BETWEEN


def _finish_unreported(job: Job) -> None:
    """The optimizer has taken the step, so it counts, though what was measured is lost."""
    share, workers = job._share, job._controller.workers
    assert share is not None
    reports = [Report(batch=last - first, start=job._now()) for first, last in share.slices]
    place = share.epoch, share.position
    job._record = make_record(reports, workers, job._decision, place, job._finished, job._now())
    job._note_samples()
    nothing = [0.0] * len(workers)
    job._controller.observe(job.step, [worker.id for worker in workers], [0] * len(workers), nothing, nothing, nothing)
    job._decision = job._controller.decision
    job._trace.step(job._record)


def _deal_anew(job: Job, lost: list[Peer], late: list[Peer], failed: dict[int, int]) -> None:
    everybody = sorted([*job._world.members, *lost], key=lambda peer: peer.rank)
    before = {peer.rank: worker for peer, worker in zip(everybody, job._members, strict=True)}
    job._members = [before[peer.rank] for peer in job._world.members]
    if job._source is not None:
        job._open_trace(go_on=True)  # the first worker may be another one now
    for peer in lost:
        job._tell("evicted" if peer in late else "death", before[peer.rank].id, str(peer))
        job._ceilings.forget(before[peer.rank].id)
    for rank, batch in failed.items():
        job._tell("out-of-memory", before[rank].id, f"with {batch} samples")
        job._ceilings.failed(before[rank].id, batch, job.step)
    if not lost and not failed:
        return
    try:
        try:
            job._change_workers(job._with_ceilings())
        except ValueError:
            if not job._ceilings.give_up(job.step):
                raise
            job._change_workers(job._with_ceilings())
    except ValueError as error:
        kind: Any = PeerLostError if lost else Error
        raise kind(f"step {job.step}: the workers that are left cannot take the global batch ({error})") from error
