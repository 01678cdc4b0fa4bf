"""Losses of one's own whose functions, or what they call, are in modules of one's own."""

from __future__ import annotations

import importlib
import re
import sys

import numba
import numpy as np
import pytest

from fedepm_fast import FederatedData, ScalarLoss, run
from fedepm_fast.algorithms import FedAvg
from fedepm_fast.kernels import losses
from fedepm_fast.kernels._jit import JIT_DISABLED

# Helpers that Numba keeps on disk -----------------------------------------------------------

_SQUARE = "import numba\n\n\n@numba.njit\ndef square(r):\n    return r * r\n"
_HALF = "\n\n@numba.njit(cache=True)\ndef half_square(t, y):\n    return 0.5 * square(t - y)\n"


def _value_of(folder, monkeypatch, **files):
    """``value`` of a file that calls `half_square`."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    *_, last = files
    half_square = importlib.import_module(last).half_square
    for name in files:
        monkeypatch.delitem(sys.modules, name)
    return lambda t, y: half_square(t, y)


@pytest.mark.skipif(JIT_DISABLED, reason="nothing is kept")
def test_a_kept_helper_that_calls_another_file_is_refused(tmp_path, monkeypatch):
    """What Numba kept of it would stay as it is when that file changes."""
    files = {"squares": _SQUARE, "halves": f"import numba\nfrom squares import square\n{_HALF}"}
    value = _value_of(tmp_path, monkeypatch, **files)
    message = (
        "value calls half_square, compiled with cache=True, and that square of another file: "
        "Numba would not notice when that one changes; leave out cache=True"
    )
    with pytest.raises(TypeError, match=re.escape(message)):
        ScalarLoss(value=value, gradient=lambda t, y: t - y)


def test_a_kept_helper_of_one_file_is_taken(tmp_path, monkeypatch):
    value = _value_of(tmp_path, monkeypatch, all_halves=_SQUARE + _HALF)
    loss = ScalarLoss(value=value, gradient=lambda t, y: t - y)
    assert loss.loss(np.array([3.0]), np.array([1.0])) == 2.0


# What is compiled, though it was seen before, or has a name like the package's --------------


def _evaluated(value):
    rows = losses.pack(
        np.ones((2, 1)), [1.0, 2.0], [2], loss=losses.scalar_loss(value, lambda t, y: t - y)
    )
    return losses.values(rows, np.zeros(1))[0]


def test_a_name_in_a_module_is_looked_up_anew(tmp_path, monkeypatch):
    """A module that is loaded again has other functions under the same names."""
    (tmp_path / "reloaded.py").write_text(_SQUARE.replace("square", "distance"))
    monkeypatch.syspath_prepend(tmp_path)
    reloaded = importlib.import_module("reloaded")
    assert _evaluated(lambda t, y: reloaded.distance(t - y)) == 2.5
    kept = reloaded.distance  # as a notebook may, in which it could be called instead
    monkeypatch.setattr(reloaded, "distance", numba.njit(lambda r: 10.0 * r * r))
    assert _evaluated(lambda t, y: reloaded.distance(t - y)) == 25.0
    assert kept(3.0) == 9.0


def test_a_module_whose_name_begins_as_the_packages(tmp_path, monkeypatch):
    """Functions of a user's may have what none of the package has, such as closures."""
    (tmp_path / "fedepm_fast_study.py").write_text(
        "def value(t, y):\n"
        "    def inner(r):\n"
        "        return r * r\n\n"
        "    total = 0.0\n"
        "    for part in [inner(t - y) for _ in range(2)]:\n"
        "        total += part\n"
        "    return total\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert _evaluated(importlib.import_module("fedepm_fast_study").value) == 5.0


def test_a_loss_that_raises_gives_no_number():
    def value(t, y):
        if y > 1.5:
            raise ValueError("y is too large")
        return t - y

    with pytest.raises(ValueError, match="y is too large"):
        _evaluated(value)


def test_a_loss_that_raises_in_a_batch_ends_the_run(rng):
    def gradient(t, y):
        if y > 40.0 and t != 0.0:
            raise ValueError("y is too large")
        return t - y

    labels = np.append(rng.normal(size=19), 50.0)
    data = FederatedData(rng.normal(size=(20, 2)), labels, [10, 10])
    loss = ScalarLoss(value=lambda t, y: 0.5 * (t - y) ** 2, gradient=gradient)
    fedavg = FedAvg(learning_rate=0.01, batch_size=4)
    with pytest.raises(ValueError, match="y is too large"):
        run(fedavg, data, objective=loss, rounds=3, seed=1)
