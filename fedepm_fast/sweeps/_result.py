"""What a sweep gives: its runs, in a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._common.text import counted
from ..store import Store
from ..store._record import Array
from ._cells import Run

if TYPE_CHECKING:
    from pandas import DataFrame


class SweepResult(Sequence[str]):
    """The runs of a sweep: a sequence of their ids, and what a store holds of them.

    Parameters
    ----------
    runs : sequence of Run
        As of `Sweep.runs`.
    store : Store
    """

    def __init__(self, runs: Sequence[Run], store: Store) -> None:
        self.run_ids = tuple(run.run_id for run in runs)
        self.store = store

    def __len__(self) -> int:
        return len(self.run_ids)

    def __getitem__(self, index: Any) -> Any:
        return self.run_ids[index]

    def __repr__(self) -> str:
        failed = len(self.failed)
        return f"<SweepResult of {counted(len(self), 'run')}{f', {failed} failed' * bool(failed)}>"

    def table(self) -> dict[str, list[Any]]:
        """The runs as columns, see `Store.table`, in the order of the sweep."""
        return self.store.table(ids=self.run_ids)

    def to_pandas(self) -> DataFrame:
        """The runs as a tidy table, one row each, in the order of the sweep.

        Columns: ``run_id``, ``algorithm``, every parameter of algorithms, data, objective and
        stopping (missing where an algorithm has it not), ``seed``, ``trial``,
        ``mean_objective``, ``rounds``, ``iterations``, ``total_time``, ``local_time``, ``snr``,
        ``accuracy``, ``grad_mean_sq``, ``diverged``, ``reasons``, ``error``, ``machine``,
        ``created``.
        """
        return self.store.to_pandas(ids=self.run_ids)

    def history(self, run_id: str) -> dict[str, Array]:
        """Per-round arrays of a run, see `Store.history`."""
        return self.store.history(run_id)

    def histories(self) -> dict[str, dict[str, Array]]:
        """Per-round arrays of every run, by run id; empty for a run that failed."""
        return self.store.histories(self.run_ids)

    @property
    def failed(self) -> dict[str, str]:
        """Messages of the runs that failed, by run id."""
        found = self.store.table({"failed": True}, ids=self.run_ids)
        return dict(zip(found["run_id"], found["error"], strict=True))
