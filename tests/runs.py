"""The same run by both engines, and what must agree."""

from __future__ import annotations

import numpy as np

from fedepm_fast import run


def both(*args, **kwargs):
    """The same run, compiled and by the reference."""
    return [run(*args, engine=name, **kwargs) for name in ("compiled", "reference")]


def assert_agree(got, want, rtol=1e-12):
    assert (got.rounds, got.reasons) == (want.rounds, want.reasons)
    # x may cancel to nothing, so errors are relative to the uploads that it comes from.
    size = max(np.abs(getattr(want, name)).max() for name in ("x", "W", "Z"))
    for name in ("x", "W", "Z"):
        a, b = getattr(got, name), getattr(want, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * size, err_msg=name)
    assert set(got.history) == set(want.history)
    x = want.history["x"]
    np.testing.assert_allclose(
        got.history["x"], x, rtol=0, atol=rtol * max(size, np.abs(x).max()), err_msg="x"
    )
    np.testing.assert_allclose(got.history["objective"], want.history["objective"], rtol=rtol)
    largest = want.history["grad_mean_sq"].max()
    np.testing.assert_allclose(
        got.history["grad_mean_sq"], want.history["grad_mean_sq"], rtol=rtol, atol=1e-12 * largest
    )
    # The logarithm of |w_i| is known as well as w_i is, which may cancel to nothing, too.
    lengths = np.linalg.norm(want.W, axis=1)[~np.isnan(want.snr_clients)]
    known = rtol * (size / lengths[lengths > 0]).max(initial=1.0)
    np.testing.assert_allclose(got.snr_clients, want.snr_clients, rtol=0, atol=known)
    np.testing.assert_allclose(got.history["snr"], want.history["snr"], rtol=0, atol=known)
    if "accuracy" in want.history:
        # A row on the border may fall to either side, and all rows where x cancels to nothing.
        apart = np.abs(got.history["accuracy"] - want.history["accuracy"])
        assert (apart[np.abs(x).max(axis=1) > 1e-9 * size] < 0.05).all()
    assert (np.diff(got.history["elapsed"]) >= 0).all()
    assert (got.history["local_time"] >= 0).all() and got.history["local_time"][-1] == 0
