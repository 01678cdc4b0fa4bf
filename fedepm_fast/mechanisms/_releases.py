"""What a client has released in all: a value that others are added to, and its files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from .._common.json_files import read_json, write_json
from .._common.validation import ArgumentValueError, check_choice, check_int, check_real
from ._base import MECHANISMS, RELATIONS, Mechanism
from ._composition import LARGEST, Spending

if TYPE_CHECKING:
    from ..result import Result

LAWS = ("gaussian", "laplace")
#: Of the files; newer ones are refused.
_FORMAT = 1


@dataclass(frozen=True)
class Releases:
    """What an `Account` is of."""

    spent: tuple[Spending, ...] = ()
    neighbours: str = "record"

    def __post_init__(self) -> None:
        check_choice("neighbours", self.neighbours, RELATIONS)
        kinds: Counter[tuple[str, float]] = Counter()
        for law, multiplier, uploads in self.spent:
            z = check_real("multiplier", multiplier, low=1 / LARGEST)
            kinds[check_choice("law", law, LAWS), z] += check_int("uploads", uploads)
        found = sorted(Spending(*kind, count) for kind, count in kinds.items() if count)
        object.__setattr__(self, "spent", tuple(found))

    # What is added ------------------------------------------------------------------------

    def add(self, law: str, multiplier: float, uploads: int = 1) -> Self:
        """This account and so many uploads more.

        Parameters
        ----------
        law : {"laplace", "gaussian"}
            By the method ``"basic"``, whatever is epsilon-private without a delta counts as a
            Laplace upload of multiplier ``1/epsilon``.
        multiplier : float
            Scale of the noise over the sensitivity, at least 1e-15.
        uploads : int
            At least 0.

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        return self + type(self)((Spending(law, multiplier, uploads),), self.neighbours)

    def __add__(self, other: Releases) -> Self:
        if not isinstance(other, Releases):
            return NotImplemented
        kinds = {each.neighbours for each in (self, other) if each.spent}
        return type(self)(
            (*self.spent, *other.spent), "client" if kinds == {"client"} else "record"
        )

    @classmethod
    def of(cls, mechanism: Mechanism, multiplier: float, uploads: int) -> Self:
        """What uploads of a mechanism spend, of which second moments are the first.

        Parameters
        ----------
        mechanism : Mechanism
            Of a built-in law. Its budget does not matter here.
        multiplier : float
            Of each upload, of `Mechanism.noise_multipliers`.
        uploads : int
            0, or a number that ``mechanism.moments`` are counted in.
        """
        law, first = mechanism.law.name, min(mechanism.moments, uploads)
        spent = [Spending(law, multiplier, uploads - first)]
        if first:  # by their law, one release of as much spends more than as many uploads
            spent.append(Spending(law, mechanism.one_release(multiplier, first), 1))
        return cls(tuple(spent), mechanism.neighbours)

    @classmethod
    def of_run(cls, result: Result, client: int) -> Self:
        """What a client spent in a private run, its second moments included.

        Parameters
        ----------
        result : Result
            Of a run with a guarantee: the account holds against whom it does, if what it assumes
            is so.
        client : int
            From 0.

        Raises
        ------
        ValueError, TypeError
            If it is no such run, or has no such client.
        """
        if result.guarantee.startswith("none"):
            raise ArgumentValueError(
                "result", f"must be a run with a privacy guarantee, this one has {result.guarantee}"
            )
        privacy = result.settings["privacy"]
        if "multipliers" not in privacy:
            raise ArgumentValueError("result", "must be of clients, and of this version")
        i = check_int("client", client, high=len(privacy["multipliers"]) - 1)
        mechanism = recorded(result.algorithm["mechanism"])
        return cls.of(mechanism, privacy["multipliers"][i], privacy["uploads"][i])

    def describe(self) -> dict[str, Any]:
        """It as plain values, of which `from_record` makes it again."""
        return {"neighbours": self.neighbours, "spent": [list(each) for each in self.spent]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """What `describe` told of."""
        return cls(tuple(Spending(*each) for each in record["spent"]), record["neighbours"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file of JSON, complete or not at all, in which every float is exact."""
        write_json(path, {"format": _FORMAT, **self.describe()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is something else, is damaged, or was written by a newer version.
        """
        return read_json(path, _FORMAT, cls.from_record, "an account")


def recorded(described: Mapping[str, Any]) -> Mechanism:
    """The mechanism that `Mechanism.describe` told of."""
    options = dict(described)
    return MECHANISMS[options.pop("name")](**options)
