"""A preparation that is declared, and learned from no data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._common.validation import (
    ArgumentTypeError,
    ArgumentValueError,
    check_choice,
    check_parameters,
    check_real,
)
from ._levels import MISSING_LEVEL, OTHER
from ._prepared import Prepared
from ._rules import ColumnRule, Feature
from ._table import unique

_KNOWN = ("kind", "bounds", "mean", "sd", "levels", "other", "missing")


def declared(columns: Mapping[str, Any], *, intercept: bool) -> Prepared:
    """`Preparation.public`."""
    if not isinstance(columns, Mapping) or not columns:
        raise ArgumentTypeError(
            "columns", f"must be a mapping of at least one column, got {columns!r}"
        )
    rules: list[ColumnRule] = []
    features: list[Feature] = []
    for name, told in zip(unique(columns), columns.values(), strict=True):
        where = f"columns[{name!r}]"
        if not isinstance(told, Mapping):
            raise ArgumentTypeError(
                where, f"must be a mapping such as {{'bounds': [0, 1]}}, got {told!r}"
            )
        check_parameters("column", told, _KNOWN)
        given = sorted({"bounds", "mean", "levels"} & set(told))
        kind = check_choice(
            f"{where}: kind", told.get("kind", _kind(given)), ("numeric", "boolean", "category")
        )
        if len(given) != (0 if kind == "boolean" else 1) or (kind == "category") != (
            "levels" in told
        ):
            raise ArgumentValueError(
                where,
                "must have bounds, or mean and sd, or levels, or the kind 'boolean', got "
                f"{', '.join(map(str, told)) or 'nothing'}",
            )
        if kind == "category":
            rule, found = _category(name, told, where)
        else:
            rule, found = _number(name, kind, told, where)
        rules.append(rule)
        features += found
    return Prepared(tuple(rules), tuple(features), intercept, declared=True)


def _kind(given: list[str]) -> str:
    return "category" if "levels" in given else "numeric"


def _number(
    name: str, kind: str, told: Mapping[str, Any], where: str
) -> tuple[ColumnRule, list[Feature]]:
    bounds = None
    center, scale = 0.5, 0.5  # of 0 and 1
    if "bounds" in told:
        try:
            low, high = told["bounds"]
        except (TypeError, ValueError):
            raise ArgumentTypeError(
                f"{where}: bounds", f"must be two numbers, got {told['bounds']!r}"
            ) from None
        low = check_real(f"{where}: bounds", low)
        high = check_real(f"{where}: bounds", high, low=low, open_low=True)
        bounds, center, scale = (low, high), low + (high - low) / 2, (high - low) / 2
    elif "mean" in told:
        center = check_real(f"{where}: mean", told["mean"])
        scale = check_real(f"{where}: sd", told.get("sd"), low=0.0, open_low=True)
    features = [Feature(name, name, "value", None, center, scale)]
    if told.get("missing"):
        features.append(Feature(f"{name} (missing)", name, "missing"))
    rule = ColumnRule(
        name, kind, None, fill=center, deviation=None if bounds else scale, bounds=bounds
    )
    return rule, features


def _category(name: str, told: Mapping[str, Any], where: str) -> tuple[ColumnRule, list[Feature]]:
    given = told["levels"]
    if isinstance(given, str) or not all(isinstance(level, str) for level in given):
        raise ArgumentTypeError(f"{where}: levels", f"must be texts, got {given!r}")
    levels = unique(given)
    if told.get("other"):
        levels.append(OTHER)
    if told.get("missing"):
        levels.append(MISSING_LEVEL)
    if len(levels) < 2:
        raise ArgumentValueError(f"{where}: levels", f"must be at least two, got {levels}")
    rule = ColumnRule(
        name, "category", None, levels=dict.fromkeys(levels), reference=levels[0], declared=True
    )
    return rule, [Feature(f"{name}={level}", name, "level", level) for level in levels[1:]]
