"""Stopping rules against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from fedepm_fast.stopping import (
    GRADIENT,
    RISE,
    TARGET,
    VARIANCE,
    NoRule,
    ReleasedRule,
    TargetRule,
    TextRule,
    as_rule,
)

FALLING = [9.0, 7.0, 5.0, 3.0]
BIG = [1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("objective", "gradient", "fired"),
    [
        (FALLING, BIG, ()),
        ([1.0], [1e-10], (GRADIENT,)),
        ([1.0], [2e-8], ()),
        ([5.0, 5.0, 5.0, 5.0], BIG, (VARIANCE,)),
        ([9.0, 5.0, 5.0, 5.0, 5.0], [1.0, *BIG], (VARIANCE,)),
        ([5.0, 5.0, 5.0], BIG[:3], ()),
        ([1.0, 2.0, 1.5, 3.0], [1.0, 1.0, 1.0, 1.1], (RISE,)),
        ([1.0, 2.0, 1.5, 3.0], BIG, ()),
        ([1.0, 2.0, 3.5, 3.0], [1.0, 1.0, 1.0, 1.1], ()),
        ([5.0, 5.0, 5.0, 5.0 + 1e-9], [1.0, 1.0, 1.0, 1.1], (VARIANCE, RISE)),
    ],
)
def test_released_rule(objective, gradient, fired):
    assert ReleasedRule().fired(14, 50, objective, gradient) == fired


def test_released_variance_is_compared_with_its_bound():
    history = [5.0, 5.0, 5.0, 5.0 + 2e-4]
    variance = np.var(history, ddof=1)
    n = variance * (1 + history[-1]) / 1e-9
    assert ReleasedRule().fired(n * 1.01, 9, history, BIG) == (VARIANCE,)
    assert ReleasedRule().fired(n * 0.99, 9, history, BIG) == ()


def test_text_rule():
    rule = TextRule()
    assert rule.fired(14, 50, FALLING, BIG) == ()
    # |sum of the gradients|^2 is m^2 times the squared mean.
    assert rule.fired(14, 50, [1.0], [0.9e-6 / 2500]) == (GRADIENT,)
    assert rule.fired(14, 50, [1.0], [1.1e-6 / 2500]) == ()
    assert rule.fired(14, 50, [5.0] * 4, BIG) == (VARIANCE,)
    history = [-5.0, -5.0, -5.0, -5.0 + 2e-4]
    n = np.var(history, ddof=1) * (1 + abs(history[-1])) / 1e-8
    assert rule.fired(n * 1.01, 9, history, BIG) == (VARIANCE,)
    assert rule.fired(n * 0.99, 9, history, BIG) == ()


def test_no_rule_and_names():
    assert NoRule().fired(14, 50, [5.0] * 9, [0.0] * 9) == ()
    assert as_rule("text") == TextRule()
    rule = ReleasedRule(tolerance=1e-3)
    assert as_rule(rule) is rule
    with pytest.raises(ValueError, match="stopping must be one of 'released', 'text', 'none'"):
        as_rule("paper")
    with pytest.raises(ValueError, match="tolerance must be"):
        ReleasedRule(tolerance=-1)


def test_target_rule():
    rule = TargetRule(0.5)
    assert rule.fired(14, 4, [9.0, 2.1], BIG[:2]) == ()
    assert rule.fired(14, 4, [9.0, 2.0], BIG[:2]) == (TARGET,)  # f/m is the target itself
    assert rule.fired(14, 4, [1.0], BIG[:1]) == (TARGET,)
    assert TargetRule(-3).target == -3.0  # a loss may be negative
    for wrong in (np.nan, np.inf, "low"):
        with pytest.raises((TypeError, ValueError), match="target must be"):
            TargetRule(wrong)
    with pytest.raises(ValueError, match="stopping must say which target, got 'target' alone"):
        as_rule("target")
