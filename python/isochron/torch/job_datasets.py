"""How a job goes from one of its datasets to another, and what of them is part of its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isochron import _core
from isochron.errors import Error, PeerError
from isochron.other_data import refusal
from isochron.torch import state
from isochron.torch.datasets import Beside, Data, Source, check_lengths, make_source, replica_size
from isochron.torch.shards import ShardSource
from isochron.torch.source import LoaderOptions, MapSource, Share
from isochron.torch.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from isochron.torch.options import JobOptions
    from isochron.torch.parallel import Models
    from isochron.torch.recovery import Recovery
    from isochron.torch.world import World


class Datasets:
    """What Steps is, as far as data is concerned."""

    if TYPE_CHECKING:
        options: JobOptions
        _world: World
        _replica: _core.Replica
        _trace: Trace
        _share: Share | None
        _computed: bool
        _awaits_gradients: Any
        epoch: Any
        step: Any
        finish_step: Callable[[], None]
        _open_trace: Callable[[bool], None]
        _hand_out: Callable[[Any, LoaderOptions], Any]
        _tell: Callable[[list[Any]], None]
        _models: Models
        _recovery: Recovery
        _recover: Callable[[BaseException], None]
        _now: Callable[[], float]

    def __init__(self) -> None:
        self._datasets: list[Data] = []
        self._data: Data | None = None  # the one that it trains on
        self._source: Source | None = None  # its
        self._loader_options = LoaderOptions()  # its
        self._saved_data: dict[int, dict[str, Any]] = {}  # of datasets that a restored job has not named yet
        self._loop_epoch = 0
        self._resumed = False
        self._trace_begun: set[int] = set()  # numbers of datasets, the same on all workers

    def _open_data(self, dataset: Any, name: str | None, options: LoaderOptions) -> Data:
        number = len(self._datasets)
        if number > 0 and self.options.sync != "bsp":
            raise Error(f"loader() with a second dataset; with sync '{self.options.sync}' a job trains on one")
        if self._awaits_gradients:
            raise Error("loader() with a second dataset within a step; make it before the loop")
        saved = self._saved_data.pop(number, {})
        if number > 0:
            self.finish_step()
            assert self._data is not None
            place = saved["place"].encode() if "place" in saved else None
            self._data.place = self._replica.change_data(replica_size(dataset, options), place)
        source = make_source(dataset, options, self._replica, self.options, self._world)
        if "shards" in saved and isinstance(source, ShardSource):
            source.load(saved["shards"])
        trace = self._trace if number == 0 else Trace(self.options, number)
        data = Data(number, name, dataset, options, source, trace)
        if "beside" in saved:
            data.beside = self._make_beside(data, *saved["beside"])
        self._datasets.append(data)
        self._become(data)
        return data

    def _become(self, data: Data) -> None:
        self._data, self._source, self._trace, self._loader_options = data, data.source, data.trace, data.options

    def _replace_data(self, data: Data, dataset: Any, options: LoaderOptions) -> None:
        """By another object of the same data, or with other options."""
        size, before_it = replica_size(dataset, options), replica_size(data.dataset, data.options)
        if size != before_it:
            which = "loader()" if data.name is None else f"loader() with name={data.name!r}"
            raise ValueError(
                f"{which} got {size} samples an epoch in place of {before_it}; permitted: as many, which a sampler= "
                "may draw, or another name="
            )
        self._select(data)
        before = data.dataset, data.options
        known = dataset is not data.dataset and data.name is None
        ends: Any = data.source.ends() if known else None
        self._reopen(data, dataset, options)
        if known and any(self._hear(ends is not None and data.source.has_other_ends(ends))):
            self._reopen(data, *before)
            raise refusal("loader()", dataset, data.source.differs)

    def _reopen(self, data: Data, dataset: Any, options: LoaderOptions) -> None:
        if isinstance(data.source, ShardSource):
            check_lengths(dataset, options)
            data.source.follow(dataset, options)
        else:
            data.source.close()
            data.source = make_source(dataset, options, self._replica, self.options, self._world)
        data.dataset, data.options = dataset, options
        self._become(data)

    def _hear(self, mine: bool) -> list[bool]:
        """What everybody says. Collective, between two steps or within one."""
        self._recovery.ask(mine)
        while True:
            try:
                return self._world.gather_words(mine)
            except PeerError as error:
                if not self._recovery.is_possible:
                    raise
                if self._share is None:
                    self._models.remember()  # the step before is done: nothing of it is undone
                self._recover(error)
                answers = self._recovery.answers()
                if answers is not None:
                    return answers

    def _select(self, data: Data) -> None:
        """It is this one's turn."""
        if data is self._data:
            return
        self.finish_step()
        assert self._data is not None
        self._data.place = self._replica.change_data(replica_size(data.dataset, data.options), data.place)
        self._become(data)

    def _begin_loop(self, data: Data, epoch: int | None = None) -> None:
        """Or goes back to the loop over an epoch."""
        self._select(data)
        self._loop_epoch = self.epoch if epoch is None else epoch
        self._ensure_trace()

    def _ensure_trace(self) -> None:
        """A log begins with the loop, when it is known whether it goes on with an earlier run's."""
        if self._data is not None:
            go_on = self._resumed or self._data.number in self._trace_begun
            self._trace_begun.add(self._data.number)
            self._open_trace(go_on)

    def _has_enough(self) -> bool:
        """Whether max_steps is reached, which ends the epoch."""
        self.finish_step()
        most = self._loader_options.max_steps
        if most is None or self.epoch != self._loop_epoch or self._replica.position < most * self.options.global_batch:
            return False
        self._end_epoch()
        return True

    def _end_epoch(self) -> None:
        """The same on all workers, between two steps."""
        begun = self._replica.position > 0
        self._replica.end_epoch()
        if begun:
            first = self._replica.workers[0].id
            self._tell([_core.EventRecord(self.step, self._now(), _core.Event.EPOCH_END, first, "")])

    def _is_beside(self, data: Data) -> bool:
        return self._awaits_gradients and data is not self._data

    def _make_beside(self, data: Data, epoch: int = 0, position: int = 0, ledger: str = "") -> Beside:
        sampler = _core.Sampler(replica_size(data.dataset, data.options), self.options.global_batch, self.options.seed)
        beside = Beside(sampler, epoch, position)
        if ledger:
            beside.ledger = _core.Ledger(sampler.samples_per_epoch)
            beside.ledger.restore(ledger.encode())
        return beside

    def _take_beside(self, data: Data) -> Any:
        if self._share is None or self._computed or not isinstance(data.source, MapSource):
            what = type(data.dataset).__name__
            permitted = "permitted: of a dataset with len(), before backward()"
            raise Error(f"a batch of {what} beside another loader's; {permitted}")
        if data.beside is None:
            data.beside = self._make_beside(data)
        if data.beside.taken:
            raise Error("a second batch beside another loader's in one step; permitted: one")
        counts, rank = self._share.counts, self._world.rank
        parts = data.beside.parts(sum(counts[:rank]), counts[rank]) or [(data.beside.epoch, 0, 1)]
        batch = data.source.take_beside(parts)
        data.beside.taken = tuple(counts)
        return self._hand_out(batch, data.options)

    def _finish_beside(self, record: _core.StepRecord) -> None:
        """The step is done; what it used beside its own data goes into logs of their own."""
        for one in self._datasets:
            beside = one.beside
            if beside is None or not beside.taken:
                continue
            go_on = self._resumed or one.number in self._trace_begun
            self._trace_begun.add(one.number)
            first, size = self._world.rank == 0, beside.sampler.samples_per_epoch
            one.trace.open(first, size, record.step, self._replica.workers, go_on, others=True, beside=True)
            one.trace.keep(record.beside(beside.epoch, beside.position, beside.taken))
            beside.finish()

    def _epoch_of(self, data: Data) -> int:
        if data is self._data or data.place is None:
            return self.epoch
        if data.beside is not None:
            return data.beside.epoch
        return int(_core.State(data.place).number("epoch"))

    def _ledger_of(self, data: Data) -> _core.Ledger:
        if data.beside is not None and data.beside.ledger is not None:
            return data.beside.ledger
        if data is self._data or data.place is None:
            return self._replica.ledger
        ledger = _core.Ledger(0)
        ledger.restore(_core.State(data.place).part("ledger").to_bytes())
        return ledger

    def _save_datasets(self) -> dict[str, Any]:
        """The replica, at the place of the first dataset, and what it does not have of the others."""
        saved: dict[int, dict[str, Any]] = dict(self._saved_data)
        present = self._data
        for one in self._datasets:
            self._select(one)
            entry: dict[str, Any] = {"shards": one.source.state()} if isinstance(one.source, ShardSource) else {}
            if one.beside is not None:
                beside = one.beside
                ledger = beside.ledger.state().decode() if beside.ledger is not None else ""
                entry["beside"] = [beside.epoch, beside.position, ledger]
            saved[one.number] = entry
        if present is not None:
            self._select(self._datasets[0])
        first = state.of_replica(self._replica)
        for one in self._datasets[1:]:
            saved[one.number]["place"] = (one.place or b"").decode()
        if present is not None:
            self._select(present)
        saved = {number: entry for number, entry in saved.items() if entry}
        return {**first, "datasets": saved} if saved else first

    def _load_datasets(self, saved: dict[str, Any]) -> None:
        """When the replica has the first one's place."""
        self._saved_data = {int(number): dict(entry) for number, entry in saved.get("datasets", {}).items()}
        for one in self._datasets:
            entry = self._saved_data.pop(one.number, {})
            if one.number > 0:
                one.place = entry["place"].encode() if "place" in entry else None
            if isinstance(one.source, ShardSource) and "shards" in entry:
                self._select(one)
                one.source.load(entry["shards"])
                self._select(self._datasets[0])
            one.beside = self._make_beside(one, *entry["beside"]) if "beside" in entry else None

    def _close_sources(self) -> None:
        for one in self._datasets:
            one.source.close()

    def _close_datasets(self) -> None:
        self._close_sources()
        for one in self._datasets:
            one.trace.close()
