"""Options of the commands, made from the descriptions of the parameters that they set."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from .._common import declared as _declared
from .._common.parameters import Parameter

Command = Callable[..., Any]

Seed = Annotated[int, typer.Option(help="Of the split and of the run.")]
Trial = Annotated[int, typer.Option(help="Another run on the same split.")]
Private = Annotated[
    bool,
    typer.Option("--private", help="FedEPM with noise on the sensitivity, see --mechanism."),
]
Trust = Annotated[
    str | None,
    typer.Option(
        help="Private: clients, where nobody else is trusted, or secure-sum, where the server sees "
        "sums only.",
        show_default="clients",
        metavar="WHOM",
    ),
]
Honest = Annotated[
    float | None,
    typer.Option(
        help="With --trust secure-sum: share of the clients that is honest.",
        show_default="0.5",
        metavar="SHARE",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for result, history, summary and figure, made if the one above it is there.",
        metavar="DIR",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Nothing live, and one line for each run.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object, nothing else.")]

#: What says which of several things is meant, and what else there is to know of the choice.
CHOICES = {
    "algorithm": Parameter("algorithm", "fedepm", "str", "{}"),
    "objective": Parameter("objective", "logistic", "str", "{}. No intercept is added"),
    "mechanism": Parameter(
        "mechanism", None, "str", "private: the noise, {}", metavar="LAW",
        shown="gaussian; laplace with --delta 0",
    ),
    "stopping": Parameter(
        "stopping", None, "str", "{}; by default the preset's", metavar="RULE"
    ),
    "partition": Parameter("partition", None, "str", "{}", shown="random, the paper's"),
    "data": Parameter(
        "data", "adult", "str", "{}, or a LIBSVM, CSV, Parquet or NumPy file; for an intercept it "
        "needs a column of ones", metavar="DATA",
    ),
}  # fmt: skip

SCALE = Parameter("scale", True, "bool", "Scale the columns to unit norm")

#: Fields that are no options of their own: choices, what the loss says, what a file says, and what
#: is one for each client.
_NO_OPTIONS = frozenset({*CHOICES, "scale", "task", "name", "ids", "source", "budgets"})


def of_group(group: str) -> dict[str, Parameter]:
    """The parameters that a group of options sets, by the name of the option.

    ``algorithm``, ``objective``, ``mechanism`` and ``data`` have those of everything that is
    registered, after the choice of one, but for what a user's own calls as a run calls something
    else; ``algorithm:fedepm`` those of one alone; ``settings`` those of a run.
    """
    group, _, only = group.partition(":")
    if group == "settings":
        own = _options({"": _declared.of_class("sweeps/_cells.py", "Cell")})
        return {**own, "stopping": _chosen("stopping", _declared.of_kind("stopping"))}
    if group == "table":
        return _options({"": _declared.of_class("cli/_tables.py", "TableFile")})
    if group == "data":
        partitions = _declared.of_kind("partition")
        sources = {
            "synthetic": _declared.of_class("data/sources.py", "Synthetic"),
            "": _declared.of_class("data/sources.py", "Reading"),
        }
        names = [name for name in partitions if name != "column"]
        return {
            "data": _chosen("data", [*_declared.datasets(), "synthetic"]),
            "partition": _chosen("partition", names),
            **_options({**{name: partitions[name] for name in names}, **sources}),
            "scale": SCALE,
        }
    settings = _declared.of_class("sweeps/_cells.py", "Cell")
    things = {
        thing: {name: of for name, of in its.items() if of.option not in settings}
        for thing, its in _declared.of_kind(group).items()
    }
    if only:
        return _options({"": things[only]})
    return {group: _chosen(group, things), **_options(things)}


def _chosen(name: str, names: Iterable[str]) -> Parameter:
    *others, last = names
    told = f"{', '.join(others)} or {last}" if others and name != "data" else ", ".join(names)
    known = CHOICES[name]
    return replace(known, help=known.help.format(told))


def _options(things: Mapping[str, Mapping[str, Parameter]]) -> dict[str, Parameter]:
    """The parameters of several things, those of one name as one, which says whose it is."""
    owners: dict[str, dict[str, Parameter]] = {}
    for thing, its in things.items():
        for parameter in its.values():
            if parameter.name not in _NO_OPTIONS and parameter.kind is not None:
                owners.setdefault(parameter.option, {})[thing] = parameter
    named = sum(1 for thing in things if thing)
    return {option: _merged(of, named) for option, of in owners.items()}


def _merged(of: Mapping[str, Parameter], things: int) -> Parameter:
    first = next((p for p in of.values() if p.is_number_or_text), next(iter(of.values())))
    texts: dict[str, list[str]] = {}
    for thing, parameter in of.items():
        text = parameter.help
        texts.setdefault(text[:1].lower() + text[1:], []).append(thing)
    told = [
        f"{', '.join(names)}: {text}" if text else f"of {', '.join(names)}"
        for text, names in texts.items()
    ]
    said = all(text.startswith("private: ") for text in texts)
    if said or "" in of or (len(texts) == 1 and len(of) == things):
        told = list(texts)
    defaults = {parameter.default for parameter in of.values()}
    default = first.default if len(defaults) == 1 else None
    return replace(first, help="; ".join(told), default=default)


def taken(given: Mapping[str, Any], group: str) -> dict[str, Any]:
    """What was given of a group, by the names of the parameters."""
    return {of.name: given[name] for name, of in of_group(group).items() if name in given}


# As Typer takes them -----------------------------------------------------------------------


def option(parameter: Parameter) -> inspect.Parameter:
    """A parameter as one of a function whose options Typer makes."""
    name = f"--{parameter.option.replace('_', '-')}"
    kind: Any = str if parameter.several else parameter.kind
    if kind is bool and parameter.default is not False:
        name += f"/--no-{name[2:]}"
    default = parameter.default
    if parameter.several and default is not None:
        default = ",".join(map(str, default))
    shown: Any = True if parameter.shown is None else parameter.shown
    info = typer.Option(
        name, help=_sentence(parameter.help), show_default=shown, metavar=parameter.metavar
    )
    if default is None:
        kind = kind | None
    return inspect.Parameter(
        parameter.option, inspect.Parameter.KEYWORD_ONLY, default=default,
        annotation=Annotated[kind, info],
    )  # fmt: skip


def _sentence(text: str) -> str:
    """With a capital, unless it begins with a name and what that is or does."""
    begins_with_name = re.match(r"[\w/]+(, [\w/]+)*:|[\w/]+(,| or )", text)
    return text + "." if begins_with_name else f"{text[:1].upper()}{text[1:]}."


def with_options(
    *groups: str, without: Iterable[str] = (), shown: Mapping[str, str] | None = None
) -> Callable[[Command], Command]:
    """Let a command take the options of these groups: those that are set are its keywords.

    `shown` is what its help says of defaults that are others there.
    """

    def decorate(function: Command) -> Command:
        function.groups, function.without = groups, tuple(without)  # type: ignore[attr-defined]
        function.shown = dict(shown or {})  # type: ignore[attr-defined]
        return function

    return decorate


def command(function: Command, *, whole: bool = True) -> Command:
    """A function with all of its options in its signature, for Typer; or with its own ones only."""
    groups = getattr(function, "groups", ()) if whole else ()
    made = {name: of for group in groups for name, of in of_group(group).items()}
    for name in getattr(function, "without", ()):
        made.pop(name, None)
    for name, text in getattr(function, "shown", {}).items():
        if name in made:
            made[name] = replace(made[name], shown=text)
    own = dict(inspect.signature(function, eval_str=True).parameters)
    wants_context = own.pop("ctx", None) is not None
    own = {name: p for name, p in own.items() if p.kind is not p.VAR_KEYWORD}
    # What the command itself is told has the name, whatever a user's own class calls its fields.
    made = {name: of for name, of in made.items() if name not in own}

    @wraps(function)
    def called(ctx: typer.Context, **values: Any) -> Any:
        given = {name: values.pop(name) for name in made}
        given = {n: _value(made[n], value) for n, value in given.items() if was_given(ctx, n)}
        return function(**({"ctx": ctx} if wants_context else {}), **values, **given)

    first = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [first, *map(option, made.values()), *own.values()]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


def _value(parameter: Parameter, value: Any) -> Any:
    """What an option was given: several numbers as a tuple, and one as a number."""
    if parameter.is_number_or_text and isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    if not (parameter.several and isinstance(value, str)):
        # A user's own class may not look at its numbers.
        if isinstance(value, float) and parameter.check is None and not math.isfinite(value):
            raise ValueError(f"{parameter.option} must be finite, got {value}")
        return value
    try:
        return tuple(float(text) for text in value.split(","))
    except ValueError:
        raise ValueError(
            f"{parameter.option} must be numbers separated by commas, got {value!r}"
        ) from None


def was_given(ctx: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
