"""What commands share: what their options ask for, and output."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._compiling import announce_compilation as announce_compilation
from ._options import of_group, taken

if TYPE_CHECKING:
    from ..algorithms import Algorithm
    from ..data import FederatedData
    from ..mechanisms import Mechanism
    from ..objectives import Objective, Problem
    from ..result import Result

#: Suffixes of files: what is called so is no folder that somebody means.
_FILES = frozenset(
    (".npz", ".npy", ".json", ".csv", ".parquet", ".html", ".png", ".svg", ".pdf", ".sqlite",
     ".toml", ".txt")
)  # fmt: skip


class CommandFailed(RuntimeError):
    """A command did what was asked and the outcome is a failure; ends with exit code `code`."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


#: The exit code after Ctrl-C.
INTERRUPTED = 130


# What options ask for -------------------------------------------------------------------------


def make_algorithm(
    name: str, given: Mapping[str, Any], *, option: str = "algorithm", lenient: bool = False
) -> Algorithm:
    """The algorithm of that name, which `option` gives, from those options that are set; one that
    it has not is refused, or left out."""
    from .._common.parameters import parameters
    from .._common.validation import check_choice
    from ..algorithms import ALGORITHMS

    cls = ALGORITHMS[check_choice(option, name, ALGORITHMS)]
    # Two algorithms may have parameters of one name that are not one option.
    group = f"algorithm:{name}"
    its = of_group(group)
    for other in of_group("algorithm"):
        if other in given and other not in its and other != "algorithm" and not lenient:
            raise ValueError(f"{other} is not a parameter of {name}")
    own = taken(given, group)
    if "private" in given and "mechanism" in parameters(cls):
        own["mechanism"] = given["private"]
    elif "private" in given and not lenient:
        raise ValueError(f"mechanism is not a parameter of {name}")
    with named_as_options(group):
        return cls(**own)


def make_mechanism(given: Mapping[str, Any]) -> Mechanism:
    """The mechanism that the options name: Gaussian noise, or Laplace noise where it is asked for
    or only that has the options."""
    from ..mechanisms import as_mechanism

    asked = taken(given, "mechanism")
    if "epsilon_per_round" not in asked and "total_epsilon" not in asked:
        raise ValueError("total_epsilon must be given, what each client may spend")
    if "mechanism" not in asked:
        pure = "epsilon_per_round" in asked or asked.get("delta") == 0
        asked["mechanism"] = "laplace" if pure else "gaussian"
    if asked["mechanism"] == "laplace" and asked.get("delta") == 0:
        del asked["delta"]
    return as_mechanism(**asked)


def without_noise(given: dict[str, Any]) -> dict[str, Any]:
    """`given`, unless it has options of a mechanism."""
    for name in taken(given, "mechanism"):
        raise ValueError(f"{name} needs --private")
    return given


def make_private(
    given: dict[str, Any], private: bool, *, public_scaling: bool | None = None
) -> dict[str, Any]:
    """`given` with the mechanism of its options, which are refused unless `private`.

    The scaling of some datasets is public.
    """
    from ..data.sources import is_scaling_public

    if not private:
        return without_noise(given)
    for name, instead in (("epsilon", "--total-epsilon"), ("max_rounds", "--rounds")):
        if name in given:
            raise ValueError(f"{name} has no meaning with --private: give {instead}")
    if public_scaling is None and is_scaling_public(given.get("data", "adult")):
        given = given | {"public_scaling": True}
    made = make_mechanism(given)
    if given.get("stopping") == "none":
        del given["stopping"]  # as it is anyway
    return {**given, "private": made}


def make_objective(given: Mapping[str, Any]) -> Objective:
    """The objective that the options name."""
    from ..objectives import as_objective

    with named_as_options("objective"):
        own = taken(given, "objective")
        return as_objective(own.pop("objective", "logistic"), **own)


def load_data(given: Mapping[str, Any], seed: int, objective: Objective) -> FederatedData:
    """The data that the options name; an option that would have no effect is refused."""
    from ..data.sources import from_options

    announce_compilation()
    return from_options(data_table(given), loss=objective).split(seed)


def data_table(given: Mapping[str, Any]) -> dict[str, Any]:
    """The data that the options name, as a specification has them."""
    from ..data import DATASETS

    own = taken(given, "data")
    table = {"source": own.pop("data", "adult"), **own}
    if table["source"] in DATASETS and not table.get("scale", True):
        label = DATASETS[table["source"]].label
        raise ValueError(f"no_scale is for a file or --data synthetic, {label} comes scaled")
    if table.get("scale"):
        del table["scale"]
    return table


@contextmanager
def named_as_options(group: str) -> Iterator[None]:
    """Errors of the block name a parameter as its option is called."""
    from .._common.validation import ArgumentError

    try:
        yield
    except ArgumentError as error:
        names = {of.name: option for option, of in of_group(group).items()}
        raise error.of(names.get(error.argument, error.argument)) from None


# Output ------------------------------------------------------------------------------------


def check_out(out: Path | None) -> Path | None:
    """Prove before any work that results can be written; a folder for them is made by `writing`."""
    from .._common.files import check_writable_folder

    if out is not None:
        check_is_folder(out)
        there = out.exists()
        out = check_writable_folder("out", out)
        if not there:
            out.rmdir()
    return out


def check_is_folder(out: Path) -> None:
    """ValueError for the name of a file, where a folder is meant that several of them go to."""
    if out.suffix.lower() in _FILES and not out.is_dir():
        raise ValueError(
            f"out must be a folder, which several files are written to, got the name of a "
            f"{out.suffix} file, {out}"
        )


def live(quiet: bool) -> bool:
    """Whether to show progress."""
    return not quiet and sys.stdout.isatty()


def write_figure(stem: Path, draw: Callable[[Any], Any], paths: list[Path]) -> None:
    """What `draw` makes, given `plots`, as PNG and SVG, if matplotlib is installed."""
    from .. import plots

    try:
        figure = draw(plots)
    except ImportError as hint:
        print(f"no figure: {hint}", file=sys.stderr)
        return
    for suffix in (".png", ".svg"):
        plots.save(figure, stem.with_suffix(suffix))
        paths.append(stem.with_suffix(suffix))


def run_quietly(*arguments: Any, **options: Any) -> Result:
    """`run`, with a divergence left in the result instead of a warning on the terminal."""
    import warnings

    from ..result import DivergenceWarning
    from ..runner import run

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        return run(*arguments, **options)


def tell_where_runs_ended(results: list[Result], command: str, *, fail: bool = True) -> None:
    """Say on standard error what is wrong with the ends of runs; fail if one has diverged."""
    from ._names import with_option_names

    error = ""
    for result in results:
        text = (f"{result.algorithm['name']}: " if len(results) > 1 else "") + result.warning
        if fail and result.diverged and not error:
            error = text
        elif result.warning:
            print(f"warning: {with_option_names(text, command)}", file=sys.stderr)
    if error:
        raise CommandFailed(error)


@contextmanager
def writing(paths: list[Path], out: Path | None = None) -> Iterator[None]:
    """Ctrl-C in the block, which writes files and appends them to `paths`, or a disk that is full,
    says which are whole. The folder `out` is made if need be, and not left empty."""
    made = out is not None and not out.exists()

    def whole() -> str:
        return f"only wrote {', '.join(map(str, paths))}" if paths else "nothing was written"

    try:
        if out is not None:
            out.mkdir(exist_ok=True)
        yield
    except KeyboardInterrupt:
        raise CommandFailed(f"interrupted, {whole()}", INTERRUPTED) from None
    except OSError as error:
        if error.filename is None or error.strerror is None:
            raise
        raise CommandFailed(
            f"{error.filename} cannot be written: {error.strerror}, {whole()}"
        ) from None
    finally:
        if made and out is not None:
            with suppress(OSError):  # it is not empty
                out.rmdir()


def gap_percent(result: Result, optimum: float) -> float | None:
    """How far f is above the optimum, in percent; None where that is zero to rounding."""
    start = float(result.history["objective"][0]) / result.n_clients
    if not optimum > 1e-12 * start:
        return None
    gap = 100 * (result.mean_objective / optimum - 1)
    return gap if math.isfinite(gap) else None


def percent(gap: float | None) -> str:
    """A gap for people."""
    if gap is None:
        return "-"
    if -5e-4 < gap < 0:  # the optimum is known to rounding, and zero has no sign
        gap = 0.0
    return f"{gap:.3f} %" if gap < 1e4 else f"{gap:.2e} %"


def optimum_per_client(problem: Problem, *, live: bool) -> float:
    """f*/m of the problem, by BFGS, which may take longer than the runs."""
    if live:
        from rich.console import Console

        with Console().status("finding the optimum by BFGS"):
            return optimum_per_client(problem, live=False)
    return problem.optimum().value / problem.n_clients


def write_json(path: Path, record: Any, paths: list[Path]) -> None:
    """Write a record and add its file to what was written."""
    import json

    from .._common.files import replacing

    with replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    paths.append(path)


def wrote(paths: list[Path]) -> str:
    """Lines that say what was written, folder by folder."""
    folders: dict[Path, list[str]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path.name)
    return "\n".join(f"wrote {', '.join(names)} in {folder}" for folder, names in folders.items())
