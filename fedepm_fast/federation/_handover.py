"""A ledger that is closed, for what is left of its budget to be another federation's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._common.validation import ArgumentValueError
from ..mechanisms import Account, Mechanism, at_least, recorded
from ._ledger import Entry, Ledger

#: Of a budget that is nothing: the noise without what was spent before, over that with it. What
#: the rounding of a spent budget leaves is less.
LEAST_SHARE = 1e-4


class Spent(NamedTuple):
    """What a private client has spent, and may spend."""

    uploads: int
    """Made so far; second moments count as ``mechanism.moments`` of them."""
    planned: int
    """At most."""
    epsilon: float
    """Spent so far."""
    total: float
    """Spent after all of them."""


def settle(mechanism: Mechanism, uploads: int, after: Path | None, to: Path) -> dict[str, Any]:
    """What a new ledger at `to` settles for all its time: what was spent before, and the multiplier
    of the noise with which so many uploads keep, with that, within the mechanism's budget.

    Raises
    ------
    ValueError
        Naming the argument `after`: as `handed_over`, or if nothing is left. It is not closed then.
    """
    whole = z = float(mechanism.noise_multipliers(np.array([uploads]))[0])
    if after is None:
        return {"after": "", "before": Account().describe(), "multiplier": z}
    with handed_over("after", after, to) as spent:
        if spent.spent and mechanism.neighbours != "record" == spent.neighbours:
            raise ArgumentValueError(
                "after",
                "must hide whole clients, as the mechanism does, got a ledger that hides records",
            )
        if (most := mechanism.total_epsilon) is not None:
            delta, method = how(mechanism)
            z = spent.multiplier(mechanism.law.name, uploads, most, delta, method=method)
        if whole < LEAST_SHARE * z:
            raise ArgumentValueError(
                "after",
                f"must leave something of total_epsilon = {most:g} at delta = {delta:g}, got a "
                f"ledger that has spent {at_least(spent.epsilon(delta, method=method))}",
            )
    return {"after": str(after), "before": spent.describe(), "multiplier": z}


def how(mechanism: Mechanism) -> tuple[float, str]:
    """At which delta, and by which method, a mechanism accounts."""
    delta = float(getattr(mechanism, "delta", 0.0))
    return delta, "pld" if delta and mechanism.order == 1 else "basic"


@contextmanager
def handed_over(name: str, path: Path, to: Path) -> Iterator[Account]:
    """What the client of the ledger at `path` has spent in all; where the block ends without an
    error, the ledger is closed for good, and what is left is the budget of the one at `to`.

    That is on the disk when it ends. A process that is killed in between leaves a closed ledger and
    none that follows; asked again for the same `to`, it goes on. Nobody else gets anything.

    Raises
    ------
    ValueError
        Naming the argument `name`, if there is no ledger at `path`, or another one follows it.
    """
    ledger = _existing(name, path)
    with ledger.locked():
        last = ledger.read()
        if last.closed not in ("", str(to)):
            raise ArgumentValueError(
                name, f"must be a ledger whose budget is free, that of {path} went to {last.closed}"
            )
        yield account(ledger, last)
        if not last.closed and not ledger.replace(last, last._replace(closed=str(to))):
            raise RuntimeError(f"{path} has been changed meanwhile by who has no lock of it")


def ledger_account(path: str | os.PathLike[str]) -> Account:
    """What the client of a ledger has spent in all, with what the ledgers before it tell.

    Parameters
    ----------
    path : path-like
        A ledger of a `PrivateClient`, closed or not; it is not changed.

    Raises
    ------
    ValueError
        If there is none, or it is damaged.
    """
    ledger = _existing("path", Path(path))
    with ledger.locked():
        return account(ledger, ledger.read())


def account(ledger: Ledger, entry: Entry) -> Account:
    """What the client of a ledger that was read has spent in all."""
    return before(ledger) + Account.of(
        recorded(ledger.settings["mechanism"]), multiplier(ledger), entry.uploads
    )


def before(ledger: Ledger) -> Account:
    """What was spent before a ledger that was read."""
    return Account.from_record(_terms(ledger)["before"])


def multiplier(ledger: Ledger) -> float:
    """Of the noise of a ledger that was read."""
    return float(_terms(ledger)["multiplier"])


def _terms(ledger: Ledger) -> dict[str, Any]:
    """What `settle` settled, and did in earlier versions, whose ledgers do not tell."""
    told = ledger.settings
    if "multiplier" in told:
        return told
    mechanism = recorded(told["mechanism"])
    return settle(mechanism, mechanism.moments + told["uploads"], None, ledger.path)


def _existing(name: str, path: Path) -> Ledger:
    if not path.is_file():
        raise ArgumentValueError(name, f"must be a ledger, there is none at {path}")
    return Ledger(path, {})
