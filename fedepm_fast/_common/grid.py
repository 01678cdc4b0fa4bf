"""Axes and their combinations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Zips = Sequence[str] | Sequence[Sequence[str]]

#: Combinations of a grid, and runs of a sweep, at most: they are held one by one.
LARGEST = 1_000_000


def grid(make: Callable[..., Any], /, *, zip: Zips = (), **axes: Any) -> list[Any]:
    """What `make` gives for every combination of the axes.

    Parameters
    ----------
    make : callable
        An algorithm, a partitioner, a rule, or anything else that takes the axes by name.
    zip : sequence of str, or of sequences of str
        Axes that move together instead of being combined, in one group or several.
    **axes
        A list, tuple, range or array is an axis; any other value is fixed. The last axis
        varies fastest.

    Returns
    -------
    list

    Raises
    ------
    ValueError, TypeError
        Naming the axis: an empty list, zipped lists of different lengths, or what `make`
        refuses. Also if there are more than a million combinations.

    Examples
    --------
    >>> from fedepm_fast import FedEPM, grid
    >>> [a.local_steps for a in grid(FedEPM, local_steps=[4, 12], epsilon=[0.1, 0.5])]
    [4, 4, 12, 12]
    >>> both = grid(FedEPM, zip=("lam", "eta"), lam=[1e-6, 2e-6], eta=[2e-6, 4e-6])
    >>> [(a.lam, a.eta) for a in both]
    [(1e-06, 2e-06), (2e-06, 4e-06)]
    """
    if not callable(make):
        raise TypeError(f"make must be a class or a function, such as FedEPM, got {make!r}")
    return [make(**values) for values in combinations(axes, zip)]


def check_count(what: str, *lengths: int) -> None:
    """Raise ValueError if the product of the lengths is more than can be held one by one."""
    count = math.prod(lengths)
    if count > LARGEST:
        raise ValueError(f"there must be at most {LARGEST:,} {what}, got {count:,}")


def is_axis(value: Any) -> bool:
    """Whether a value is a list of values."""
    return isinstance(value, (list, tuple, range, np.ndarray))


def as_axis(name: str, value: Any) -> list[Any]:
    """The values of an axis, or the one value of what is fixed."""
    if not is_axis(value):
        return [value]
    if isinstance(value, range):
        check_count(f"values of {name}", len(value))
    values = value.tolist() if isinstance(value, np.ndarray) else list(value)
    if not isinstance(values, list) or not values:
        raise ValueError(f"{name} must not be an empty list")
    return values


def combinations(axes: Mapping[str, Any], zips: Zips = ()) -> Iterator[dict[str, Any]]:
    """Every combination of the axes, those of a group of `zips` moving together."""
    groups = check_zips(zips)
    values = {name: as_axis(name, value) for name, value in axes.items()}
    blocks: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for name in values:
        group = next((g for g in groups if name in g), (name,))
        if group in blocks:
            continue
        for member in group if len(group) > 1 else ():
            if member not in axes or not is_axis(axes[member]):
                raise ValueError(f"zip joins {' and '.join(group)}, but {member} is not a list")
        lengths = [len(values[member]) for member in group]
        if len(set(lengths)) > 1:
            counts = ", ".join(f"{n} of {name}" for name, n in zip(group, lengths, strict=True))
            raise ValueError(f"zip must join lists of the same length, got {counts}")
        blocks[group] = list(zip(*(values[member] for member in group), strict=True))
    check_count("combinations", *map(len, blocks.values()))
    for group in groups:
        if group not in blocks:
            raise ValueError(f"zip joins {' and '.join(group)}, but {group[0]} is not a list")
    for chosen in itertools.product(*blocks.values()):
        found = {
            name: value
            for group, of_group in zip(blocks, chosen, strict=True)
            for name, value in zip(group, of_group, strict=True)
        }
        yield {name: found[name] for name in axes}


def check_zips(zips: Any) -> list[tuple[str, ...]]:
    """Groups of names, each name in one group."""
    if isinstance(zips, str) or not isinstance(zips, Iterable):
        raise TypeError(f"zip must be a list of names, or of lists of names, got {zips!r}")
    groups = list(zips)
    if groups and all(isinstance(name, str) for name in groups):
        groups = [groups]
    for group in groups:
        if (
            isinstance(group, str)
            or not isinstance(group, Sequence)
            or not all(isinstance(name, str) for name in group)
            or len(group) < 2
        ):
            raise TypeError(f"zip must be lists of two names or more, got {group!r}")
    names = [name for group in groups for name in group]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"zip must name an axis once, got {twice[0]} twice")
    return [tuple(group) for group in groups]
