"""Runs of every kind against the results that an earlier version gave for them.

`tests/recorded/recorded_runs.npz` holds them; ``python tests/test_recorded_runs.py`` writes it
anew, which is for deliberate changes of results only.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import recorded_runs

from fedepm_fast import run
from fedepm_fast.kernels._jit import JIT_DISABLED

RECORDED = Path(__file__).parent / "recorded" / "recorded_runs.npz"
RUNS = dict(recorded_runs.configurations())
KEPT = ("x", "W", "Z", "history/objective")


@pytest.mark.skipif(JIT_DISABLED, reason="compiled code was recorded")
@pytest.mark.filterwarnings("ignore::fedepm_fast.DivergenceWarning")
def test_results_stay():
    """To rounding, which belongs to a kind of processor."""
    with np.load(RECORDED) as recorded:
        assert {key.split("/")[0] for key in recorded} == set(RUNS)
        for name, arguments in RUNS.items():
            data = recorded_runs.data(*arguments["data"])
            found = recorded_runs.arrays(run(**{**arguments, "data": data}))
            for key in KEPT:
                want = recorded[f"{name}/{key}"]
                np.testing.assert_allclose(
                    found[key], want, rtol=1e-13, atol=1e-13 * np.abs(want).max(),
                    err_msg=f"{name}: {key}",
                )  # fmt: skip


def test_names_of_runs_stay():
    """A store finds its runs by these."""
    names = [run_.run_id for sweep in recorded_runs.sweeps() for run_ in sweep.runs]
    assert names == (RECORDED.with_suffix(".txt")).read_text().split()


if __name__ == "__main__":
    kept = {}
    for name, arguments in RUNS.items():
        data = recorded_runs.data(*arguments["data"])
        found = recorded_runs.arrays(run(**{**arguments, "data": data}))
        kept |= {f"{name}/{key}": found[key] for key in KEPT}
    np.savez_compressed(RECORDED, **kept)
    names = [run_.run_id for sweep in recorded_runs.sweeps() for run_ in sweep.runs]
    RECORDED.with_suffix(".txt").write_text("\n".join(names) + "\n")
