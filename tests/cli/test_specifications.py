"""Files that say what a sweep is: the same in Python, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from commands import ROOT, fedepm
from small_sweeps import SPECIFICATION, ids

from fedepm_fast import FedEPM, Huber, LeastSquares, Logistic, SFedAvg, SFedProx, Sweep, grid
from fedepm_fast.data import partition, sources
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism
from fedepm_fast.stopping import ReleasedRule
from fedepm_fast.sweeps._cells import Cell


def test_a_specification_is_the_sweep_in_python(spec):
    algorithms = [*grid(FedEPM, local_steps=[2, 4]), SFedAvg(), SFedProx()]
    data = grid(sources.Synthetic, clients=[4, 5], samples=60, features=3)
    want = Sweep(algorithms, data, trials=3, max_rounds=2)
    assert ids(Sweep.from_toml(spec)) == ids(want)
    assert ids(Sweep.from_toml(spec, trials=[1])) == ids(Sweep(algorithms, data, trials=[1],
                                                               max_rounds=2))  # fmt: skip


def test_every_part_of_a_specification(tmp_path):
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.normal(size=(60, 2)), np.arange(60) % 2, np.arange(60) % 3])
    np.savetxt(
        tmp_path / "t.csv", table, delimiter=",", header="a,b,y,who", comments="", fmt="%.17g"
    )
    (tmp_path / "s.toml").write_text("""
        seed = [1, 2]
        trials = [4, 7]
        objective = "logistic"
        beta = [0.1, 0.01]
        stopping = ["text", {rule = "released", tolerance = 1e-8}]
        max_rounds = 9
        max_iterations = 50
        zip = [["lam", "eta"], ["clients", "participation"]]
        [[data]]
        source = "t.csv"
        label = "y"
        scale = false
        partition = "dirichlet"
        concentration = [0.5, 5]
        clients = [3, 4]
        [[data]]
        clients = [5, 6]
        [[algorithm]]
        participation = [0.5, 1]
        lam = [1e-6, 2e-6]
        eta = [2e-6, 4e-6]
    """)
    read = Sweep.from_toml(tmp_path / "s.toml")
    table = sources.read_table(tmp_path / "t.csv", label="y", scale=None)
    cells = [
        Cell(
            FedEPM(participation=rho, lam=lam, eta=2 * lam),
            sources.Partitioned(held, how(m)),
            objective,
            stopping=rule,
            max_rounds=9,
            max_iterations=50,
        )
        for held, how, sizes in (
            (table, lambda m: partition.DirichletLabelSkew(m, 0.5), (3, 4)),
            (table, lambda m: partition.DirichletLabelSkew(m, 5), (3, 4)),
            (sources.read_adult(), partition.RandomCuts, (5, 6)),
        )
        for m, rho in zip(sizes, (0.5, 1.0), strict=True)
        for lam in (1e-6, 2e-6)
        for objective in grid(Logistic, beta=[0.1, 0.01])
        for rule in ("text", ReleasedRule(1e-8))
    ]
    assert ids(read) == ids(Sweep.from_cells(cells, seed=[1, 2], trials=[4, 7]))


def test_a_specification_of_regression(tmp_path):
    read = Sweep.from_dict(
        {"objective": "least_squares", "data": {"source": "synthetic"}, "beta": 0.5}
    )
    source = sources.Synthetic("least_squares")
    assert ids(read) == ids(Sweep(FedEPM(), source, objective=LeastSquares(beta=0.5)))
    assert read[0].cell.parameters["samples"] == 20_000


def test_a_specification_of_a_loss_with_a_parameter():
    data = {"source": "synthetic"}
    read = Sweep.from_dict({"objective": "huber", "delta": [0.5, 2.0], "data": data})
    huber = [Huber(delta=delta) for delta in (0.5, 2.0)]
    source = sources.Synthetic("least_squares")
    assert ids(read) == ids(Sweep(FedEPM(), source, objective=huber))
    assert [run.cell.parameters["delta"] for run in read] == [0.5, 2.0]
    read = Sweep.from_dict({"objective": "multinomial", "classes": 4, "data": data})
    assert read[0].cell.source == sources.Synthetic("multinomial", n_classes=4)
    with pytest.raises(ValueError, match="delta is not a parameter of the objective 'logistic'"):
        Sweep.from_dict({"delta": 1.0, "data": data})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials = 3": "trial = 3"}, "key 'trial' is unknown, those are data, algorithm, zip"),
        ({"trials = 3": "trials = 0"}, "trials must be an integer >= 1, got 0"),
        ({"trials = 3": "trials = []"}, "trials must not be an empty list"),
        ({"trials = 3": "trials = 'all'"}, "trials must be an integer >= 1, got 'all'"),
        ({"trials = 3": "seed = -1"}, "seed must be an integer from 0"),
        ({"trials = 3": "trials = "}, "Invalid value (at line 2, column 10)"),
        ({"trials = 3": "beta = -1"}, "beta must be a finite number"),
        ({"trials = 3": "objective = 'hinge'"}, "objective must be one of 'huber'"),
        ({"trials = 3": "stopping = 'never'"}, "stopping must be one of 'released'"),
        ({"trials = 3": "stopping = {rule = 'text', tolerance = 1}"},
         "key 'tolerance' is unknown, those of the stopping rule 'text' are gradient_tolerance"),
        ({"trials = 3": "rounds = 3\nstopping = 'text'"}, "rounds and stopping exclude each other"),
        ({"max_rounds = 2": "max_rounds = 2.5"}, "max_rounds must be an integer >= 0, got 2.5"),
        ({"max_rounds = 2": "engine = 'magic'"}, "engine must be one of 'compiled', 'reference'"),
        ({"trials = 3": "zip = ['clients']"}, "zip must be lists of two names or more"),
        ({"trials = 3": "zip = [['clients', 'local_step']]"},
         "zip joins clients and local_step, but local_step is not a list"),
        ({"trials = 3": "zip = [['clients', 'local_steps']]"},
         "[data] with [[algorithm]] 2 zip joins clients and local_steps, but local_steps is not"),
        ({"[data]": "[[data]]", "clients": "client"},
         "[[data]] 1 key 'client' is unknown, those of 'synthetic' are source, clients, samples"),
        ({"clients = [4, 5]": "clients = []"}, "clients must not be an empty list"),
        ({"clients = [4, 5]": "clients = [4, 'five']"}, "[data] clients must be an integer >= 1"),
        ({"source = \"synthetic\"": "source = 'no.csv'", "samples = 60": "",
          "features = 3": ""}, "no data file at"),
        ({"source = \"synthetic\"": "source = 7", "samples = 60": "", "features = 3": ""},
         "[data] source must be 'adult', 'breast_cancer', "),
        ({"source = \"synthetic\"": "partition = ['random', 'magic']", "samples = 60": "",
          "features = 3": ""}, "[data] partition must be one of 'random', 'equal', 'dirichlet'"),
        ({"source = \"synthetic\"": "partition = 'equal'\nconcentration = 1", "samples = 60": "",
          "features = 3": ""}, "[data] concentration is not a parameter of the partition 'equal'"),
        ({"local_steps = [2, 4]": "local_steps = [2, 0]"},
         "[[algorithm]] 1 local_steps must be an integer >= 1, got 0"),
        ({"local_steps = [2, 4]": "local_steps = '2'"}, "[[algorithm]] 1 local_steps must be an"),
        ({"local_steps = [2, 4]": "learning_rate = 1"},
         "[[algorithm]] 1 key 'learning_rate' is unknown, those of 'fedepm' are name, local_steps"),
        ({"\"sfedprox\"]": "\"sgd\"]"}, 
         "[[algorithm]] 2 name must be one of 'curvature', 'fedadmm'"),
        ({"[[algorithm]]\nname = \"fedepm\"\nlocal_steps = [2, 4]": "algorithm = 3",
          "[[algorithm]]\nname = [\"sfedavg\", \"sfedprox\"]": ""},
         "key 'algorithm' is unknown, those of 'synthetic'"),
    ],
)  # fmt: skip
def test_a_bad_specification_is_one_line_and_code_2(capsys, spec, changes, message):
    text = SPECIFICATION
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    spec.write_text(text)
    code, out, err = fedepm(capsys, "sweep", spec)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {spec}, ") and err.count("\n") == 1
    assert message in err
    assert not spec.with_suffix(".sqlite").exists()


def test_the_specification_in_the_readme_runs(capsys, tmp_path):
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert len(blocks) == 1
    (tmp_path / "steps.toml").write_text(blocks[0])
    code, out, _ = fedepm(capsys, "sweep", tmp_path / "steps.toml", "--dry-run")
    assert (code, out.split(",")[0]) == (0, "3000 runs in 30 cells")
    quick = blocks[0].replace("clients = [50, 100]", "clients = 5")
    quick = re.sub(r"trials = \d+", "rounds = 1", quick)
    (tmp_path / "steps.toml").write_text(quick)
    code, out, err = fedepm(capsys, "sweep", tmp_path / "steps.toml")
    assert (code, err) == (0, "") and out.startswith("15 runs in 15 cells")


def test_a_specification_of_mechanisms(tmp_path):
    path = tmp_path / "private.toml"
    path.write_text(
        'rounds = 3\n[algorithm]\nmechanism = ["laplace", "gaussian"]\ntotal_epsilon = [1, 2.5]\n'
        "delta = 1e-6\nclip = 0.1\npublic_scaling = true\n"
    )
    found = [cell.algorithm.mechanism for cell in Sweep.from_toml(path).cells]
    assert found == [
        kind(total_epsilon=epsilon, delta=1e-6, clip=0.1, public_scaling=True)
        for kind in (LaplaceMechanism, GaussianMechanism)
        for epsilon in (1.0, 2.5)
    ]
    path.write_text("rounds = 3\n[algorithm]\ntotal_epsilon = 1\nepsilon_per_round = 1\n")
    with pytest.raises(ValueError, match="exactly one of total_epsilon and epsilon_per_round"):
        Sweep.from_toml(path)


@pytest.mark.parametrize("key", ["huber_delta", "delta"])
def test_a_parameter_of_a_loss_has_the_name_of_its_option_and_its_own(tmp_path, key):
    path = tmp_path / "huber.toml"
    path.write_text(f'objective = "huber"\n{key} = [0.5, 2.0]\n[data]\nsource = "synthetic"\n')
    cells = Sweep.from_toml(path).cells
    assert [cell.objective.delta for cell in cells] == [0.5, 2.0]
    assert [cell.parameters["delta"] for cell in cells] == [0.5, 2.0]
