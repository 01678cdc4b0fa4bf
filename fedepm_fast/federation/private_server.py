"""The server of a planned private run whose clients are elsewhere: see `PrivateServer`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.archives import read_archive, write_archive
from .._common.files import remove_drafts
from .._common.validation import ArgumentValueError
from ..mechanisms import packed_size
from ._checks import scale_fault, upload_fault
from ._plausible import Planned, largest_at_first
from ._rounds import Round
from .server import Server

if TYPE_CHECKING:
    from ..privacy.private_plan import PrivatePlan

Array = NDArray[Any]


class PrivateServer(Server):
    """The server of a `PrivatePlan`, whose clients are `PrivateClient` of its algorithm.

    Before the first round it is given the second moments of the clients that send them, and
    settles in which coordinates the rounds are; it keeps the points of the last ones, of which the
    model is the mean, in the columns. With what clients sent in hand this is post-processing: what
    it does concerns no guarantee.

    The plan tells how far an honest client's upload can be from the point of the round, and what
    scale its noise can have: what is beyond is rejected, named and counted, and the round goes on
    without it. A client that lies within that is one of `aggregation`'s, not an end of the rounds.

    Parameters
    ----------
    plan : PrivatePlan
        With ``trust="clients"``, and without `bounds`.
    path : path-like, optional
        As of `Server`: the coordinates and the points that count outlive a kill, too.
    **options
        As of `Server`: seed, trial, dtype, largest, threads, sync.

    Raises
    ------
    ValueError, TypeError, RuntimeError, OSError
        As `Server`.
    """

    def __init__(
        self, plan: PrivatePlan, *, path: str | os.PathLike[str] | None = None, **options: Any
    ) -> None:
        if plan.trust != "clients":
            raise ArgumentValueError(
                "plan",
                f"must have trust='clients', whose uploads a server sees, got {plan.trust!r}",
            )
        if plan.columns is not None:
            raise ArgumentValueError(
                "plan", "must be without bounds: private clients send no means of columns"
            )
        self.plan, self._planned = plan, Planned(plan)
        self._sent: dict[int, tuple[Array, float]] = {}
        self._back: Array | None = None
        n = plan.n_features * plan.objective.n_outputs
        self._points = np.zeros((0, n))
        super().__init__(plan.algorithm, len(plan.client_sizes), n, path=path, **options)
        if self._folder is not None:
            self._recall_plan(self._folder.path / "plan.npz")
        if self._back is None and plan.radius is None:
            self.settle()

    # Before the rounds --------------------------------------------------------------------

    @property
    def coordinates(self) -> Array:
        """What clients are to multiply their columns by, shape (p, p), read-only.

        Raises
        ------
        RuntimeError
            Before `settle`.
        """
        if self._back is None:
            raise RuntimeError("second moments come before the rounds: receive_moments, and settle")
        return self._back

    @property
    def settled(self) -> bool:
        """Whether the coordinates are known, and no second moments are needed any more."""
        return self._back is not None

    def receive_moments(self, client: int, values: Any, scale: float | None) -> bool:
        """What a client's `PrivateClient.moments` sent; whether it was accepted.

        They are not kept by a server that is killed before `settle`: asked again, at
        ``plan.radius``, the client sends the same.
        """
        fault = (
            self._unknown(client)
            or ("the coordinates are settled" if self.settled else "")
            or upload_fault(values, packed_size(self.plan.n_features), np.dtype(np.float64), None)
            or scale_fault(self.algorithm, scale)
            or self._planned.moments_fault(client, values, scale or 0.0)
        )
        if fault:
            return self.reject(client, fault)
        assert scale is not None
        self._sent[int(client)] = np.array(values), float(scale)
        return True

    def settle(self) -> Array:
        """Settle the coordinates, from the second moments that have come.

        Raises
        ------
        RuntimeError
            If none has, or the coordinates are settled.
        """
        if self.settled:
            raise RuntimeError("the coordinates are settled, once for all rounds")
        if self.plan.radius is None:
            back = self.plan.coordinates()
        elif self._sent:
            # In the clients' order, not that of arrival: sums then have the same bits.
            sent = [self._sent[client] for client in sorted(self._sent)]
            back = self.plan.coordinates(*map(np.array, zip(*sent, strict=True)))
        else:
            raise RuntimeError("no client has sent second moments")
        self._write_plan(back, self._points)
        return self.coordinates

    # The rounds ---------------------------------------------------------------------------

    def open_round(self) -> Round:
        """As `Server.open_round`.

        Raises
        ------
        RuntimeError
            Also before `settle`, and after the rounds of the plan.
        """
        self.coordinates  # noqa: B018, or what it raises
        if self.done:
            raise RuntimeError(f"all {self.plan.rounds} rounds of the plan are done")
        return super().open_round()

    @property
    def done(self) -> bool:
        """Whether all rounds of the plan have ended."""
        return self.tau >= self.plan.rounds

    def message(self, client: int) -> dict[str, Any]:
        """As `Server.message`, with the ``coordinates``."""
        return {**super().message(client), "coordinates": self.coordinates}

    def close_round(self) -> NDArray[np.intp]:
        """As `Server.close_round`. The point that follows is one of which the model is the mean."""
        accepted = super().close_round()
        self._keep()
        return accepted

    @property
    def model(self) -> Array:
        """The mean of the points of the last rounds, in the columns, shape (n,).

        Raises
        ------
        RuntimeError
            Before a round has ended.
        """
        if not len(self._points):
            raise RuntimeError("no round has ended: there is no model")
        return np.asarray(self.plan.in_columns(self.plan.average(self._points), self.coordinates))

    # What is kept -------------------------------------------------------------------------

    def _keep(self) -> None:
        points = np.concatenate([self._points, self.x[None].astype(np.float64)])
        self._write_plan(self.coordinates, points[-self.plan.kept :])

    def _write_plan(self, back: Array, points: Array) -> None:
        if self._folder is not None:
            self._folder.check_mine()
            header = {"tau": self.tau, "arrays": ["back", "points"]}
            arrays = {"back": back, "points": points}
            path = self._folder.path / "plan.npz"
            write_archive(path, header, arrays, durable=True, private=True)
        self._back, self._points = np.array(back), points
        self._back.flags.writeable = False

    def _recall_plan(self, path: Path) -> None:
        """Be what the folder says; a kill may have come between a round's end and its point."""
        remove_drafts(path)
        if not path.exists() and self.tau == 0:
            return
        try:
            header, (back, points) = read_archive(path)
            if header["tau"] not in (self.tau, self.tau - 1):
                raise ValueError(f"it is of round {header['tau']}, not {self.tau}")
        except ValueError as error:
            self.close()
            raise ValueError(f"path must hold plan.npz beside its state: {path}: {error}") from None
        self._back, self._points = back, points
        if header["tau"] < self.tau:
            self._keep()

    def _unlikely(self, client: int, upload: Array, scale: float | None) -> str:
        x = self._last_point
        if x is None:  # as the last round began, or the plan's start
            x = self._points[-1] if len(self._points) else np.zeros_like(upload)
        # Who joins sends a point of the server's, or what it made of one, of any round before.
        spread = 0.0 if self._members[client] else largest_at_first(x)
        return self._planned.upload_fault(client, upload, scale, x, spread, self._back)

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "plan": list(self.plan.settings)}
