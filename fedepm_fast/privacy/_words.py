"""What a plan says before it has seen a row: the guarantee, the noise, and what that will cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .._common.text import pairs
from ..guarantees import OWN_MECHANISM
from ._remedy import AFFORDABLE, remedy_of
from ._settings import SIGNAL

if TYPE_CHECKING:
    from .private_plan import PrivatePlan

#: Rise of the mean loss by noise from which it is said to be larger than the signal: columns of
#: real tables lower the mean loss of two classes by 0.05 to 0.3, and 0.693 is all there is.
TOO_MUCH = 0.05
#: Accuracy that is lost, over the rise of the mean loss. Noise of variance s^2 in the margins of
#: two classes lifts the mean loss by ``E[sigma'] s^2 / 2``, about 0.075 s^2, and turns
#: predictions of rows near the boundary, which costs ``p(0) s^2 / 4`` of accuracy, p(0) the
#: density of the margins at 0, 0.1 to 0.2 as a rule.
_ACCURACY = 0.5


def in_words(plan: PrivatePlan) -> str:
    """What printing a plan says."""
    m, d = len(plan.client_sizes), int(plan.client_sizes.sum())
    loss = plan.objective.name
    rows = "" if _whole(plan) else f"{_count(d, 'row')}, "  # which are hidden, then
    title = f"Private plan: {_count(m, 'client')}, {rows}"
    title += f"{_count(plan.n_features, 'column')}, {loss}"
    return "\n".join([title, *pairs(_facts(plan), margin="  ")])


def _facts(plan: PrivatePlan) -> list[tuple[str, str]]:
    mechanism, algorithm = plan.mechanism, plan.algorithm
    assert mechanism.total_epsilon is not None and mechanism.clip is not None
    rounds = _count(plan.rounds, "round")
    if algorithm.participation < 1:
        rounds += f" of {100 * algorithm.participation:g} % of the clients"
    if plan.kept > 1:
        rounds += f"; the model is the mean of the last {plan.kept} points"
    if plan.radius is not None:
        spent = _count(plan.settings.moments, "upload")
        rounds = f"second moments once, for as much as {spent}, then {rounds}"
    if plan.columns is not None:
        rounds = f"means and variances of columns once, for as much as an upload, then {rounds}"
    noise = (
        f"{mechanism.name}, {'moves' if _whole(plan) else 'rows'} clipped to "
        f"{mechanism.clip:.3g} in L{mechanism.order}; about "
        f"{plan.deviation:.2g} (sd) in a coefficient of columns of root mean square 1"
        f"{_classes(plan)}"
    )
    trusted = "nobody: every client adds all of the noise that hides its records"
    against = ""
    if _summed(plan):
        trusted = f"secure sums, and {100 * plan.honest:g} % of the clients"
        trusted += " of each" * (algorithm.participation < 1)
        against = ", against a server that sees secure sums only"
    guarantee = mechanism.guarantee(mechanism.total_epsilon) + against
    found = [
        ("privacy guarantee", guarantee if mechanism.is_checked() else OWN_MECHANISM),
        ("trusted", trusted),
        ("released", rounds),
        ("noise", noise),
        ("expected", expected(plan)),
    ]
    if plan.short > AFFORDABLE and (text := remedy(plan)):
        found.append(("affordable", text))
    return found


def _classes(plan: PrivatePlan) -> str:
    """What the deviation takes for granted: it is known after the run only."""
    if plan.objective.task == "regression" or _whole(plan):
        return ""
    return ", more if a class is rare"


def expected(plan: PrivatePlan) -> str:
    """What the noise will do to the mean loss."""
    what = "the noise, with what clipping leaves of the way, raises" * _whole(plan)
    text = f"{what or 'the noise raises'} the mean loss by about {plan.rise:.2g}{_beside(plan)}"
    if _drowned(plan):
        text += ": it drowns most signals"
    elif plan.objective.task != "regression":
        lost = _ACCURACY * plan.rise
        text += f", and costs {f'roughly {lost:.1%} of' if lost >= 5e-4 else 'hardly any'} accuracy"
    if plan.left is None:
        text += _unfinished(plan)
    if plan.left is not None:
        mean, worst = plan.left
        text += (
            f"; on synthetic tables of two classes, columns about as declared, such runs went "
            f"{1 - mean:.0%} of the way to the "
            f"optimum in the mean, and {1 - worst:.0%} or less on one in ten"
        )
    return text


def _unfinished(plan: PrivatePlan) -> str:
    """Where a plan ends, if its rounds leave a part of the way beside which noise is not all."""
    if plan.short <= 1.1 * plan.rise:
        return ""
    return f"; with what its rounds leave of the way it ends {plan.short:.2g} above the optimum"


def _drowned(plan: PrivatePlan) -> bool:
    """Whether little of a signal is left."""
    left = SIGNAL * plan.left[0] if plan.left is not None else plan.short
    return max(plan.rise, left) > TOO_MUCH


def _beside(plan: PrivatePlan) -> str:
    """What to read a rise of the mean loss with."""
    if plan.objective.task == "regression":
        return ", of labels of deviation 1"
    return f", of {math.log(max(plan.objective.n_outputs, 2)):.2g} at the start"


def remedy(plan: PrivatePlan) -> str:
    """What would make the noise affordable; empty if nothing was found that does."""
    found = remedy_of(plan)
    if found is None:
        return ""
    ways = []
    if found.clients is not None:
        each = "" if _whole(plan) else " of as many rows each"
        ways.append(f"{found.clients:,} clients{each}")
    if found.rows is not None:
        ways.append(f"{found.rows:,} rows at these clients")
    if found.epsilon is not None:
        ways.append(f"epsilon {found.epsilon:g}")
    what = "the mean loss is expected to end within {:g} of the optimum then"
    if not found.ends:
        what = "the noise is expected to raise the mean loss by no more than {:g} then"
    return f"{', or '.join(ways)}: {what.format(found.to)}"


def _whole(plan: PrivatePlan) -> bool:
    """Whether whole clients are hidden."""
    return plan.mechanism.neighbours == "client"


def _summed(plan: PrivatePlan) -> bool:
    return plan.trust != "clients"


def warning_of(plan: PrivatePlan) -> str:
    """What is to be known before a private run; empty if its noise is small enough."""
    if not _drowned(plan):
        return ""
    m, d = len(plan.client_sizes), int(plan.client_sizes.sum())
    rows = "" if _whole(plan) else f"{_count(d, 'row')}, "
    text = remedy(plan)
    return (
        f"the noise is larger than the signal: with {_count(m, 'client')}, {rows}"
        f"{_count(plan.n_features, 'column')} and epsilon {plan.mechanism.total_epsilon:g} "
        f"it is expected to raise the mean loss by about {plan.rise:.2g}{_beside(plan)}"
        f"{_unfinished(plan)}{'; ' * bool(text)}{text}"
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
