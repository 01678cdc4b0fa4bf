"""Parameters: one description of each, on the field of the frozen dataclass that has it.

``lam: float | None = param(None, check=real(low=0.0), help="weight of the l1 penalty")`` says what
there is to know of `lam`. Options of commands, keys of specifications, search spaces, labels and
records read it. Nothing heavy is imported here: a check is looked up when it is made.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

METADATA = "parameter"
_KINDS: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}


@dataclass(frozen=True)
class Check:
    """A check of `fedepm_fast._common.validation`, called with an argument's name and value."""

    function: str
    arguments: tuple[Any, ...] = ()
    bounds: tuple[tuple[str, Any], ...] = ()

    def __call__(self, name: str, value: Any) -> Any:
        check, bounds = self._found
        return check(name, value, *self.arguments, **bounds)

    @cached_property
    def _found(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        from . import validation

        return getattr(validation, self.function), dict(self.bounds)


def real(**bounds: Any) -> Check:
    """A finite number, in the interval of `check_real`."""
    return Check("check_real", bounds=tuple(bounds.items()))


def integer(**bounds: Any) -> Check:
    """A whole number, in the interval of `check_int`."""
    return Check("check_int", bounds=tuple(bounds.items()))


def choice(options: Iterable[str]) -> Check:
    """One of several strings."""
    return Check("check_choice", (tuple(options),))


def number_or(*words: str, **bounds: Any) -> Check:
    """A finite number, in the interval of `check_real`, or one of some strings."""
    return Check("check_number_or", (words,), tuple(bounds.items()))


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that only counts as such."""
    if not isinstance(value, bool):
        from .validation import ArgumentTypeError

        raise ArgumentTypeError(name, f"must be True or False, got {value!r}")
    return value


class Around(NamedTuple):
    """Tuned on a logarithmic scale from the value divided by `below` to it times `above`."""

    below: float
    above: float


class Among(NamedTuple):
    """Tuned over these values and the one that there is."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Parameter:
    """What there is to know of a parameter.

    Attributes
    ----------
    name : str
        Of the field.
    default : object
    annotation : str
        Its type, as it is written.
    help : str
        What options say of it: a sentence without its full stop.
    symbol : str
        In the paper's notation, as LaTeX; empty if it has none.
    unit : str or None
    label : str
        For an axis: the name as words, its symbol and its unit, unless something else is given.
    check : callable or None
        Called with name and value, returns the value as it is kept. None is not checked where it
        is the default.
    search : Around, Among or None
        How it is tuned.
    option : str
        What options and specifications call it: the name, unless that is another's there.
    shown : str or None
        What help says of the default, where that depends on something.
    metavar : str or None
        Stands for the value in help.
    """

    name: str
    default: Any = None
    annotation: str = ""
    help: str = ""
    symbol: str = ""
    unit: str | None = None
    label: str = ""
    check: Callable[[str, Any], Any] | None = None
    search: Around | Among | None = None
    option: str = ""
    shown: str | None = None
    metavar: str | None = None

    def __post_init__(self) -> None:
        unit = f"[{self.unit}]" if self.unit else ""
        words = (self.name.replace("_", " "), self.symbol, unit)
        object.__setattr__(self, "label", self.label or " ".join(filter(None, words)))
        object.__setattr__(self, "option", self.option or self.name)

    @property
    def kind(self) -> type | None:
        """The type of its values as text can give them: int, float, str or bool."""
        if "[" in self.annotation.removeprefix("Optional[") and not self.several:
            return None
        words = re.findall(r"\w+", self.annotation)
        return next((_KINDS[word] for word in words if word in _KINDS), None)

    @property
    def is_number_or_text(self) -> bool:
        """Whether its values are numbers or words."""
        return {"str", "float"} <= set(re.findall(r"\w+", self.annotation))

    @property
    def several(self) -> bool:
        """Whether its values are several numbers."""
        return self.annotation.startswith("tuple[")

    def checked(self, value: Any) -> Any:
        """The value as it is kept; an error names the parameter."""
        if self.check is None or (value is None and self.default is None):
            return value
        return self.check(self.name, value)


def param(
    default: T = dataclasses.MISSING,  # type: ignore[assignment]
    *,
    help: str,
    check: Callable[[str, Any], Any] | None = None,
    symbol: str = "",
    unit: str | None = None,
    label: str = "",
    search: Around | Among | None = None,
    option: str = "",
    shown: str | None = None,
    metavar: str | None = None,
    kw_only: bool = False,
    init: bool = True,
) -> T:
    """A field of a dataclass with its description, see `Parameter` for the arguments.

    Without a default it must be given.

    Write literals where options read them (`default`, `help`, `option`, `shown`, `metavar`): the
    command line knows them without importing what the class needs.
    """
    known = {
        "help": help, "symbol": symbol, "unit": unit, "label": label, "check": check,
        "search": search, "option": option, "shown": shown, "metavar": metavar,
    }  # fmt: skip
    found: Any = dataclasses.field(
        default=default, kw_only=kw_only, init=init, metadata={METADATA: known}
    )
    return found  # type: ignore[no-any-return]


_FOUND: dict[type, dict[str, Parameter]] = {}


def parameters(cls: type) -> dict[str, Parameter]:
    """The parameters of a dataclass by name, inherited ones first.

    Fields without a description are parameters too, known by name, type and default.
    """
    if cls in _FOUND:
        return _FOUND[cls]
    found = _FOUND[cls] = {}
    for f in dataclasses.fields(cls):
        if f.init:
            default = None if f.default is dataclasses.MISSING else f.default
            known = f.metadata.get(METADATA, {})
            found[f.name] = Parameter(f.name, default, _annotation(f.type), **known)
    return found


def _annotation(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation)


#: No value of a parameter.
_NOTHING = object()

#: Types of values that need no copy.
_WHOLE = {bool, int, float, str, type(None)}


def values_of(instance: Any) -> dict[str, Any]:
    """As `dataclasses.asdict`, which takes ten times as long where fields are numbers and words."""
    kind: Any = type(instance)
    found = {name: getattr(instance, name) for name in _names(kind)}
    return found if _WHOLE.issuperset(map(type, found.values())) else dataclasses.asdict(instance)


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls))


def check_fields(instance: Any) -> None:
    """Check every described field of a frozen dataclass and keep what the checks return.

    A field without a check of its own may be anything but NaN.

    Raises
    ------
    ValueError, TypeError
        Naming the field, or a class that has fields and is no dataclass.
    """
    cls: Any = type(instance)
    for name, check, settled in _checks(cls):
        value = getattr(instance, name)
        if value is settled:
            continue
        if check is not None:
            kept = check(value)
            if kept is not value:
                object.__setattr__(instance, name, kept)
        elif isinstance(value, float) and value != value:
            from .validation import ArgumentValueError

            raise ArgumentValueError(name, "must not be nan")


@cache
def _checks(cls: Any) -> tuple[tuple[str, Callable[[Any], Any] | None, Any], ...]:
    """The parameters of a class with their checks, where they have some, and the defaults that
    these keep as they are, which need not be checked for every instance."""
    _refuse_lost_fields(cls)
    found = parameters(cls).items()
    return tuple((name, p.checked if p.check else None, _settled(p)) for name, p in found)


def _settled(parameter: Parameter) -> Any:
    """The default if it is what its check keeps; what no value is if not."""
    default = parameter.default
    if parameter.check is not None and default is not None:
        with suppress(Exception):
            if parameter.checked(default) is default:
                return default
    return _NOTHING


def _refuse_lost_fields(cls: type) -> None:
    """Raise TypeError where a class says what its ``__init__``, made for its base, does not know.

    A field without ``@dataclass`` would be no parameter, and a new default be without effect.
    """
    known = {f.name for f in dataclasses.fields(cls)}
    for made in cls.__mro__:
        if "__dataclass_fields__" in vars(made):
            return
        own = {
            name for name, kind in inspect.get_annotations(made).items()
            if "ClassVar" not in str(kind)
        }  # fmt: skip
        lost = sorted(own | (known & vars(made).keys()))
        if lost:
            raise TypeError(
                f"{made.__name__} must be decorated with @dataclass(frozen=True): "
                f"{lost[0]} is a field of it"
            )
