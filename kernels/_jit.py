"""One home for every compilation option of the kernels, their threads and their warm-up.

Only functions made by the decorators below are affected: Numba's configuration, and
the user's own compiled functions and their caches, are left alone.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba.core import sigutils, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from ._cache import KernelCache, config
from ._inlined import BriefCompiler, InlinedCompiler, KernelCompiler, OptimisedCompiler
from ._uninterrupted import uninterrupted

JIT_DISABLED = bool(config.DISABLE_JIT)

# No fastmath: with explicit vectors and explicit fma the compiler has nothing left to
# reassociate, and results keep IEEE semantics for NaN, infinities and signed zeros.
# C calls none of them: a wrapper for it, which would print what is raised, takes long to compile.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": False,
    "no_cfunc_wrapper": True,
}
_DEVICE_OPTIONS: dict[str, Any] = {"forceinline": True, "no_cpython_wrapper": True, **_OPTIONS}


# ---------------------------------------------------------------------------------
# Decorators
# ---------------------------------------------------------------------------------


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function on first call, without the GIL, cached on disk."""
    return _compile(function)


def brief_kernel(function: Callable[..., Any]) -> Any:
    """Like `kernel`, for what does little itself: optimised less, in less time."""
    return _compile(function, BriefCompiler)


def stage(function: Callable[..., Any]) -> Any:
    """Like `kernel`, for what is called through a pointer alone, and not from Python."""
    return _compile(function, no_cpython_wrapper=True)


def brief_stage(function: Callable[..., Any]) -> Any:
    """Like `stage`, for what does little itself: optimised less, in less time."""
    return _compile(function, BriefCompiler, no_cpython_wrapper=True)


def parallel_kernel(function: Callable[..., Any]) -> Any:
    """Like `kernel`, with ``prange`` loops shared between Numba's threads.

    Call it inside `threads`, which also keeps two Python threads from entering
    Numba's thread pool at once: one of its layers aborts the process if they do.
    """
    return _compile(function, parallel=True)


def device(function: Callable[..., Any]) -> Any:
    """Compile a helper that is always inlined into the kernels that call it.

    It has no cache entry of its own, for the kernel around it has. From Python it cannot be called:
    that is a TypeError.
    """
    return _inlined(function, InlinedCompiler)


def large_device(function: Callable[..., Any]) -> Any:
    """Like `device`, optimised once before it is inlined: longer to compile, fewer spills."""
    return _inlined(function, OptimisedCompiler)


def chosen_device(choose: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Like `device`, for a function that is one of some: `choose`, of the arguments' types, says
    which, and no other is compiled. What is decorated says it to Python, of the arguments."""

    def decorate(function: Callable[..., Any]) -> Any:
        helper = device(function)
        if not JIT_DISABLED:
            helper.get_call_template = lambda args, kws: choose(*args).get_call_template(args, kws)
            helper.get_overload = lambda args: choose(*args).get_overload(args)
        return helper

    return decorate


class _Helper(CPUDispatcher):
    """A function of which there is no machine code to call."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"{self.py_func.__qualname__} is compiled into the kernels that call it, "
            "and cannot be called from Python"
        )


def _inlined(function: Callable[..., Any], compiler: type[InlinedCompiler], **options: Any) -> Any:
    if JIT_DISABLED:
        return function
    options = {**_DEVICE_OPTIONS, **options}
    helper = _thrifty(numba.njit(pipeline_class=compiler, **options)(function))
    helper.__class__ = _Helper

    def compile_helper(sig: Any) -> Any:
        """As Numba does it, but for its clocks, each of which hears every call of LLVM."""
        args, return_type = sigutils.normalize_signature(sig)
        with global_compiler_lock:
            found = helper.overloads.get(tuple(args))
            if found is None:
                with helper._compiling_counter:
                    found = helper._compiler.compile(args, return_type)
                helper.add_overload(found)
        return found.entry_point

    helper.compile = compile_helper
    return helper


def _compile(
    function: Callable[..., Any], compiler: type[KernelCompiler] = KernelCompiler, **options: Any
) -> Any:
    parallel = options.get("parallel", False)
    pipeline: dict[str, Any] = {} if parallel else {"pipeline_class": compiler}
    dispatcher = numba.njit(**_OPTIONS, **options, **pipeline)(function)
    if JIT_DISABLED:
        return dispatcher
    dispatcher._cache = KernelCache(function, options, _notify)
    if not parallel:
        # Compiled callers have it linked in as it is written: of its own there need be no code.
        inner = _inlined(function, InlinedCompiler, forceinline=False)
        dispatcher.get_call_template = inner.get_call_template
        dispatcher.get_overload = inner.get_overload
    return _thrifty(dispatcher)


def _thrifty(dispatcher: Any) -> Any:
    """The function, compiled less often and in less time, under a name that no other one has.

    Machine code is found by a symbol: the function's qualified name, a count of this process, and
    the types. Functions that one factory makes, of two losses say, could have the same one where
    two processes compiled them, and a third that loads both would run one for the other.

    Numba would compile it once for 0 and once for a number that it does not know: what a constant
    saves is found where the code is inlined. And what garbage a compilation leaves is little, but
    looking for it takes a tenth of the time.
    """
    template, compile_one = dispatcher.get_call_template, dispatcher._compiler.compile
    templates: dict[Any, Any] = {}

    def get_call_template(args: Any, kws: Any) -> Any:
        asked = tuple(map(types.unliteral, args)), tuple(kws.items())
        if asked not in templates:
            named = {k: types.unliteral(v) for k, v in asked[1]}
            templates[asked] = template(asked[0], named)
        return templates[asked]

    def compile_in_peace(args: Any, return_type: Any) -> Any:
        global _depth
        collects = gc.isenabled()  # one thread at a time is here: Numba has a lock
        function = dispatcher.py_func
        name = function.__qualname__
        gc.disable()
        _depth += 1
        try:
            function.__qualname__ = f"{name}_{uuid.uuid4().hex}"
            with uninterrupted() if _depth == 1 else contextlib.nullcontext():
                return compile_one(args, return_type)
        finally:
            function.__qualname__ = name
            _depth -= 1
            if collects:
                gc.enable()
            if _depth == 0:
                _tell(None)

    dispatcher.get_call_template = get_call_template
    dispatcher._compiler.compile = compile_in_peace
    return dispatcher


# ---------------------------------------------------------------------------------
# Threads
# ---------------------------------------------------------------------------------

_parallel_region = threading.RLock()


def _pool_started() -> bool:
    """Whether Numba's threads were started, by anyone's kernels."""
    pool = sys.modules.get("numba.np.ufunc.parallel")
    return pool is not None and getattr(pool, "_is_initialized", True)


#: Whether Numba believes in threads that are another process's: a fork copies none of them, and
#: the child would wait for them, or be ended.
_threads_lost = _pool_started() and multiprocessing.parent_process() is not None


def _after_fork() -> None:
    global _parallel_region, _threads_lost
    _parallel_region = threading.RLock()  # the thread that held it does not exist here
    _threads_lost = _threads_lost or _pool_started()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def most_threads() -> int:
    """How many threads kernels can use: 1 in a fork of a process that used Numba's."""
    return 1 if _threads_lost else int(config.NUMBA_NUM_THREADS)


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[int]:
    """Run parallel kernels with `count` threads, then restore the former number.

    Parameters
    ----------
    count : int or None
        Number of threads, from 1 to ``NUMBA_NUM_THREADS``; None keeps the present one.

    Yields
    ------
    int
        The number of threads in force.

    Raises
    ------
    TypeError
        If `count` is not an integer.
    ValueError
        If `count` is out of range.
    """
    most = config.NUMBA_NUM_THREADS
    if count is not None and (isinstance(count, bool) or not hasattr(count, "__index__")):
        raise TypeError(f"threads must be an integer or None, got {count!r}")
    if count is not None and not 1 <= count <= most:
        raise ValueError(f"threads must be between 1 and {most} (NUMBA_NUM_THREADS), got {count!r}")
    with _parallel_region:
        before = numba.get_num_threads()
        chosen = before if count is None else int(count)
        numba.set_num_threads(chosen)
        try:
            yield chosen
        finally:
            numba.set_num_threads(before)


# ---------------------------------------------------------------------------------
# Notices and warm-up
# ---------------------------------------------------------------------------------

_compile_callbacks: list[Callable[[str], None]] = []
_watchers: list[Callable[[str | None], None]] = []
#: Functions that are being compiled, each for the one before.
_depth = 0
_compiled: list[str] = []
_warmups: list[Callable[[Any], None]] = []


def on_compile(callback: Callable[[str], None]) -> Callable[[], None]:
    """Call `callback` once, with a kernel's name, when a compilation really starts.

    Loading from the cache is not a compilation. Returns a function that withdraws
    the callback.
    """
    _compile_callbacks.append(callback)

    def withdraw() -> None:
        with contextlib.suppress(ValueError):
            _compile_callbacks.remove(callback)

    return withdraw


def watch_compilation(watcher: Callable[[str | None], None]) -> Callable[[], None]:
    """Call `watcher` with module and name of each kernel that is compiled, and with None after it.

    Returns a function that ends it.
    """
    _watchers.append(watcher)

    def withdraw() -> None:
        with contextlib.suppress(ValueError):
            _watchers.remove(watcher)

    return withdraw


def _notify(function: Any) -> None:
    name = function.__qualname__
    _compiled.append(name)
    while _compile_callbacks:
        _compile_callbacks.pop(0)(name)
    _tell(f"{function.__module__}.{name}")


def _tell(name: str | None) -> None:
    for watcher in tuple(_watchers):
        watcher(name)


def warms(function: Callable[[Any], None]) -> Callable[[Any], None]:
    """Register a function that calls a module's kernels on tiny data, for `run_warmups`.

    It is given the types of the numbers.
    """
    _warmups.append(function)
    return function


def run_warmups(dtypes: Any) -> tuple[str, ...]:
    """Run every registered warm-up; returns the names of the kernels it had to compile."""
    before = len(_compiled)
    for function in _warmups:
        function(dtypes)
    return tuple(_compiled[before:])
