"""A whole run of FedEPM in one compiled function of your own, made of the package's kernels.

Nothing in `rounds` touches Python: with ``nogil=True`` it runs beside other threads. The result is
checked against ``fedepm_fast.run``.
"""

from __future__ import annotations

import numba
import numpy as np

from fedepm_fast import FedEPM, datasets, make_problem, run
from fedepm_fast.kernels import losses, noise
from fedepm_fast.kernels.ens import ens_serial, group_size
from fedepm_fast.kernels.local_steps import fedepm_local_steps_raw
from fedepm_fast.kernels.noise import laplace_rows
from fedepm_fast.randomness import INITIAL_NOISE, NOISE

M, SEED, ROUNDS = 20, 7, 10
algorithm = FedEPM(participation=1.0)
problem = make_problem(algorithm, datasets.adult(clients=M, seed=0))
algorithm = algorithm.resolve(problem)

client = losses.client_kernel(problem.rows)
lam, eta = algorithm.weights
mu0, c, alpha, epsilon = algorithm.mu0, algorithm.c, algorithm.alpha, algorithm.epsilon
k0, seed, purpose = algorithm.local_steps, np.uint64(SEED), np.uint64(NOISE)


@numba.njit(nogil=True)
def rounds(count, rows, reg, step, work, memory, W, Z):
    m, n = Z.shape
    x, G, unit = np.empty(n), np.empty((m, n)), np.empty((m, n))
    mu, scale, ones = np.empty(m), np.empty(m), np.ones(m)
    everyone = np.arange(m)
    for tau in range(count):
        ens_serial(Z, lam / eta, None, float(m), 1.0, False, x, memory)
        for i in range(m):
            client(rows, i, x, reg[i], True, G[i], work)
        fedepm_local_steps_raw(
            W, x, G, step, everyone, lam, eta, mu0, c, alpha, k0, tau * k0, W, mu
        )
        for i in range(m):
            scale[i] = 2 * np.abs(G[i]).sum() / (epsilon * mu[i])
        # Factors of one, then standardised to deviations `scale`.
        trial, now = np.uint64(0), np.uint64(tau)
        laplace_rows(seed, trial, purpose, now, everyone.astype(np.uint64), ones, scale, unit)
        Z[:] = W + unit
    ens_serial(Z, lam / eta, None, float(m), 1.0, False, x, memory)
    return x


n = problem.n_parameters
W = np.zeros((M, n))
Z = noise.laplace(SEED, 0, INITIAL_NOISE, 0, np.arange(M), n, standardize=True) / algorithm.mu0
x = rounds(
    ROUNDS,
    problem.rows.arrays,
    problem.reg,
    algorithm.steps(problem.data.client_sizes),
    losses.workspace(problem.rows),
    np.empty((M + 1) * group_size(Z)),
    W,
    Z,
)
expected = run(algorithm, problem.data, seed=SEED, rounds=ROUNDS).x
error = np.abs(x - expected).max() / np.abs(expected).max()
print(f"{ROUNDS} rounds of {M} clients in one compiled function: {error:.1e} from run()")
assert error < 1e-12
