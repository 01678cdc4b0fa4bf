"""What the paper claims of its experiments, and code that says whether runs bear it out.

A claim is tested comparison by comparison: for every cell, or for every line of a figure. All of
them true: it holds; none: it does not; some: it holds partly, and the exceptions are named.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _checks
from ._checks import Check, Test
from ._experiments import EXPERIMENTS, read_part

if TYPE_CHECKING:
    from pandas import DataFrame

HOLDS, PARTLY, FAILS, UNMEASURED = "holds", "holds partly", "does not hold", "not measured"

#: How many comparisons that are not true are named beside a verdict; all are listed below it.
SHOWN_EXCEPTIONS = 3


@dataclass(frozen=True)
class Claim:
    """A claim, where it comes from, and how it is checked.

    Attributes
    ----------
    source : str
        Figure or table of the paper, or "expected" for what this package adds.
    text : str
        A paraphrase.
    criterion : str
        When a comparison counts as true.
    timing : bool
        Whether it is about times, which depend on the machine.
    """

    source: str
    text: str
    criterion: str
    check: Check
    timing: bool = False


class Finding(NamedTuple):
    """A claim beside what was measured."""

    claim: Claim
    verdict: str
    measured: str
    tests: list[Test]

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for records."""
        return {
            "source": self.claim.source,
            "claim": self.claim.text,
            "criterion": self.claim.criterion,
            "timing": self.claim.timing,
            "verdict": self.verdict,
            "measured": self.measured,
            "comparisons": [test._asdict() for test in self.tests],
        }


def judge(table: DataFrame, claims: Sequence[Claim] | None = None) -> list[Finding]:
    """Every claim beside what a table of runs says of it.

    Parameters
    ----------
    table : pandas.DataFrame
        One row a run, as `Evaluation.table` has.
    claims : sequence of Claim, optional
        Those of the paper by default.
    """
    found = []
    for claim in CLAIMS if claims is None else claims:
        tests, headline = claim.check(table)
        true = sum(test.holds for test in tests)
        if not tests:
            verdict, measured = UNMEASURED, "the runs do not cover it"
        else:
            verdict = HOLDS if true == len(tests) else PARTLY if true else FAILS
            measured = f"{true} of {len(tests)} comparisons true; {headline}"
            false = [test for test in tests if not test.holds]
            if false:
                measured += f". Not true: {'; '.join(map(str, false[:SHOWN_EXCEPTIONS]))}"
                more = len(false) - SHOWN_EXCEPTIONS
                measured += f"; and {more} more" if more > 0 else ""
        found.append(Finding(claim, verdict, measured, tests))
    return found


def _read(text: str) -> tuple[Claim, ...]:
    """The claims of ``claims.toml``."""
    read = tomllib.loads(text)

    def claim(given: dict[str, Any]) -> Claim:
        said = {name: given.pop(name) for name in ("source", "text")}
        timing, criterion = given.pop("timing", False), given.pop("criterion")
        criterion = read["criteria"].get(criterion, criterion)
        # What is left are the arguments of the check, if it has any.
        check = getattr(_checks, given.pop("check"))
        if given:
            check = check(**{**given, "experiment": EXPERIMENTS[given["experiment"]]})
        criterion = criterion.format_map({**vars(_checks), **given})
        return Claim(**said, criterion=criterion, check=check, timing=timing)

    return tuple(map(claim, read["claim"]))


CLAIMS = _read(read_part("claims.toml"))
