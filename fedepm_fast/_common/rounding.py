"""Numbers that are promises: rounded to the side on which they hold."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def at_most(value: float) -> str:
    """`value` to two digits, not rounded up."""
    return _two_digits(value, ROUND_FLOOR)


def at_least(value: float) -> str:
    """`value` to two digits, not rounded down."""
    return _two_digits(value, ROUND_CEILING)


def _two_digits(value: float, rounding: str) -> str:
    exact = Context(prec=2, rounding=rounding).create_decimal(repr(float(value)))
    return f"{float(exact):.2g}"
