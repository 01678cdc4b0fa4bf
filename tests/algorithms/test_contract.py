"""What every registered algorithm does, and one that is written as a user writes theirs."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import fedepm
from problems import Told, small_data
from scipy import sparse

from fedepm_fast import (
    FedEPM,
    FederatedData,
    Result,
    SFedAvg,
    Store,
    Sweep,
    make_problem,
    plots,
    run,
    run_callables,
    sweep,
    tune,
)
from fedepm_fast._common.parameters import parameters
from fedepm_fast.algorithms import ALGORITHMS, Algorithm
from fedepm_fast.data import sources
from fedepm_fast.federation.client import Client
from fedepm_fast.federation.curvature_client import CurvatureClient
from fedepm_fast.federation.curvature_server import CurvatureServer
from fedepm_fast.federation.server import Server
from fedepm_fast.objectives import ClientProblem

#: A user's own file: momentum at the server, which sends its velocity along; each client keeps a
#: running mean of its gradients. Equations in NumPy, and the same compiled.
OWN = '''
"""Averaging with momentum at the server and at the clients."""

import functools
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedepm_fast.algorithms import Algorithm
from fedepm_fast.kernels._jit import stage
from fedepm_fast.kernels.engine import reader


@dataclass(frozen=True)
class HeavyBall(Algorithm):
    """Averaging with momentum.

    Parameters
    ----------
    rate : float
        Of a client's step.
    momentum : float
        At the server and at the clients.
    """

    rate: float = 0.05
    momentum: float = 0.5

    name: ClassVar[str] = "heavy_ball"
    label: ClassVar[str] = "Heavy ball"
    keeps: ClassVar[tuple[str, ...]] = ("mean",)
    shares: ClassVar[tuple[str, ...]] = ("velocity",)

    def steps(self, sizes):
        return np.full(len(sizes), self.rate)

    def aggregate(self, server):
        if len(server.uploaded) == 0:
            return server.Z.mean(axis=0)
        v = server.shared["velocity"]
        v[:] = self.momentum * v + server.Z[server.uploaded].mean(axis=0) - server.x
        return server.x + v

    def local_round(self, clients):
        mean = clients.kept["mean"]
        mean[:] = self.momentum * mean + (1 - self.momentum) * clients.G
        W = clients.x - self.local_steps * self.rate * mean
        return W, np.full(len(W), self.mu0)

    def constants(self, n, plan):
        return Constants(self.momentum)

    def stages(self, client):
        return compiled()


class Constants(NamedTuple):
    momentum: float


@functools.cache
def compiled():
    read = reader(Constants)

    @stage
    def aggregate(rows, problem, settings, key, given, state, tau):
        (m, n), v, x = state.Z.shape, state.shared[0], state.x
        momentum, count = read(settings.constants).momentum, state.n_uploaded[0]
        for j in range(n):
            mean = 0.0
            for r in range(m if count == 0 else count):
                mean += state.Z[r if count == 0 else state.uploaded[r], j]
            if count == 0:
                x[j] = mean / m
            else:
                v[j] = momentum * v[j] + mean / count - x[j]
                x[j] += v[j]
        return True

    @stage
    def local_round(rows, problem, settings, key, given, state, tau):
        momentum, finite = read(settings.constants).momentum, True
        for i in state.selected[: state.n_selected[0]]:
            for j in range(state.x.size):
                mean = momentum * state.kept[0, i, j] + (1 - momentum) * state.G[i, j]
                state.kept[0, i, j] = mean
                state.W[i, j] = state.x[j] - settings.local_steps * problem.step[i] * mean
                finite &= abs(state.W[i, j]) < np.inf
            state.mu[i] = settings.mu0
        return finite

    return aggregate, local_round
'''

BUILT_IN = tuple(name for name, cls in ALGORITHMS.items() if cls.__module__.startswith("fedepm_"))


@pytest.fixture(scope="module", autouse=True)
def own_file(tmp_path_factory):
    """The user's file, importable here and in processes that are started from here."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "heavy_ball.py").write_text(OWN)
    before, paths = os.environ.get("PYTHONPATH"), sys.path.copy()
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), before)))
    importlib.import_module("heavy_ball")
    yield
    sys.path[:] = paths
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def made(name):
    cls = ALGORITHMS[name]
    given = {"local_steps": 3, "mu0": 20.0, "epsilon": 5.0, "learning_rate": 0.05}
    given |= {"curvature_share": 1.0, "r0": 0.6}  # FedADMM's, of which callables tell no more
    return cls(**{name: given[name] for name in parameters(cls).keys() & given.keys()})


@pytest.fixture(params=[*BUILT_IN, "heavy_ball"])
def algorithm(request):
    return made(request.param)


def test_every_built_in_one_is_a_file_named_after_it():
    folder = Path(importlib.import_module("fedepm_fast.algorithms").__file__).parent
    files = sorted(p.stem for p in folder.glob("*.py") if not p.stem.startswith("_"))
    assert sorted(BUILT_IN) == files == sorted(ALGORITHMS[name].name for name in BUILT_IN)


@pytest.mark.parametrize("noise", ["standardized", "none"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_compiled_stages_are_the_hooks(algorithm, noise, layout):
    data = small_data(7, 5, largest=12)
    if layout == "sparse":
        data = FederatedData(sparse.csr_array(data.features), data.labels, data.client_sizes)
    if not algorithm.keeps_models:  # whose uploads have none
        algorithm = replace(algorithm, noise=noise)
    got, want = (
        run(algorithm, data, rounds=8, seed=4, engine=name) for name in ("compiled", "reference")
    )
    assert (got.engine, got.reasons) == ("compiled", want.reasons)
    size = max(np.abs(getattr(want, name)).max() for name in ("x", "W", "Z"))
    for name in ("x", "W", "Z"):
        np.testing.assert_allclose(getattr(got, name), getattr(want, name), 0, 1e-12 * size)
    np.testing.assert_allclose(got.history["objective"], want.history["objective"], rtol=1e-12)
    np.testing.assert_allclose(got.history["snr"], want.history["snr"], rtol=0, atol=1e-12)


def test_prints_plots_is_saved_and_pickled(algorithm, tmp_path):
    data = small_data()
    result = run(algorithm, data, rounds=4)
    assert str(result).startswith((f"{algorithm.name} on 6 ", f"{algorithm.label} on 6 "))
    assert result.to_dict()["algorithm"] == algorithm.name
    assert json.loads(json.dumps(algorithm.describe()))["name"] == algorithm.name
    result.save(tmp_path / "a.npz")
    again = Result.load(tmp_path / "a.npz")
    assert str(again) == str(result) and (again.x == result.x).all()
    assert pickle.loads(pickle.dumps(algorithm)) == algorithm
    assert (pickle.loads(pickle.dumps(result)).Z == result.Z).all()
    other = run(FedEPM(mu0=5.0, local_steps=5), data, rounds=3)
    figure = plots.history([result, other])
    text = " ".join(t.get_text() for t in figure.axes[0].get_legend().get_texts())
    assert algorithm.label in text or algorithm.name in text
    plots.save(figure, tmp_path / "a.png")


def table_of(result):
    table = result.table()
    return {k: v for k, v in table.items() if "time" not in k and k not in ("machine", "created")}


def small(algorithm, **options):
    source = sources.Synthetic(clients=4, samples=40, features=3)
    other = SFedAvg(learning_rate=0.05) if algorithm.name == "fedepm" else FedEPM(mu0=5.0)
    return Sweep([algorithm, other], source, trials=2, rounds=3, **options)


@pytest.fixture(scope="module")
def elsewhere(own_file, tmp_path_factory):
    """A store of the sweeps of all algorithms, done in one other process."""
    path = tmp_path_factory.mktemp("elsewhere") / "all.sqlite"
    cells = [cell for name in (*BUILT_IN, "heavy_ball") for cell in small(made(name)).cells]
    every = Sweep.from_cells(cells, trials=2)
    sweep(every, store=path, backend="processes", jobs=1, progress=False)
    return path


def test_sweeps_in_processes_are_stored_read_back_and_compared(
    algorithm, elsewhere, tmp_path, capsys
):
    here = sweep(small(algorithm), store=tmp_path / "a.sqlite", progress=False)
    with Store(elsewhere, readonly=True) as store:
        assert {run.run_id for run in small(algorithm)} <= {*store.ids()}
    there = sweep(small(algorithm), store=elsewhere, progress=False)
    assert table_of(there) == table_of(here) and here.table()["error"] == [None] * 4
    assert {cell.engine for cell in small(algorithm).cells} == {"compiled"}
    with Store(tmp_path / "a.sqlite", readonly=True) as store:
        table = store.to_pandas([f"algorithm={algorithm.name}"])
    assert list(table["rounds"]) == [3, 3]
    plots.sweep(here, "mean_objective", "clients")
    code, out, _ = fedepm(capsys, "runs", "compare", tmp_path / "a.sqlite")
    assert code == 0 and algorithm.name in out


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    ) as client:
        yield client


def test_dask_workers_take_it(algorithm, client):
    want = table_of(sweep(small(algorithm), progress=False))
    found = sweep(small(algorithm), backend="dask", address=client, progress=False)
    assert table_of(found) == want


def of_its_own(cls):
    """A whole number that an algorithm has."""
    names = ("local_steps", "renew_every", "coverage_rounds")
    return next(name for name in names if name in parameters(cls))


def test_is_tuned(algorithm):
    name = of_its_own(type(algorithm))
    found = tune(algorithm, small_data(), space={name: [2, 3]}, trials=2, rounds=3)
    assert found.best.parameters[name] in (2, 3, getattr(algorithm, name))
    assert str(found).startswith((f"{algorithm.name} tuned", f"{algorithm.label} tuned"))


def test_callables_go_through_the_same_hooks(algorithm):
    data = small_data()
    problem = make_problem(algorithm, data)
    losses = [Told(problem, i, L) for i, L in enumerate(problem.lipschitz())]
    if algorithm.keeps_models and not algorithm.safeguarded:
        with pytest.raises(ValueError, match=f"algorithm must be another than {algorithm.label}"):
            run_callables(algorithm, losses, np.zeros(5))
        return
    if algorithm.keeps_models:  # what it knows of curvature is not the same, where it ends is
        got, want = run_callables(algorithm, losses, np.zeros(5)), run(algorithm, data)
        assert got.reasons == want.reasons == ("converged",)
        np.testing.assert_allclose(got.x, want.x, rtol=1e-5)
        return
    want = run(algorithm, data, rounds=6, seed=2)
    got = run_callables(algorithm, losses, np.zeros(5), samples=data.client_sizes, rounds=6, seed=2)
    for name in ("x", "W", "Z"):
        a, b = getattr(got, name), getattr(want, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * max(np.abs(b).max(), 1.0))


@pytest.mark.parametrize("holds_rows", [False, True], ids=["callable", "rows"])
def test_is_served_as_it_runs(algorithm, holds_rows):
    data = small_data()
    problem, (m, n) = make_problem(algorithm, data), (6, 5)
    bounds = problem.lipschitz()

    def client(i):
        options = dict(index=i, clients=m, features=n, samples=int(data.client_sizes[i]), seed=3)
        if holds_rows:
            rows, labels = data.client(i)
            own = FederatedData(rows, labels, data.client_sizes[i : i + 1])
            return Client(algorithm, ClientProblem(own, problem.objective, clients=m), **options)
        return Client(algorithm, Gradient(problem, i, bounds[i]), **options)

    if algorithm.keeps_models:
        for make in (lambda: client(0), lambda: Server(algorithm, m, n)):
            with pytest.raises(ValueError, match="a CurvatureServer and a CurvatureClient have"):
                make()
        assert_models_are_served_as_they_run(algorithm, data, problem)
        return
    server, them, states = Server(algorithm, m, n, seed=3), [client(i) for i in range(m)], {}
    for i, each in enumerate(them):
        states[i], upload = each.join(np.zeros(n))
        assert server.join(i, upload, told=each.told)
    points = []
    for _ in range(5):
        tau, x, chosen = server.open_round()
        points.append(x)
        for i in chosen.tolist():
            states[i], upload = them[i].train(states[i], x, tau, **server.message(i))
            assert server.receive(tau, i, upload)
        server.close_round()
    want = run(algorithm, data, rounds=4, seed=3, engine="reference")
    np.testing.assert_allclose(
        points, want.history["x"], rtol=0, atol=1e-12 * np.abs(want.history["x"]).max()
    )
    if type(algorithm).with_kernels is Algorithm.with_kernels:  # no kernels, the same lines
        np.testing.assert_array_equal(points, want.history["x"])


def assert_models_are_served_as_they_run(algorithm, data, problem):
    server = CurvatureServer(algorithm, data.n_clients, data.n_features, seed=3)
    points, clients = [server.x], []
    for i in range(data.n_clients):
        rows, labels = data.client(i)
        own = FederatedData(rows, labels, data.client_sizes[i : i + 1])
        f_i = ClientProblem(own, problem.objective, clients=data.n_clients)
        clients.append(CurvatureClient(algorithm, f_i, index=i, clients=data.n_clients))
        assert server.join(0, i, clients[i].join(server.x))
    for _ in range(4):
        tau, x, chosen, due = server.open_round()
        points.append(x)
        for i in chosen.tolist():
            assert server.receive(tau, i, clients[i].answer(x, due=i in due))
        server.close_round()
    want = run(algorithm, data, rounds=4, seed=3, engine="reference").history["x"]
    np.testing.assert_array_equal(points, want)


class Gradient:
    """A client's gradient as a callable, with the bound that it is told to know."""

    def __init__(self, problem, i, lipschitz):
        self.problem, self.i, self.lipschitz = problem, i, lipschitz

    def __call__(self, w):
        return self.problem.gradient(self.i, w)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_command_line_finds_it(name, capsys):
    own = f"--{of_its_own(ALGORITHMS[name]).replace('_', '-')}"
    options = "--clients", 20, "--rounds", 2, own, 2
    code, out, _ = fedepm(capsys, "run", "--algorithm", name, *options)
    assert code == 0 and out.startswith((f"{name} on 20", f"{ALGORITHMS[name].label} on 20"))
