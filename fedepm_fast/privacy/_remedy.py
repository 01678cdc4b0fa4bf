"""What would make the noise of a plan affordable: other numbers, each tried by planning anew.

Less noise asks for more rounds, over which the budget is split: by how much the loss rises goes up
and down with it. So plans of less and less noise are tried until they all do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._settings import SIGNAL, short_of_clients

if TYPE_CHECKING:
    from .private_plan import PrivatePlan

#: A rise that hardly shows: about half a percent of accuracy.
AFFORDABLE = 0.01
#: What is left of that for rows that do not come out even.
_EVEN = 0.99
#: Numbers are tried a quarter apart, so many of them, until so many in turn do.
_APART, _TRIED, _IN_TURN = 1.25, 80, 12
#: Epsilon above which nobody calls a run private.
_LARGEST_EPSILON = 1e4
#: Clients up to which a number of them is planned anew: beyond, the noise of more is known.
_MANY = 100_000


class Remedy(NamedTuple):
    """Numbers of two digits, any of which does by itself; None where none was found."""

    to: float
    """So far above the optimum the mean loss is expected to end at most."""
    ends: bool
    """Whether it is; or, with few rounds of one's own, is only raised by no more by noise."""
    clients: int | None
    """Of as many rows each as those of the plan, in turn."""
    rows: int | None
    """Of the same clients, in proportion; None where whole clients are hidden."""
    epsilon: float | None
    """Of every client."""


def remedy_of(plan: PrivatePlan) -> Remedy | None:
    """What ends, planned anew, no more than `AFFORDABLE` above the optimum; or, where rounds of
    one's own always leave more of the way, whose noise raises the loss by no more. None if nothing
    does, as far as it is tried."""
    to, most = AFFORDABLE, _EVEN * AFFORDABLE
    if plan.mechanism.neighbours == "client":
        least = SIGNAL * short_of_clients(plan.mechanism.order, 1e-9)
        if least > most:  # as far as such runs go
            to, most = math.ceil(1e3 * least) / 1e3, least
    if plan.again is None:
        return None
    for ends in (True, False):
        if not ends and plan.rise <= most:  # it is the rounds that are too few
            break
        above = attrgetter("short" if ends else "rise")
        numbers = _numbers(plan, above, most)
        if any(number is not None for number in numbers):
            return Remedy(to, ends, *numbers)
    return None


def _numbers(
    plan: PrivatePlan, above: Callable[[PrivatePlan], float], most: float
) -> tuple[int | None, int | None, float | None]:
    """The clients, the rows and the epsilon with which plans are above by no more than `most`."""

    def does(made: PrivatePlan) -> bool:
        return above(made) <= most

    again: Any = plan.again
    sizes, mechanism = plan.client_sizes, plan.mechanism
    m, d = len(sizes), int(sizes.sum())
    # The noise of a sum of all clients is that of one.
    power = 0.5 if plan.trust == "clients" else 1.0
    clients = _least(
        m,
        lambda number: does(again(noise=(m / number) ** power)),
        lambda number: number > _MANY or does(again(sizes=np.resize(sizes, int(number)))),
    )
    rows = None
    if mechanism.neighbours == "record":
        rows = _least(
            d,
            lambda number: does(again(noise=d / number)),
            lambda number: does(again(sizes=_in_proportion(sizes, int(number)))),
        )
    epsilon = mechanism.total_epsilon
    assert epsilon is not None
    alike, once = again(total_epsilon=epsilon), mechanism.noise_multiplier(epsilon, 1)
    epsilon = _least(
        epsilon,
        lambda number: does(
            alike.again(total_epsilon=number, noise=mechanism.noise_multiplier(number, 1) / once)
        ),
        lambda number: does(again(total_epsilon=number)),
        most=_LARGEST_EPSILON,
    )
    return (
        None if clients is None else int(clients), None if rows is None else int(rows), epsilon
    )  # fmt: skip


def _least(
    now: float,
    does: Callable[[float], bool],
    surely: Callable[[float], bool],
    most: float = math.inf,
) -> float | None:
    """The least number of two digits, at least `now`, from which on all do, as far as they are
    tried; it, planned anew with all that it changes, does surely."""
    low, high, in_turn = _place(now), None, 0
    for k in range(_TRIED):
        place = _place(now * _APART**k)
        if _number(place) > most:
            break
        if not does(_number(place)):
            low, high, in_turn = place, None, 0
            continue
        high = place if high is None else high
        in_turn += 1
        if in_turn == _IN_TURN:
            break
    if high is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if does(_number(middle)):
            high = middle
        else:
            low = middle
    for place in range(high, high + 90):
        if _number(place) > most:
            return None
        if surely(_number(place)):
            return _number(place)
    return None


def _place(value: float) -> int:
    """The place of the least number of two digits that is not below `value`: 90 a decade."""
    tens = math.floor(math.log10(value)) - 1
    return 90 * tens + math.ceil(float(f"{value / 10.0**tens:.9g}")) - 10


def _number(place: int) -> float:
    tens, digits = divmod(place, 90)
    return float(f"{digits + 10}e{tens}")


def _in_proportion(sizes: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Sizes of so many rows in all, in the proportions of `sizes`."""
    ends = np.cumsum(sizes.astype(object)) * rows // int(sizes.sum())
    return np.maximum(np.diff(ends, prepend=0).astype(np.int64), 1)
