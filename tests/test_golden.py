"""The reference replays the authors' program to rounding."""

from __future__ import annotations

import golden
import numpy as np
import pytest

from fedepm_fast import run
from fedepm_fast.stopping import GRADIENT, RISE, VARIANCE

BOUND = 1e-12


@pytest.mark.parametrize("path", golden.files(), ids=lambda path: path.stem)
@pytest.mark.parametrize("engine", ["reference"])
def test_replay(path, engine):
    want = golden.load(path)
    algorithm, data, randomness = golden.setup(want)
    result = run(algorithm, data, randomness=randomness, engine=engine)

    assert result.rounds == want["rounds"]
    assert result.iterations == want["iterations"]
    assert result.reasons == tuple(np.array([VARIANCE, RISE, GRADIENT])[want["stops"]])
    assert golden.relative(result.history["x"], want["x"]) <= BOUND
    for tau, x in enumerate(result.history["x"]):
        assert golden.relative(x, want["x"][tau]) <= BOUND
    np.testing.assert_allclose(result.history["objective"], want["objective"], rtol=BOUND)
    np.testing.assert_allclose(result.history["grad_mean_sq"], want["grad_mean_sq"], rtol=BOUND)
    assert golden.relative(result.x, want["solution"]) <= BOUND
    assert golden.relative(result.W, want["W"]) <= BOUND
    assert golden.relative(result.Z, want["Z"]) <= BOUND
    assert result.accuracy == pytest.approx(float(want["accuracy"]), rel=BOUND)
    assert result.snr == pytest.approx(float(want["snr"]), rel=BOUND)
    # The program has 0 where a client never took part, the result has NaN.
    took_part = ~np.isnan(result.snr_clients)
    assert golden.relative(result.snr_clients[took_part], want["snr_clients"][took_part]) <= BOUND
    assert set(np.flatnonzero(took_part)) == set(want["selected"][: result.rounds].ravel())
    assert not want["snr_clients"][~took_part].any()


def test_every_recorded_run_is_in_the_repository_and_named():
    folder = golden.files()[0].parent
    told = (folder / "README.md").read_text()
    assert all(path.is_file() for path in golden.files())
    others = {path.name for path in folder.iterdir()} - {path.name for path in golden.files()}
    assert all(name in told for name in others - {"README.md"})
    assert "Licence" in told and "MATLAB program" in told
