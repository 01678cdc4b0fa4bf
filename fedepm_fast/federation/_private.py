"""FedEPM's client for real deployments with a guarantee: see `PrivateClient`."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.extras import require
from .._common.validation import check_array, check_int
from .._private_checks import check_objective, check_run
from ..algorithms import FedEPM
from ..data import FederatedData
from ..mechanisms import Account, check_coordinates
from ..objectives import Objective
from ..runner import make_problem
from ._checks import check_point, resolve
from ._handover import Spent, account, before, how, multiplier, settle
from ._ledger import LARGEST_JUMP, Entry, Ledger, UploadRefused, jump_fault
from ._private_rows import PrivateRows, Upload

Array = NDArray[Any]


class PrivateClient:
    """A client of FedEPM whose uploads are private, for each record of its own, or for all of them.

    It trusts the server with nothing. The server's point and round are public and may be chosen
    with malice; clipping, sensitivity, noise and account are the client's. Each upload spends a
    share of a budget for `uploads` of them, is written to a ledger on disk before it is handed
    out, and is the only one of its round: asked again, at whatever point, the client repeats it.

    Parameters
    ----------
    algorithm : FedEPM
        With a mechanism whose `clip` is given. The server's must have the same parameters and
        clip; the budget is the client's own, or of the mechanism's `budgets` that of its index.
    features : array_like or sparse of shape (d, n)
        The client's rows. They are clipped to ``clip / objective.slope_in(order)``; with
        ``neighbours="client"`` they are not, but what the local steps make of them is.
    labels : array_like of shape (d,)
    objective : str or Objective
        With a bounded derivative, such as ``"logistic"``; that of a `ScalarLoss` is clipped to its
        `slope`. Any with ``neighbours="client"``.
    index : int
        The client's number, from 0.
    clients : int
        How many clients there are, m.
    uploads : int
        The largest number of rounds that the client will ever take part in, at least 1: the
        budget is split over so many, and ``mechanism.moments``.
    path : path-like
        The ledger. Who loses it, or puts an old one in its place, loses the guarantee. It belongs
        to one client and one federation: rounds count on. Its folder is the client's alone: a
        client that is killed may leave an upload there that is not accounted for.
    largest_jump : int
        How many rounds later than its last one, or than -1 before the first, a round may be that
        the client takes part in. Rounds never go back, so that a server that names one far ahead
        would be the end of it. A client that joins a federation older than that, or was away for
        so long, is given a larger one.
    after : path-like, optional
        The ledger of an earlier federation of the same records, whose uploads that were not made
        are this one's to spend: what the mechanism's `total_epsilon` leaves when all that the
        client has spent so far is taken off. That ledger is closed for good before this one exists,
        and remembers its path, so that a client that is killed in between goes on where it is asked
        for the same again, and no budget goes to two. May be left out once this ledger is there.

    Raises
    ------
    ValueError, TypeError
        Naming the argument; also if the columns look scaled by numbers of their own, without
        ``public_scaling=True``, if `path` holds a damaged ledger, or one of another budget, or if
        `after` has gone to another federation, or leaves nothing.
    ImportError
        Without OpenDP, an optional dependency.
    """

    def __init__(
        self,
        algorithm: FedEPM,
        features: Any,
        labels: ArrayLike,
        *,
        objective: str | Objective = "logistic",
        index: int,
        clients: int,
        uploads: int,
        path: str | os.PathLike[str],
        largest_jump: int = LARGEST_JUMP,
        after: str | os.PathLike[str] | None = None,
    ) -> None:
        m = check_int("clients", clients, low=1)
        self.index = check_int("index", index, high=m - 1)
        self.uploads = check_int("uploads", uploads, low=1, high=2**53)
        self.largest_jump = check_int("largest_jump", largest_jump, low=1)
        labels = check_array("labels", labels, ndim=1)
        data = FederatedData(features, labels, np.array([len(labels)]))
        resolved = resolve(algorithm, m, data.n_features)
        if resolved.mechanism is None:
            raise ValueError("algorithm must have a mechanism; without one use Client")
        mechanism = resolved.mechanism.of_client(self.index)
        self.algorithm = replace(resolved, mechanism=mechanism)
        if not mechanism.is_checked():
            raise ValueError(
                f"mechanism {mechanism.name!r} is one of your own, whose account nobody has "
                "checked: a PrivateClient takes those of fedepm_fast.privacy"
            )
        require("opendp.prelude", "privacy", "PrivateClient")
        check_objective(objective)
        problem = make_problem(self.algorithm, data, objective)
        check_run(self.algorithm, problem)
        self._mechanism = mechanism
        self._planned = mechanism.moments + self.uploads
        self._rows = PrivateRows(self.algorithm, problem, self._planned)
        budget = {
            "client": self.index,
            "uploads": self.uploads,
            "rows": data.n_samples,
            "features": problem.n_parameters,
            "mechanism": self.algorithm.describe()["mechanism"],
        }
        earlier = None if after is None else Path(after).resolve()
        if earlier is not None:
            budget["after"] = str(earlier)
        to = Path(path).resolve()
        self._ledger = Ledger(
            to, budget, problem.n_parameters, lambda: settle(mechanism, self._planned, earlier, to)
        )
        self._rows.multiplier = multiplier(self._ledger)

    @property
    def spent(self) -> Spent:
        """What the ledger says, in epsilon (at the mechanism's delta, if it has one), with what
        was spent before it."""
        return self._spent(self._ledger.read().uploads)

    @property
    def account(self) -> Account:
        """All that the client has sent so far, with what was sent before its ledger."""
        return account(self._ledger, self._ledger.read())

    @property
    def guarantee(self) -> str:
        """What holds after all uploads, second moments among them, in words."""
        earlier = ", with what it spent in federations before" * bool(before(self._ledger).spent)
        return self._mechanism.guarantee(self._spent(self._planned).total) + earlier

    def join(self, x: ArrayLike) -> Upload:
        """Begin at the server's `x`, shape (n,), which is the first upload: it tells nothing.

        A client that has uploaded repeats its last upload, and goes on from there.
        """
        point, dtype = self._check_point(x)
        with self._ledger.locked():
            last = self._ledger.read()
            if last.tau < 0 and self._ledger.replace(last, last._replace(point=point)):
                return Upload(point.astype(dtype), None)
        return self._repeat(last, dtype) if last.tau >= 0 else self.join(x)

    def moments(self, radius: float) -> Upload:
        """The second moments of the rows, clipped to `radius`, from which a server makes
        `coordinates`: once, before the first round.

        They spend as much as ``mechanism.moments`` uploads. Asked again, at whatever radius, the
        client sends the same and spends nothing.

        Returns
        -------
        Upload
            Packed as `mechanisms.unpack` reads them, float64, and the scale of their noise.

        Raises
        ------
        UploadRefused
            If the mechanism spends nothing on moments, or a round was taken part in. Nothing is
            spent.
        ValueError, TypeError
            If the radius is no number from 1e-70 to 1e70, or the ledger damaged. Nothing is spent.
        OSError
            If the ledger cannot be written. The moments are not handed out.
        """
        with self._ledger.locked():
            last = self._ledger.read()
            if last.tau >= 0:
                raise self._refused("moments come before the first round", last)
            if len(last.moments):
                self._ledger.sync()
                return Upload(last.moments, last.scale)
            if last.closed:
                raise self._refused("its ledger is closed, for another federation", last)
            if not self._mechanism.moments:
                raise self._refused("its mechanism spends nothing on moments", last)
            values, scale = self._rows.moments(radius)
            entry = last._replace(uploads=self._mechanism.moments, scale=scale, moments=values)
            if self._ledger.replace(last, entry):
                return Upload(values, scale)
        return self.moments(radius)

    def train(self, x: ArrayLike, tau: int, coordinates: ArrayLike | None = None) -> Upload:
        """Take part in round `tau` at the server's point `x`, shape (n,).

        The local steps start at the last upload, or at `x`, as the algorithm's `start` says. A
        round that is repeated gives the same upload again and spends nothing.

        Parameters
        ----------
        x : array_like of shape (n,)
        tau : int
        coordinates : array_like of shape (p, p), optional
            A matrix B, as the server likes: the rows are those of ``features @ B``, which are
            clipped then, and the server's points are in these coordinates. So is the objective's
            penalty, which B makes diagonal if it is one of `PrivatePlan.coordinates`.

        Returns
        -------
        Upload

        Raises
        ------
        UploadRefused
            If all uploads have been made; if a later round was; if the round is further ahead than
            `largest_jump`; if the noise would not hide the rounding of points so large. Nothing is
            spent.
        ValueError, TypeError
            If `x` is not finite, of another shape, or not float64, float32 or integers, `tau` no
            round, `coordinates` not finite, of another shape, beyond 1e100 or without an inverse,
            or the ledger damaged. Nothing is spent.
        OSError
            If the ledger cannot be written. The upload is not handed out.
        """
        point, dtype = self._check_point(x)
        tau = check_int("tau", tau, high=2**62)
        if coordinates is not None:
            coordinates = check_coordinates(coordinates, self._rows.raw.data.n_features)
        with self._ledger.locked():
            last = self._ledger.read()
            if tau == last.tau:
                self._ledger.sync()  # a process that was killed may not have come to it
                return self._repeat(last, dtype)
            if tau < last.tau:
                raise self._refused(f"round {last.tau} is done, got round {tau}", last)
            if fault := jump_fault(tau, last.tau, self.largest_jump):
                raise self._refused(fault, last)
            if last.closed:
                raise self._refused("its ledger is closed, for another federation", last)
            if last.uploads >= self._planned:
                raise self._refused(f"all {self._planned} uploads have been made", last)
            self._rows.move_to(coordinates)
            sent = self._rows.upload(last.point if len(last.point) else point, point, tau)
            if sent is None:
                raise self._refused(
                    "the noise would not hide the rounding of points of the size "
                    f"{np.abs(point).max():.3g} in round {tau}",
                    last,
                )
            entry = Entry(last.uploads + 1, tau, sent[1], sent[0])
            # Only what is on the disk may be seen by anyone.
            if self._ledger.replace(last, entry):
                return self._repeat(entry, dtype)
        return self.train(x, tau, coordinates)  # another process has uploaded meanwhile

    def _check_point(self, x: ArrayLike) -> tuple[Array, np.dtype[Any]]:
        point = check_point(x, self._rows.raw.n_parameters)
        return point.astype(np.float64), point.dtype

    @staticmethod
    def _repeat(entry: Entry, dtype: np.dtype[Any]) -> Upload:
        with np.errstate(over="ignore"):  # to float32: the server refuses infinities
            return Upload(entry.point.astype(dtype), entry.scale)

    def _spent(self, uploads: int) -> Spent:
        epsilon, total = (self._epsilon(count) for count in (uploads, self._planned))
        return Spent(uploads, self._planned, epsilon, total)

    def _epsilon(self, uploads: int) -> float:
        mechanism, spent = self._mechanism, before(self._ledger)
        if not spent.spent:
            return float(mechanism.spent(np.array([self._rows.multiplier]), np.array([uploads]))[0])
        delta, method = how(mechanism)
        found = spent + Account.of(mechanism, self._rows.multiplier, uploads)
        # That they keep within the budget is what the multiplier was found by.
        return min(found.epsilon(delta, method=method), mechanism.total_epsilon or math.inf)

    def _refused(self, why: str, last: Entry) -> UploadRefused:
        return UploadRefused(
            f"client {self.index} uploads nothing: {why} "
            f"({last.uploads} of {self._planned} uploads made)"
        )
