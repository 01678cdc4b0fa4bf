"""What a function computes, as a hash: equal in every process, whatever its name.

Numba takes the globals that a function reads for constants when it compiles it. So a hash of the
function must have them, and those of the functions that it calls: a store, or a cache of machine
code, would else take one function for another.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import inspect
from types import BuiltinFunctionType, CodeType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numba.core import extending
from numba.core.caching import FunctionCache
from numba.core.errors import TypingError
from numba.core.registry import cpu_target

from ._sources import source_digest

#: Modules whose functions are told from others by their names.
_KNOWN = ("builtins", "cmath", "math", "numba", "numpy", "operator")
_KERNELS = __name__.removesuffix("_identity")
_READS = "LOAD_GLOBAL", "LOAD_NAME"


class StaleCode(TypeError):
    """Numba would run what it compiled of a file's functions before another file changed."""


def own_identity(function: Any) -> str:
    """SHA-256, in hexadecimal, of the bytecode of a function and of all that it refers to.

    Raises
    ------
    TypeError
        If it refers to something that cannot be told from others of its kind.
    StaleCode
        If it calls a function that Numba keeps on disk, of which another file's are a part.
    """
    return hashlib.sha256(repr(_function(function, ())).encode()).hexdigest()


def value_identity(value: Any) -> str:
    """The same of a value that a function reads."""
    outer = (_Caller(None, False),)
    return hashlib.sha256(repr(_value("a value", value, outer, [])).encode()).hexdigest()


def plain(function: Any) -> Any:
    """The Python function of a compiled one."""
    return function.py_func if extending.is_jitted(function) else function


class _Caller(NamedTuple):
    """A function on the way to another one."""

    function: Any
    kept: bool
    """Whether Numba keeps its machine code on disk."""


def _function(function: Any, within: tuple[_Caller, ...]) -> Any:
    kept = isinstance(getattr(function, "_cache", None), FunctionCache)
    function = plain(function)
    callers = [caller.function for caller in within]
    if function in callers:  # it calls itself
        return ("caller", callers.index(function))
    within = (*within, _Caller(function, kept))
    names = sorted(_names(function.__code__))
    globals_ = function.__globals__
    read = [(name, globals_[name]) for name in sorted(_read(function.__code__)) if name in globals_]
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    read += [(name, cell.cell_contents) for name, cell in cells]
    return (
        _code(function.__code__, function.__doc__),
        _value("its defaults", (function.__defaults__, function.__kwdefaults__), within, names),
        tuple((name, _value(name, value, within, names)) for name, value in read),
    )


def _names(code: CodeType) -> set[str]:
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _read(code: CodeType) -> set[str]:
    """The names that are read of a module's globals: not those of attributes."""
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    own = {of.argval for of in dis.get_instructions(code) if of.opname in _READS}
    return own.union(*map(_read, inner))


def _code(code: CodeType, doc: str | None = None) -> Any:
    constants = tuple(
        _code(c) if isinstance(c, CodeType) else _constant(None if k == 0 and c == doc else c)
        for k, c in enumerate(code.co_consts)
    )
    return (code.co_code, code.co_argcount, code.co_names, code.co_varnames, constants)


def _constant(value: Any) -> str:
    # The order of a set of strings differs from process to process.
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


def _value(name: str, value: Any, within: tuple[_Caller, ...], names: list[str]) -> Any:
    kind = type(value).__name__
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return (kind, repr(value))
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        numbers = hashlib.sha256(value.tobytes()).hexdigest()
        return (kind, value.dtype.str, value.shape, value.strides, numbers)
    if isinstance(value, (tuple, list)):
        return (kind, *(_value(name, item, within, names) for item in value))
    if isinstance(value, dict):
        return (kind, *((repr(k), _value(name, v, within, names)) for k, v in value.items()))
    intrinsic = isinstance(value, extending._Intrinsic)
    if intrinsic or extending.is_jitted(value) or inspect.isfunction(value):
        function = value._defn if intrinsic else plain(value)
        home = str(function.__module__)
        if home.partition(".")[0] in _KNOWN:
            return (kind, home, function.__qualname__)
        _refuse_stale(function, within)
        if home.startswith(_KERNELS) and not function.__closure__:
            return (kind, home, function.__qualname__, source_digest(home.removeprefix(_KERNELS)))
        if not intrinsic:
            return (kind, *_options(value), _function(value, within), *_overloads(value, within))
    if isinstance(value, functools.partial):  # what vectors are without compilation
        return (kind, *(_value(name, v, within, names) for v in (value.func, value.args)))
    if isinstance(value, ModuleType):
        if value.__name__.partition(".")[0] in _KNOWN:
            return (kind, value.__name__)
        used = [(n, getattr(value, n)) for n in names if hasattr(value, n)]
        return (kind, *((n, _value(n, v, within, names)) for n, v in used))
    if isinstance(value, type) and value.__module__.partition(".")[0] not in _KNOWN:
        return (kind, value.__module__, value.__name__, *_parts(value, name))
    if isinstance(value, (type, BuiltinFunctionType, np.ufunc)):
        return (kind, getattr(value, "__module__", ""), value.__name__)
    raise TypeError(f"refers to {name}, of type {kind}, which has no hash")


def _refuse_stale(called: Any, within: tuple[_Caller, ...]) -> None:
    """Raise StaleCode where `called` is of another file than a caller that Numba keeps on disk.

    ``cache=True`` looks at the file of that function alone. The outermost caller does not count:
    it is compiled anew, whatever Numba keeps of it.
    """
    file = called.__code__.co_filename
    for caller in within[1:]:
        if caller.kept and caller.function.__code__.co_filename != file:
            raise StaleCode(
                f"calls {caller.function.__qualname__}, compiled with cache=True, and that "
                f"{called.__qualname__} of another file: Numba would not notice when that one "
                "changes; leave out cache=True, the kernels are kept on disk anyway"
            )


def _overloads(value: Any, within: tuple[_Caller, ...]) -> Any:
    """What compiled code has in place of a Python function, by ``numba.extending.overload``."""
    if extending.is_jitted(value):
        return
    context: Any = cpu_target.typing_context
    context.refresh()
    try:
        kind = context.resolve_value_type(value)
    except (TypingError, ValueError):  # nothing: Numba cannot call it
        return
    for template in getattr(kind, "templates", ()):
        body = getattr(template, "_overload_func", None)
        if body is not None:
            yield _function(body, within)


def _options(dispatcher: Any) -> Any:
    """What a function is compiled with beyond the defaults, such as ``fastmath``."""
    given = getattr(dispatcher, "targetoptions", {})
    told = {k: sorted(v) if isinstance(v, set) else v for k, v in given.items() if v}
    return [f"{k}={told[k]!r}" for k in sorted(told) if k != "nopython"]


def _parts(kind: Any, name: str) -> Any:
    """What compiled code knows of a class: the names or values of its parts."""
    if issubclass(kind, enum.Enum):
        return [f"{k}={member.value!r}" for k, member in kind.__members__.items()]
    if issubclass(kind, tuple):
        return getattr(kind, "_fields", ())
    if issubclass(kind, BaseException):
        return ()
    raise TypeError(f"refers to {name}, a class, which has no hash")
