"""Which algorithm ``fedepm run`` takes where none is named, and what it says of that."""

from __future__ import annotations

import json

import pytest
from commands import fedepm

from fedepm_fast import CurvatureFedEPM, datasets, run

SYNTHETIC = ("run", "--data", "synthetic", "--clients", 5)


def test_on_adult_the_summary_says_what_the_other_choice_gives(capsys):
    for clients, seed in ((100, 0), (5, 3)):
        arguments = ("run", "--clients", clients, "--seed", seed, "--rounds", 1)
        _, out, _ = fedepm(capsys, *arguments)
        other = run(CurvatureFedEPM(), datasets.adult(clients=clients, seed=seed), seed=seed)
        told = f"f(x)/m = {other.mean_objective:.6f} after {other.rounds} rounds, without noise"
        assert out.startswith("FedEPM on ")  # with 5 clients it diverges
        assert out.splitlines()[-1] == f"  --algorithm curvature {told}"
        assert "curvature" not in fedepm(capsys, *arguments, "--algorithm", "fedepm")[1]
        assert "curvature" not in fedepm(capsys, *arguments, "--json")[1]
        assert len(fedepm(capsys, *arguments, "--quiet")[1].splitlines()) == 1


@pytest.mark.parametrize("options", [(), ("--objective", "huber"), ("--participation", 0.5)])
def test_other_data_have_eta_the_curvature_and_no_noise(capsys, options):
    code, out, err = fedepm(capsys, *SYNTHETIC, *options)
    assert (code, err) == (0, "") and out.startswith("FedEPM (curvature) on 5 clients")
    told = "default for data other than Adult: --algorithm curvature, without noise"
    assert out.splitlines()[-1] == f"  {told}"
    record = json.loads(fedepm(capsys, *SYNTHETIC, *options, "--json")[1])
    assert record["algorithm"] == "curvature" and record["parameters"]["noise"] == "none"
    named = fedepm(capsys, *SYNTHETIC, *options, "--algorithm", "curvature")[1]
    assert "default" not in named


@pytest.mark.parametrize(
    "options", [("--mu0", 5), ("--noise", "laplace"), ("--epsilon", 1), ("--local-steps", 3)]
)
def test_an_option_of_the_papers_chooses_it(capsys, options):
    _, out, _ = fedepm(capsys, *SYNTHETIC, "--rounds", 1, *options)
    assert out.startswith("FedEPM on 5 clients")
    assert f"  {options[0]} is of the paper's FedEPM: --algorithm fedepm" in out.splitlines()


def test_private_runs_are_planned(capsys):
    _, out, _ = fedepm(capsys, *SYNTHETIC, "--private", "--total-epsilon", 5, "--public-scaling")
    title = out[: out.index(",")]
    assert title == "Private plan: 5 clients" and "\n\nFedEPM on 5 clients" in out


def test_an_option_of_the_others_chooses_it_on_adult_too(capsys):
    code, out, _ = fedepm(capsys, "run", "--coordinates", "secant", "--rounds", 1)
    assert code == 0 and out.startswith("FedEPM (curvature) on 100 clients")
    assert out.splitlines()[-1] == "  --coordinates is of --algorithm curvature"
    code, _, err = fedepm(capsys, "run", "--coordinates", "secant", "--mu0", 1)
    assert code == 2 and err == "error: --coordinates is not a parameter of fedepm\n"
