"""A small PyTorch model trained by FedEPM over clients, each with rows of its own.

The clients' losses are callables of flat vectors; one model serves them all, in turn.
"""

from __future__ import annotations

import numpy as np

from fedepm_fast import FedEPM, run_callables
from fedepm_fast.torch import FlatModel, torch

CLIENTS, ROWS = 8, 60
torch.manual_seed(0)
torch.set_num_threads(1)  # there is too little to share
model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
flat = FlatModel(model)
cross_entropy = torch.nn.functional.cross_entropy

# Two rings, of which each client sees a sector. No line tells them apart.
rng = np.random.default_rng(0)
X, y = [], []
for i in range(CLIENTS):
    label = rng.integers(0, 2, ROWS)
    angle = rng.uniform(i, i + 3, ROWS) * 2 * np.pi / CLIENTS
    radius = 1 + label + 0.15 * rng.normal(size=ROWS)
    points = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    X.append(torch.tensor(points, dtype=torch.float32))
    y.append(torch.tensor(label))

losses = [flat.loss(cross_entropy, *rows) for rows in zip(X, y, strict=True)]
algorithm = FedEPM(noise="none", local_steps=5, mu0=1.0, alpha=1.0, lam=1e-4, eta=0.05)
result = run_callables(algorithm, losses, start=flat.x, rounds=60)

flat.load(result.x)
with torch.no_grad():
    share = (model(torch.cat(X)).argmax(1) == torch.cat(y)).float().mean().item()
first, last = result.history["objective"][[0, -1]] / CLIENTS
print(
    f"{flat.features} parameters over {CLIENTS} clients: f/m {first:.3f} -> {last:.3f}, "
    f"{100 * share:.0f} % of the rows right"
)
assert last < first / 3 and share > 0.95
