"""What clients compute and send in a run, against what is counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from problems import small_data

from fedepm_fast import (
    CurvatureFedEPM,
    FedEPM,
    GivenRandomness,
    Result,
    Scaffold,
    SFedAvg,
    SFedProx,
    run,
    run_callables,
)

M, N = 6, 5
K0 = 4


@pytest.fixture(scope="module")
def data():
    found = small_data()
    assert (found.n_clients, found.n_features) == (M, N)
    return found


@pytest.mark.parametrize(
    ("algorithm", "gradients", "down"),
    [(FedEPM, 1, 1), (SFedAvg, K0, 1), (SFedProx, 3 * K0, 1), (Scaffold, K0, 2)],
)
def test_of_a_run(data, algorithm, gradients, down):
    result = run(algorithm(local_steps=K0, noise="none", participation=0.6), data, rounds=6)
    took_part = 4 * result.rounds  # ceil(0.6 * 6) a round
    assert result.work == {
        "gradients": gradients * took_part,
        # All send where they are at the start, and what they tell.
        "bytes_up": 8 * (N * (M + took_part) + M * len(algorithm.tells)),
        "bytes_down": 8 * N * (M + down * took_part),
    }
    assert {name: result.summary()[name] for name in result.work} == result.work


def test_of_nothing(data):
    work = run(SFedAvg(noise="none"), data, rounds=0).work
    assert work == {"gradients": 0, "bytes_up": 8 * N * M, "bytes_down": 8 * N * M}


def test_of_a_server_that_keeps_models(data):
    result = run(CurvatureFedEPM(), data, stopping="none", max_rounds=3)
    hessian = N * (N + 1) // 2
    assert result.work["gradients"] == M * (1 + 3)
    assert result.work["bytes_up"] == 8 * M * (hessian + 4 * (N + 1) + 3 * hessian)


def test_of_given_selections(data):
    selected = [[0, 1], [2], [3, 4, 5], [1]]
    noise = np.zeros((4, M, N))
    result = run(
        FedEPM(noise="none", mu0=5.0), data, rounds=3,
        randomness=GivenRandomness(selected, noise[0], noise),
    )  # fmt: skip
    assert result.work["gradients"] == 6


def test_of_callables_and_in_files(data, tmp_path):
    losses = [lambda x, t=t: ((x - t) @ (x - t) / 2, x - t) for t in np.arange(12.0).reshape(4, 3)]
    result = run_callables(FedEPM(noise="none", mu0=5.0, eta=1.0), losses, np.zeros(3), rounds=2)
    assert result.work["gradients"] == 2 * 2  # two of four clients, twice
    result.save(tmp_path / "r.npz")
    assert Result.load(tmp_path / "r.npz").work == result.work
    del result.settings["work"]  # as files of earlier versions have it
    assert result.work == {} and result.summary()["gradients"] is None
