"""What the paper claims of its experiments, and code that says whether runs bear it out.

A claim is tested comparison by comparison: for every cell, or for every line of a figure. All of
them true: it holds; none: it does not; some: it holds partly, and the exceptions are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ._checks import (
    BY_FAR,
    FAR_SLOWER,
    NOT_GREATLY,
    SAME_PERCENT,
    STEP_AGAINST,
    Check,
    Test,
    extreme,
    near_optimum,
    rising_ratio,
    same_end,
    slower_growth,
    steady,
    trend,
)
from ._experiments import EXPERIMENTS

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


_FIG2, _FIG3, _TABLE1 = EXPERIMENTS["fig2"], EXPERIMENTS["fig3"], EXPERIMENTS["table1"]
_FIG4, _FIG5 = EXPERIMENTS["fig4"], EXPERIMENTS["fig5"]
# The claims --------------------------------------------------------------------------------

_SMALLEST = "FedEPM's median is the smallest of the three in the cell"
_TREND = (
    "along the parameter no median goes against the trend by more than "
    f"{100 * STEP_AGAINST:g} % of the one before, and the last goes with it from the first"
)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Fig. 2",
        "The three algorithms end at about the same objective value.",
        f"a baseline's median f/m is within {SAME_PERCENT:g} % of FedEPM's",
        same_end,
    ),
    Claim(
        "expected",
        "All three end close to the optimum of their split.",
        "the median gap is at most 1 %, for SFedAvg with 4 local steps 2 %",
        near_optimum,
    ),
    Claim(
        "Fig. 2",
        "FedEPM's objective declines the fastest.",
        "FedEPM needs the fewest rounds, in the median, until f is within 5 % of the optimum",
        extreme(_FIG2, ["rounds_to_5_percent"]),
    ),
    Claim(
        "Fig. 2, 3",
        "FedEPM uses the fewest communication rounds for every number of local steps.",
        _SMALLEST,
        extreme(_FIG3, ["rounds"]),
    ),
    Claim(
        "expected",
        "It does so by far.",
        f"FedEPM's median is less than {BY_FAR:g} times the next best one",
        extreme(_FIG3, ["rounds"], factor=BY_FAR),
    ),
    Claim(
        "Fig. 3",
        "The more local steps, the fewer communication rounds.",
        _TREND,
        trend(_FIG3, ["rounds"], "local_steps", -1),
    ),
    Claim(
        "Fig. 3",
        "The more local steps, the shorter the total time.",
        _TREND,
        trend(_FIG3, ["total_time"], "local_steps", -1),
        timing=True,
    ),
    Claim(
        "Fig. 3",
        "FedEPM runs the fastest.",
        _SMALLEST,
        extreme(_FIG3, ["total_time"]),
        timing=True,
    ),
    Claim(
        "Fig. 3",
        "SFedProx uses fewer communication rounds than SFedAvg.",
        "SFedProx's median is below SFedAvg's in the cell",
        extreme(_FIG3, ["rounds"], "sfedprox", than=("sfedprox", "sfedavg")),
    ),
    Claim(
        "Table 1",
        "FedEPM has by much the lowest local time of a round.",
        _SMALLEST,
        extreme(_TABLE1, ["local_time"]),
        timing=True,
    ),
    Claim(
        "Table 1",
        "SFedProx is not computation-efficient: its local time of a round is the largest.",
        "SFedProx's median is the largest of the three in the cell",
        extreme(_TABLE1, ["local_time"], "sfedprox", largest=True),
        timing=True,
    ),
    Claim(
        "Table 1",
        "The local time of a round grows with the local steps far more slowly for FedEPM "
        "(in the paper x 2.1 to 2.2 from 4 to 20 steps, against x 3.7 to 4.4).",
        f"FedEPM's growth beyond 1 is at most {FAR_SLOWER:g} times that of the baseline",
        slower_growth,
        timing=True,
    ),
    Claim(
        "Table 1",
        "The baselines' local time in units of FedEPM's rises with the local steps (in the paper "
        "at m = 50 from 3.4 to 6.4 for SFedAvg and from 7.5 to 15.7 for SFedProx).",
        _TREND,
        rising_ratio,
        timing=True,
    ),
    Claim(
        "Fig. 4",
        "The communication rounds decrease slightly as the participation rises.",
        _TREND,
        trend(_FIG4, ["rounds"], "participation", -1),
    ),
    Claim(
        "Fig. 4",
        "The total time increases with the participation.",
        _TREND,
        trend(_FIG4, ["total_time"], "participation", 1),
        timing=True,
    ),
    Claim(
        "Fig. 4",
        "FedEPM has the lowest median rounds at every participation.",
        _SMALLEST,
        extreme(_FIG4, ["rounds"]),
    ),
    Claim(
        "Fig. 4",
        "FedEPM has the lowest median total time at every participation.",
        _SMALLEST,
        extreme(_FIG4, ["total_time"]),
        timing=True,
    ),
    Claim(
        "Fig. 5",
        "Epsilon does not change the communication rounds greatly.",
        f"the largest median over the values of epsilon is at most {NOT_GREATLY:g} times the "
        "smallest",
        steady(_FIG5, ["rounds"], "epsilon"),
    ),
    Claim(
        "Fig. 5",
        "Epsilon does not change the total time greatly.",
        f"the largest median over the values of epsilon is at most {NOT_GREATLY:g} times the "
        "smallest",
        steady(_FIG5, ["total_time"], "epsilon"),
        timing=True,
    ),
    Claim(
        "Fig. 5",
        "SNR increases with epsilon (the sentence in the paper says rho, by a slip).",
        _TREND,
        trend(_FIG5, ["snr"], "epsilon", 1),
    ),
    Claim(
        "Fig. 5",
        "FedEPM needs the fewest rounds at every epsilon.",
        _SMALLEST,
        extreme(_FIG5, ["rounds"]),
    ),
    Claim(
        "Fig. 5",
        "FedEPM has the lowest total time at every epsilon.",
        _SMALLEST,
        extreme(_FIG5, ["total_time"]),
        timing=True,
    ),
    Claim(
        "Fig. 5",
        "FedEPM has the smallest SNR, that is, relatively the most noise.",
        _SMALLEST,
        extreme(_FIG5, ["snr"]),
    ),
)
