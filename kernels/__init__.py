"""Compiled kernels of FedEPM: arrays in, arrays out, nothing but NumPy and Numba.

=======================  =========================================================================
``kernels.ens``          ENS, the elastic-net solver: a (weighted) median with a quadratic part
``kernels.ens_blocks``   the same from counts and sums, for uploads larger than memory
``kernels.prox``         soft-thresholding and the elastic-net prox
``kernels.local_steps``  the clients' local steps, fused
``kernels.losses``       logistic and least-squares objectives and gradients, dense and CSR
``kernels.philox``       counter-based random words, bit-equal to ``numpy.random.Philox``
``kernels.noise``        uniform, Laplace, standardised and Gaussian noise
``kernels.sampling``     sampling without replacement
``kernels.vecmath``      vector exp, log and log1p
``kernels.accuracy``     rows on the wrong side of linear classifiers
``kernels.engine``       whole runs in one call
=======================  =========================================================================

Modules are imported on first use and functions compiled on first call, once: the machine code is
kept on disk and is never served for other sources than those it came from. `warmup` compiles
them in advance; `on_compile` calls back when a compilation really starts.

The folder is ``kernels/`` at the root of the repository and the package is
``fedepm_fast.kernels``; under any other name it would be a second copy of the same modules,
with compiled functions and caches of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

if __name__ != "fedepm_fast.kernels":
    raise ImportError(f"the kernels are imported as 'fedepm_fast.kernels', not as {__name__!r}")

_MODULES = (
    "accuracy",
    "engine",
    "ens",
    "ens_blocks",
    "local_steps",
    "losses",
    "noise",
    "philox",
    "prox",
    "sampling",
    "vecmath",
)

__all__ = ["on_compile", "warmup", "watch_compilation", *_MODULES]


def warmup(dtypes: tuple[str, ...] = ("float64", "float32")) -> tuple[str, ...]:
    """Compile, or load from the cache, the kernels of all modules.

    What only some calls need is left to them: the kernels for several threads, those of `ens`
    for a small number of clients, which are made for that number, of `losses` those for rows
    of more than 64 columns and for CSR, and of the engine what deals the rows of a sweep's table of
    other numbers than codes and counts. So are an algorithm's own stages, which are no kernels:
    the command ``fedepm warmup`` compiles all that runs need.

    Parameters
    ----------
    dtypes : tuple of str
        Which numbers they are for. Those of `ens` are compiled for both whatever is asked, for
        uploads come as float32 where models have.

    Returns
    -------
    tuple of str
        The names of the kernels that had to be compiled.
    """
    if isinstance(dtypes, str) or not {"float64", "float32"}.issuperset(dtypes):
        from ._boundary import ArgumentValueError  # needs NumPy, which an import of this does not

        allowed = "must be a tuple of 'float64' and 'float32'"
        raise ArgumentValueError("dtypes", f"{allowed}, got {dtypes!r}")
    for name in _MODULES:
        importlib.import_module(f".{name}", __name__)
    from ._jit import run_warmups

    return run_warmups(dtypes)


def on_compile(callback: Callable[[str], None]) -> Callable[[], None]:
    """Call `callback` once, with a kernel's name, when a compilation really starts.

    Loading from the cache is not a compilation. Returns a function that withdraws the callback.
    """
    from ._jit import on_compile

    return on_compile(callback)


def watch_compilation(watcher: Callable[[str | None], None]) -> Callable[[], None]:
    """Call `watcher` with module and name of each kernel that is compiled, and with None after it.

    Returns a function that ends it.
    """
    from ._jit import watch_compilation

    return watch_compilation(watcher)


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
