"""What clients tell the server when they join reaches the hooks and the compiled stages."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from problems import small_data
from runs import assert_agree, both

from fedepm_fast import SFedAvg, make_problem
from fedepm_fast.algorithms import ALGORITHMS, AtClients, AtServer

WEIGHTS = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 6.0])


@functools.cache
def _stages(client: Any) -> tuple[Any, Any]:
    from fedepm_fast.kernels.engine import stage

    @stage
    def aggregate(rows, problem, settings, key, given, state, tau):
        total = 0.0
        state.x[:] = 0.0
        for r in range(state.n_selected[0]):
            i = state.selected[r]
            total += problem.told[0, i]
            for j in range(state.x.size):
                state.x[j] += problem.told[0, i] * state.Z[i, j]
        for j in range(state.x.size):
            state.x[j] /= total
        return True

    @stage
    def local_round(rows, problem, settings, key, given, state, tau):
        for r in range(state.n_selected[0]):
            i = state.selected[r]
            state.mu[i] = 1.0
            for j in range(state.x.size):
                state.W[i, j] = state.x[j] - problem.told[1, i] * state.G[i, j]
        return True

    return aggregate, local_round


@pytest.fixture
def weighted():
    @dataclass(frozen=True)
    class Weighted(SFedAvg):
        name: ClassVar[str] = "weighted_test"
        tells: ClassVar[tuple[str, ...]] = ("weight", "rate")

        def told(self, problem):
            return np.array([WEIGHTS, 1.0 / problem.lipschitz()])

        def aggregate(self, server: AtServer):
            chosen = server.selected
            return np.average(server.Z[chosen], axis=0, weights=server.told["weight"][chosen])

        def local_round(self, clients: AtClients):
            new = clients.x - clients.told["rate"][:, None] * clients.G
            return new, np.ones(len(new))

        def stages(self, client):
            return _stages(client)

    yield Weighted
    del ALGORITHMS._found["weighted_test"]


def test_told_numbers_are_those_of_the_selected_clients(weighted):
    algorithm = weighted(local_steps=1, participation=0.5, noise="none")
    problem = make_problem(algorithm, small_data())
    compiled, reference = both(algorithm, small_data(), rounds=5, seed=3)
    assert_agree(compiled, reference)
    # Line by line, with the selections that the run had.
    rates, x, Z = 1 / problem.lipschitz(), np.zeros(5), np.zeros((6, 5))
    from fedepm_fast.participation import clients_per_round, select
    from fedepm_fast.randomness import CounterRandomness

    for tau in range(6):
        S = select(CounterRandomness(3, 0), tau, 6, clients_per_round(0.5, 6), None)
        x = (WEIGHTS[S] @ Z[S]) / WEIGHTS[S].sum()
        np.testing.assert_allclose(reference.history["x"][tau], x, rtol=1e-12, atol=1e-15)
        for i in S:
            Z[i] = x - rates[i] * problem.gradient(i, x)


def test_numbers_of_a_run(weighted):
    found = weighted(local_steps=3)
    assert (found.numbers_sent(10, 4), found.numbers_received(10, 4)) == (52, 50)
    scaffold = ALGORITHMS["scaffold"](local_steps=3)
    assert (scaffold.numbers_sent(10, 4), scaffold.numbers_received(10, 4)) == (51, 90)
    common = ALGORITHMS["scaffold"](local_steps=3, learning_rate="lipschitz")
    assert (common.numbers_sent(10, 4), common.numbers_received(10, 4)) == (51, 94)
    sizes = np.array([1, 7])
    for name, gradients in {"fedepm": 1, "sfedavg": 3, "sfedprox": 9, "scaffold": 3}.items():
        each = ALGORITHMS[name](local_steps=3).gradients_per_round(sizes)
        assert each.tolist() == [gradients, gradients]
