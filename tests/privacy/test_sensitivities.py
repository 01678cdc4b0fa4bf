"""A part of the attacks of bench/sensitivities.py."""

from __future__ import annotations

import runpy
from pathlib import Path

ATTACKS = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "sensitivities.py"))["attacks"]


def test_no_neighbours_are_further_apart_than_the_bounds_and_some_nearly_so():
    found = dict(ATTACKS(1600))
    assert len(found) == 14 and all(len(shares) >= 1600 for shares in found.values())
    for name, shares in found.items():
        assert 0.99 < shares.max() <= 1, name
