"""Decimals as people write them, ``-12.50``: numbers from which their text follows again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Digits up to which a decimal is a whole number over a power of ten, both of which floats hold:
#: the quotient is rounded as reading the decimal would, and has its digits when it is written.
_DIGITS = 15
_POWERS = 10.0 ** np.arange(_DIGITS + 1)
#: One cell in so many may be written otherwise.
_ODD = 16
_POINT, _MINUS, _ZERO = b".-0"
_LETTERS = b"0123456789.-\0"
#: With points and signs gone, what is left are whole numbers with a blank behind each.
_BLANKS = bytes(letter or ord(" ") for letter in range(256))


class Decimals(NamedTuple):
    """How cells are written, which with their numbers is their text.

    Attributes
    ----------
    d : int
        How many there are.
    places : ndarray of uint8, shape (d,) or (1,)
        Digits behind the point, 0 where there is none; (1,) if all cells have as many.
    odd : mapping of int to str
        Cells that are written otherwise, such as missing ones.
    """

    d: int
    places: NDArray[np.uint8]
    odd: Mapping[int, str]

    def text(self, values: NDArray[np.float64]) -> str:
        """The cells of the numbers (d,), with a NUL between them."""
        places = np.broadcast_to(self.places, self.d).tolist()
        cells = list(map("%.*f".__mod__, zip(places, values.tolist(), strict=True)))
        for i, cell in self.odd.items():
            cells[i] = cell
        return "\0".join(cells)

    def written(self, values: NDArray[np.float64], cell: str) -> NDArray[np.bool_]:
        """Which of the numbers (d,) are written so, blanks aside; shape (d,)."""
        found = np.zeros(self.d, dtype=bool)
        if (read := decimals(cell)) is not None:
            value, how = read
            found = (values == value) & (self.places == how.places)
            found &= np.signbit(values) == np.signbit(value)
        for i, other in self.odd.items():
            found[i] = other.strip() == cell
        return found


def decimals(block: str) -> tuple[NDArray[np.float64], Decimals] | None:
    """The numbers of cells that are one text, with a NUL between them, and how they are written.

    Returns
    -------
    values : ndarray of shape (d,)
        NaN where a cell is written otherwise.
    how : Decimals
        None instead of both if more than a few are.
    """
    if not block.isascii():
        return None
    raw = bytearray(block.encode("ascii") + b"\0")
    letters = np.frombuffer(raw, dtype=np.uint8)
    ends = np.flatnonzero(letters == 0)
    starts = np.append(0, ends[:-1] + 1)
    begins = starts + (letters[starts] == _MINUS)
    points = np.flatnonzero(letters == _POINT)
    each = len(points) == len(ends) and bool(((starts <= points) & (points < ends)).all())
    of = np.arange(len(ends)) if each else np.searchsorted(ends, points)
    whole = ends.copy()  # where the digits before the point end
    whole[of] = points
    has_point = whole < ends
    is_odd = (whole == begins) | (has_point & (whole == ends - 1))
    is_odd |= ends - begins - has_point > _DIGITS
    is_odd |= (letters[begins] == _ZERO) & (whole - begins > 1)
    is_odd[of[1:][of[1:] == of[:-1]]] = True
    signs = np.flatnonzero(letters == _MINUS)
    is_odd[np.searchsorted(ends, signs[letters[signs - 1] != 0])] = True
    if raw.translate(None, _LETTERS):
        others = np.isin(letters, np.frombuffer(_LETTERS, dtype=np.uint8), invert=True)
        is_odd[np.searchsorted(ends, np.flatnonzero(others))] = True
    d, odd = len(ends), np.flatnonzero(is_odd)
    if len(odd) * _ODD > d:
        return None
    cells = {}
    for i in odd.tolist():
        cells[i] = raw[starts[i] : ends[i]].decode("ascii")
        letters[starts[i] : ends[i] + 1] = _POINT
    numbers = np.fromstring(bytes(raw).translate(_BLANKS, b".-"), dtype=np.int64, sep=" ")
    places = np.where(has_point, ends - whole - 1, 0)
    values = np.full(d, np.nan)
    values[~is_odd] = numbers
    places[is_odd] = 0
    values /= _POWERS[places]
    np.negative(values, out=values, where=begins > starts)
    same = (places == places[0]).all()
    return values, Decimals(d, places[: 1 if same else d].astype(np.uint8), cells)
