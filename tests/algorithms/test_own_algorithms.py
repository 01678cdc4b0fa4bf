"""An algorithm of the user's own runs, prints, plots, sweeps, is stored and read back."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from commands import fedepm
from problems import small_data

from fedepm_fast import FedEPM, Result, SFedAvg, Store, Sweep, plots, privacy, run, sweep, tune
from fedepm_fast.algorithms import ALGORITHMS, Algorithm
from fedepm_fast.result import DivergenceWarning


@dataclass(frozen=True)
class Damped(FedEPM):
    damping: float = 0.5
    name: ClassVar[str] = "damped"

    def aggregate(self, server):
        return self.damping * super().aggregate(server)


class Renamed(SFedAvg):
    """Nothing of its own, not even a name."""


@dataclass(frozen=True)
class Scratch(Algorithm):
    rate: float = 1.0
    powers: tuple[int, ...] = (1, 2)

    def aggregate(self, server):
        return server.Z.mean(axis=0)

    def local_round(self, clients):
        return clients.x - self.rate * clients.G, np.ones(len(clients.G))


OWN = [Damped(mu0=5.0), Renamed(learning_rate=0.05, noise="none"), Scratch(noise="none", rate=0.2)]
NAMES = ["damped", "Renamed", "Scratch"]


@pytest.fixture(params=OWN, ids=NAMES)
def own(request):
    assert ALGORITHMS[request.param.name] is type(request.param)  # by its definition
    return request.param


def test_names():
    assert [a.name for a in OWN] == NAMES
    assert [a.describe()["name"] for a in OWN] == NAMES
    # A field that is an array is described by its numbers.
    assert json.dumps(replace(OWN[2], rate=np.arange(2.0)).describe()["rate"]) == "[0.0, 1.0]"


def test_runs_prints_plots_and_is_read_back(own, tmp_path):
    data = small_data()
    result = run(own, data, rounds=4)
    # Compiled unless something is changed that the compiled stages do.
    engine = "compiled" if own.name == "Renamed" else "reference"
    assert result.engine == engine and result.rounds == 4
    assert str(result).startswith(f"{own.name} on {data.n_clients} clients")
    assert own.name in repr(result) and result.to_dict()["algorithm"] == own.name
    plots.save(result.plot(), tmp_path / "own.png")
    result.save(tmp_path / "own.npz")
    again = Result.load(tmp_path / "own.npz")
    assert str(again) == str(result) and (again.x == result.x).all()
    # Beside the package's own, whose style stays its own, and told apart by fields of its own.
    others = [run(FedEPM(mu0=5.0), data, rounds=3), run(replace(own, c=0.5), data, rounds=3)]
    figure = plots.history([result, *others])
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert names[0] == f"{own.name}, c 1e-08: 4 rounds" and names[1] == "FedEPM: 3 rounds"
    colours = [line.get_color() for line in figure.axes[0].lines]
    assert colours[1] == plots.STYLES["fedepm"]["color"] and len({*colours}) == 3


def test_the_damped_point_is_half_the_other():
    data = small_data()
    mine, other = (run(a, data, rounds=0, engine="reference") for a in (OWN[0], FedEPM(mu0=5.0)))
    np.testing.assert_array_equal(mine.x, other.x / 2)


def test_sweeps(own, tmp_path, capsys):
    spec = Sweep([own, FedEPM(mu0=5.0)], clients=4, trials=2, rounds=3)
    engine = "compiled" if own.name == "Renamed" else "reference"
    assert [cell.engine for cell in spec.cells] == [engine, "compiled"]
    done = sweep(spec, store=tmp_path / "runs.sqlite", progress=False)
    with Store(tmp_path / "runs.sqlite", readonly=True) as store:
        table = store.to_pandas([f"algorithm={own.name}"])
    assert list(table["error"]) == [None, None] and list(table["rounds"]) == [3, 3]
    for kind in ("line", "box"):
        figure = plots.sweep(done, "mean_objective", "clients", kind=kind)
        assert {t.get_text() for t in figure.legends[0].texts} == {own.name, "FedEPM"}
    plots.sweep(done, "mean_objective", "round")
    for command in ("list", "compare"):
        code, out, _ = fedepm(capsys, "runs", command, tmp_path / "runs.sqlite")
        assert code == 0 and own.name in out and "nan" not in out


def test_tunes(own):
    found = tune(own, small_data(), space={"local_steps": [2, 3]}, trials=2, rounds=3)
    assert str(found).startswith(f"{own.name} tuned over")


def test_a_diverged_run_says_what_to_do():
    with pytest.warns(DivergenceWarning, match="smaller steps, or data brought to one scale"):
        run(replace(OWN[2], rate=-1e9), small_data(), rounds=200)


def test_parameters_of_one_name_are_told_apart():
    @dataclass(frozen=True)
    class Clash(FedEPM):
        tolerance: float = 0.1

    with pytest.raises(ValueError, match="got 'tolerance' of stopping a second time"):
        Sweep(Clash(), clients=4, stopping="released")
    # The delta of a mechanism is not that of Huber's loss.
    mechanism = privacy.GaussianMechanism(total_epsilon=1.0)
    given = [FedEPM(mechanism=replace(mechanism, delta=delta)) for delta in (1e-6, 1e-7)]
    data = small_data(task="regression")
    sweeps = [Sweep(algorithm, data, objective="huber", rounds=1) for algorithm in given]
    assert [s.cells[0].parameters["mechanism_delta"] for s in sweeps] == [1e-6, 1e-7]
    assert sweeps[0].runs[0].run_id != sweeps[1].runs[0].run_id


def test_stages_that_are_not_compiled_are_named():
    @dataclass(frozen=True)
    class Plain(FedEPM):
        def stages(self, client):
            def aggregate(rows, problem, settings, key, given, state, tau):
                return 0, 0

            return aggregate, super().stages(client)[1]

    try:
        with pytest.raises(
            TypeError,
            match=r"^stages of Plain must be compiled with fedepm_fast\.kernels\.engine\.stage, "
            "got the function aggregate$",
        ):
            run(Plain(), small_data(), rounds=1)
    finally:
        del ALGORITHMS._found["Plain"]
