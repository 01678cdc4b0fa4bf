"""Every parameter is described once, on its field: options, keys, docs and errors agree."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import pickle
import re
from dataclasses import dataclass, make_dataclass
from typing import ClassVar

import numpy as np
import pytest
import typer
from commands import fedepm

from fedepm_fast import FedEPM, Sweep, cli
from fedepm_fast._common import declared as _declared
from fedepm_fast._common.docstrings import _entries, _sections
from fedepm_fast._common.parameters import (
    Among,
    Around,
    choice,
    flag,
    integer,
    param,
    parameters,
    real,
)
from fedepm_fast._common.validation import ArgumentError
from fedepm_fast.algorithms import ALGORITHMS
from fedepm_fast.cli import _options
from fedepm_fast.data.partition import PARTITIONERS
from fedepm_fast.data.sources import Reading, Synthetic
from fedepm_fast.mechanisms import MECHANISMS, Mechanism
from fedepm_fast.objectives import OBJECTIVES, Objective
from fedepm_fast.stopping import RULES

#: Everything of the package's that has parameters which are options, by kind and name.
THINGS = {
    (kind, name): registry[name]
    for kind, registry in {
        "algorithm": ALGORITHMS,
        "objective": OBJECTIVES,
        "mechanism": MECHANISMS,
        "partition": PARTITIONERS,
        "source": {"synthetic": Synthetic, "file": Reading},
    }.items()
    for name in registry
    if registry[name].__module__.startswith("fedepm_fast.")  # not what other tests define
}
#: The group of options that a kind's parameters are in.
GROUPS = {"partition": "data", "source": "data"}
#: Fields that other options choose, and a number of each client, which none does.
CHOSEN = {"mechanism", "task", "scale", "budgets"}
EVERY = [
    pytest.param(kind, cls, parameter, id=f"{name}-{parameter.name}")
    for (kind, name), cls in THINGS.items()
    for parameter in parameters(cls).values()
    if parameter.name not in CHOSEN
]


@pytest.fixture(scope="module")
def commands():
    """The options of the commands that run algorithms."""
    group = typer.main.get_command(cli.app)
    return {
        name: {option for p in group.commands[name].params for option in p.opts}
        for name in ("run", "compare", "tune")
    }


def spelled(option):
    return f"--{option.replace('_', '-')}"


@pytest.mark.parametrize(("kind", "cls", "parameter"), EVERY)
def test_a_parameter_is_described_and_an_option_everywhere(commands, kind, cls, parameter):
    assert parameter.help and parameter.label and not parameter.help.endswith(".")
    assert _options.of_group(GROUPS.get(kind, kind))[parameter.option].name == parameter.name
    for options in commands.values():
        assert spelled(parameter.option) in options


@pytest.mark.parametrize(("kind", "cls", "parameter"), EVERY)
def test_the_docstring_names_a_parameter(kind, cls, parameter):
    if cls is Reading:  # whose docstring names the function that documents them
        from fedepm_fast.data.loaders import load as cls
    (section,) = [s for s in _sections(cls) if s.startswith("Parameters\n")]
    assert parameter.name in {name for names in _entries(section) for name in names}


@pytest.mark.parametrize(
    ("kind", "cls", "parameter"), [p for p in EVERY if p.values[2].check is not None]
)
def test_an_error_names_the_parameter(kind, cls, parameter):
    for wrong in (object(), [], {}):
        with pytest.raises(ArgumentError) as caught:
            parameter.check(parameter.name, wrong)
        assert caught.value.argument == parameter.name
        assert str(caught.value).startswith(f"{parameter.name} must ")


def test_files_say_what_the_classes_say():
    """The command line knows parameters without importing them, and knows the same."""
    for kind in ("algorithm", "objective", "mechanism", "partition", "stopping"):
        registry = {
            "algorithm": ALGORITHMS, "objective": OBJECTIVES, "mechanism": MECHANISMS,
            "partition": PARTITIONERS, "stopping": RULES,
        }[kind]  # fmt: skip
        declared = _declared.of_kind(kind)
        assert {*registry} <= {*declared} | {"column"}
        for name in registry:
            own = parameters(registry[name])
            assert [*own] == [*declared[name]]
            for mine, read in zip(own.values(), declared[name].values(), strict=True):
                for fact in ("default", "help", "option", "shown", "metavar", "kind", "unit"):
                    assert getattr(mine, fact) == getattr(read, fact), (name, mine.name, fact)


def test_help_of_a_command_imports_nothing_heavy():
    import subprocess
    import sys

    code = (
        "import sys; from fedepm_fast import cli\n"
        "try: cli.main({!r})\nexcept SystemExit as end: assert end.code == 0\n"
        "print(*{{'numpy', 'numba', 'scipy'}} & {{*sys.modules}}, file=sys.stderr)"
    )
    for arguments in (["--help"], ["run", "--help"], ["tune", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", code.format(arguments)], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "\n")


# One's own ---------------------------------------------------------------------------------


@pytest.fixture
def own():
    """An algorithm that is defined here, and forgotten afterwards."""

    @dataclass(frozen=True)
    class Slowed(FedEPM):
        """FedEPM, slowed.

        Parameters
        ----------
        slowing : float
            In [0, 1).
        """

        slowing: float = param(
            0.25, check=real(low=0.0, high=1.0, open_high=True), help="how much", symbol="$d$"
        )
        plain: int = 3  # without a word
        pair: tuple[float, ...] = (1.0, 2.0)
        table: dict[str, int] | None = None

        name = "slowed"

    yield Slowed
    del ALGORITHMS._found["slowed"]


def test_an_own_algorithm_has_options_keys_and_errors(own, capsys, tmp_path):
    assert parameters(own)["slowing"].label == "slowing $d$"
    assert parameters(own)["plain"].kind is int
    code, out, _ = fedepm(capsys, "run", "--help")
    text = re.sub(r"\s+", " ", out)
    assert code == 0 and re.search(r"--slowing \S+ slowed: how much\. \[default: 0\.25\]", text)
    assert re.search(r"--plain \S+ Of slowed\. \[default: 3\]", text)
    assert "--pair" in text and "[default: 1.0,2.0]" in text and "--table" not in text
    for name in ("fedepm", "slowed"):
        code, out, err = fedepm(
            capsys, "run", "--algorithm", name, "--clients", 5, "--rounds", 2, "--json"
        )
        assert (code, err) == (0, "") and json.loads(out)["rounds"] == 2
    assert json.loads(out)["algorithm"] == "slowed"
    code, out, err = fedepm(capsys, "run", "--algorithm", "slowed", "--pair", "1,b")
    assert err == "error: --pair must be numbers separated by commas, got '1,b'\n"
    code, out, err = fedepm(capsys, "run", "--algorithm", "slowed", "--slowing", "1")
    assert (code, out) == (2, "")
    assert err == "error: --slowing must be a finite number in [0, 1), got 1.0\n"
    path = tmp_path / "own.toml"
    path.write_text(
        '[data]\nsource = "synthetic"\n[algorithm]\nname = "slowed"\nslowing = [0.1, 0.2]\n'
    )
    cells = Sweep.from_toml(path).cells
    assert [cell.parameters["slowing"] for cell in cells] == [0.1, 0.2]
    assert "slowing : float" in own.__doc__ and "local_steps : int" in own.__doc__


@pytest.mark.parametrize(
    ("base", "field", "owner"),
    [
        (FedEPM, "seed", "the run"),
        (FedEPM, "rounds", "the run"),
        (FedEPM, "clients", "the data"),
        (FedEPM, "beta", "the objective"),
        (FedEPM, "clip", "the mechanism"),
        (Objective, "mu0", "the algorithm"),
        (Objective, "density", "the data"),
        (Mechanism, "participation", "the algorithm"),
    ],
)
def test_a_field_has_no_name_of_something_else(base, field, owner):
    before = [set(registry) for registry in (ALGORITHMS, OBJECTIVES, MECHANISMS)]
    with pytest.raises(ValueError) as refused:
        make_dataclass("Clash", [(field, float, 1.0)], bases=(base,), frozen=True)
    told = f"Clash must not have a field {field!r}: {field} is a parameter of {owner}"
    assert str(refused.value) == told
    assert [set(registry) for registry in (ALGORITHMS, OBJECTIVES, MECHANISMS)] == before


def test_a_field_may_have_a_name_of_its_kind_and_an_option_of_its_own():
    described = param(1.0, help="where it bends", option="own_delta")
    made = make_dataclass(
        "Own", [("beta", float, 0.5), ("delta", float, described)], bases=(Objective,), frozen=True
    )
    assert made().beta == 0.5 and parameters(made)["delta"].option == "own_delta"
    with pytest.raises(ValueError, match="'delta': delta is a parameter of the mechanism"):
        make_dataclass("Own", [("delta", float, 0.5)], bases=(Objective,), frozen=True)


@dataclass(frozen=True)
class Made:
    """With each kind of check."""

    count: int | None = param(None, check=integer(low=1), help="h", search=Among((1, 2)))
    share: float = param(1, check=real(low=0.0), help="h", unit="s", search=Around(2, 3))
    way: str = param("a", check=choice(("a", "b")), help="h", option="the_way")
    on: bool = param(True, check=flag, help="h", kw_only=True)

    def __post_init__(self):
        from fedepm_fast._common.parameters import check_fields

        check_fields(self)


def test_fields_are_those_of_any_frozen_dataclass():
    made = Made(count=3)
    assert made == dataclasses.replace(made) == pickle.loads(pickle.dumps(made))
    assert type(made.share) is float and made.share == 1.0
    assert [*inspect.signature(Made).parameters] == ["count", "share", "way", "on"]
    assert parameters(Made)["share"].label == "share [s]"
    assert parameters(Made)["way"].option == "the_way"
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.share = 2.0
    for name, wrong in (("count", 0), ("share", -1), ("way", "c"), ("on", 1)):
        with pytest.raises(ArgumentError) as caught:
            Made(**{name: wrong})
        assert caught.value.argument == name


class Lost(Made):
    share: float = 3.0


class Redone(Made):
    share = 3.0


class Further(Made):
    further: float = 3.0


@pytest.mark.parametrize("cls", [Lost, Redone, Further])
def test_a_field_without_dataclass_is_refused(cls):
    """It would have no effect: ``__init__`` is that of the base."""
    name = "further" if cls is Further else "share"
    message = f"{cls.__name__} must be decorated with .* {name} is a field of it"
    for _ in range(2):
        with pytest.raises(TypeError, match=message):
            cls()


def test_a_class_without_fields_of_its_own_needs_no_decorator():
    class Same(Made):
        other: ClassVar[int] = 1

    assert Same().share == 1.0


def test_a_field_without_a_check_is_not_nan():
    @dataclasses.dataclass(frozen=True)
    class Own(Made):
        rate: float = 0.1

    assert Own(rate=math.inf).rate == math.inf
    for wrong in (math.nan, np.float64("nan")):
        with pytest.raises(ArgumentError, match=r"^rate must not be nan$"):
            Own(rate=wrong)


def test_a_default_that_its_check_refuses_or_changes_is_checked_each_time():
    @dataclasses.dataclass(frozen=True)
    class Own(Made):
        count: int = param(0, check=integer(low=1), help="h")

    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"^count must be an integer >= 1, got 0$"):
            Own()
        assert type(Own(count=2).share) is type(Made().share) is float
