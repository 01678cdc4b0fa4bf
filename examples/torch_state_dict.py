"""ENS of several clients' state_dicts, in torch's memory.

`np.from_dlpack` shares a CPU tensor's memory (so does ``tensor.numpy()``), so that nothing is
copied on the way in or out. Without torch, NumPy arrays, which speak DLPack too, stand in.
"""

from __future__ import annotations

import numpy as np

from fedepm_fast.federation.aggregation import aggregate
from fedepm_fast.kernels.ens import ens

try:
    import torch
except ImportError:
    torch = None
    print("torch is not installed: NumPy arrays stand in for its tensors")

CLIENTS, C = 20, 0.5
SHAPES = {"0.weight": (64, 32), "0.bias": (64,), "2.weight": (10, 64), "2.bias": (10,)}


def tensor(shape):
    return np.empty(shape, np.float32) if torch is None else torch.empty(shape)


def views(row):
    """A state_dict whose tensors lie one after the other in a vector."""
    found, start = {}, 0
    for name, shape in SHAPES.items():
        stop = start + int(np.prod(shape))
        found[name] = row[start:stop].reshape(shape)
        start = stop
    return found


# One tensor for all clients: row i is client i's model, and its state_dict is views of it.
n = sum(int(np.prod(shape)) for shape in SHAPES.values())
every, result = tensor((CLIENTS, n)), tensor((n,))
state_dicts = [views(row) for row in every]
rng = np.random.default_rng(0)
for state in state_dicts:  # the clients' training
    for name, shape in SHAPES.items():
        np.from_dlpack(state[name])[:] = rng.normal(size=shape)

ens(np.from_dlpack(every), C, out=np.from_dlpack(result))
aggregated = views(result)  # what load_state_dict takes

# State_dicts that lie apart, as they come over a network: gathered a block at a time.
apart = {
    name: aggregate([np.from_dlpack(state[name]).ravel() for state in state_dicts], C)
    for name in SHAPES
}

for name, shape in SHAPES.items():
    z = np.stack([np.asarray(state[name]).ravel() for state in state_dicts])
    expected = ens(z, C).reshape(shape)
    np.testing.assert_array_equal(np.asarray(aggregated[name]), expected)
    np.testing.assert_array_equal(apart[name].reshape(shape), expected)
shared = all(
    np.shares_memory(np.from_dlpack(state[name]), np.from_dlpack(every))
    for state in (*state_dicts,)
    for name in SHAPES
)
assert shared
print(f"{CLIENTS} state_dicts of {n:,} parameters aggregated in place, no copy: {shared}")
