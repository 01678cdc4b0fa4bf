"""PyTorch models as losses, and tensors in the kernels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import small_data

from fedepm_fast import FedAvg, FedEPM, Logistic, run, run_callables
from fedepm_fast.federation.client import Client
from fedepm_fast.kernels.ens import ens
from fedepm_fast.torch import FlatModel

F = torch.nn.functional
ALGORITHM = FedEPM(mu0=5.0)


def linear(dtype=torch.float64):
    """A logistic model of five features without intercept, at zero, and its clients' losses."""
    data = small_data()
    model = torch.nn.Linear(5, 1, bias=False, dtype=dtype)
    torch.nn.init.zeros_(model.weight)
    flat = FlatModel(model)
    losses = []
    for i in range(data.n_clients):
        a, b = data.client(i)
        rows = torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype)[:, None]
        losses.append(flat.loss(F.binary_cross_entropy_with_logits, *rows))
    return data, flat, losses


@pytest.mark.parametrize(
    ("dtype", "rtol"), [(torch.float64, 1e-12), (torch.float32, 1e-4)], ids=["float64", "float32"]
)
def test_a_linear_model_follows_run(dtype, rtol):
    data, flat, losses = linear(dtype)
    got = run_callables(ALGORITHM, losses, flat.x, samples=data.client_sizes, rounds=8, seed=4)
    want = run(ALGORITHM, data, objective=Logistic(beta=0.0), rounds=8, seed=4)
    assert got.x.dtype == np.float64
    for name in ("x", "W", "Z"):
        a, b = getattr(got, name), getattr(want, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.abs(want.Z).max())
    np.testing.assert_allclose(got.history["objective"], want.history["objective"], rtol=rtol)


def test_batches_of_a_linear_model_follow_run():
    algorithm = FedAvg(local_steps=2, batch_size=4, learning_rate=0.5)
    data, flat, losses = linear()
    got = run_callables(algorithm, losses, flat.x, samples=data.client_sizes, rounds=5, seed=4)
    want = run(algorithm, data, objective=Logistic(beta=0.0), rounds=5, seed=4)
    for name in ("x", "W", "Z"):
        a, b = getattr(got, name), getattr(want, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(want.Z).max())


def test_flat_model():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    frozen = model[0].bias.requires_grad_(False)
    before = [p.detach().clone() for p in model.parameters()]
    flat = FlatModel(model)
    assert flat.features == 12 + 8 + 2
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    x = np.random.default_rng(0).normal(size=22)
    X, y = torch.randn(11, 3), torch.arange(11) % 2
    whole, batches = (flat.loss(F.cross_entropy, X, y, batch_size=size) for size in (None, 4))
    value, gradient = whole(x)
    assert type(value) is float and gradient.dtype == np.float64 and gradient.shape == (22,)
    # The parameters are in the vector, in the order of the model, and the frozen one is not.
    np.testing.assert_array_equal(flat.x, x.astype(np.float32))
    np.testing.assert_array_equal(model[0].weight.detach().numpy().ravel(), flat.x[:12])
    assert torch.equal(frozen, before[1])
    model.zero_grad()  # as an optimiser's loop does
    some, part = batches(x)
    assert some == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(part, gradient, atol=1e-6)
    np.testing.assert_array_equal(whole(x)[1], gradient)  # nothing is left over

    client = Client(
        ALGORITHM, lambda x: whole(x)[1].astype(x.dtype), index=0, clients=1, features=22, samples=1
    )
    state, _ = client.join(x.astype(np.float32))
    assert client.train(state, x.astype(np.float32), 0)[1].dtype == np.float32


def test_what_no_flat_model_is():
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got function"):
        FlatModel(lambda x: x)
    with pytest.raises(ValueError, match=r"trainable parameters of one dtype .* got none"):
        FlatModel(torch.nn.Tanh())
    mixed = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1).double())
    with pytest.raises(ValueError, match=r"got torch.float32 on cpu, torch.float64 on cpu"):
        FlatModel(mixed)
    flat = FlatModel(torch.nn.Linear(2, 1))
    with pytest.raises(ValueError, match=r"x must have shape \(3,\), got \(2,\)"):
        flat.load(np.zeros(2))
    with pytest.raises(ValueError, match=r"finite in the dtype of the model, torch.float32"):
        flat.load(np.full(3, 1e300))
    with pytest.raises(ValueError, match="X and y must hold the same rows, at least 1: 2 and 1"):
        flat.loss(F.mse_loss, torch.ones(2, 2), torch.ones(1, 1))
    FlatModel(flat.model)
    with pytest.raises(RuntimeError, match="no longer those of its FlatModel"):
        flat.load(np.zeros(3))


def test_tensors_in_kernels_without_a_copy():
    Z, out = torch.randn(7, 40), torch.empty(40)
    found = ens(Z, 0.5, out=out)
    assert np.shares_memory(found, out.numpy())
    np.testing.assert_array_equal(out.numpy(), ens(Z.numpy(), 0.5))
    with pytest.raises(TypeError, match=r"z must be an array of numbers: .*detach"):
        ens(Z.clone().requires_grad_(), 0.5)
    with pytest.raises(TypeError, match="out must be an array in this memory"):
        ens(Z, 0.5, out=torch.empty(40, device="meta"))
    with pytest.raises(TypeError, match="out must be an array of dtype float32, got float64"):
        ens(Z, 0.5, out=torch.empty(40, dtype=torch.float64))
