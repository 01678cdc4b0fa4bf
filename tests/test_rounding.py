"""Numbers in advice hold as they are printed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedepm_fast._common.rounding import at_least, at_most


@given(st.floats(1e-290, 1e290))
def test_two_digits_are_on_the_side_that_was_asked_for(value):
    low, high = at_most(value), at_least(value)
    assert float(low) <= value <= float(high)
    assert float(high) - float(low) <= 0.1001 * value
    assert f"{value:.2g}" in (low, high)


def test_what_has_two_digits_stays():
    for value, text in ((0.3, "0.3"), (0.94, "0.94"), (12.0, "12"), (6.0, "6"), (0.0, "0")):
        assert at_most(value) == at_least(value) == text
    assert (at_most(0.909), at_least(0.901)) == ("0.9", "0.91")
    assert (at_most(999.0), at_least(999.0)) == ("9.9e+02", "1e+03")
    assert at_most(float("inf")) == "inf"
