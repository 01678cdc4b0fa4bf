"""``fedepm warmup``."""

from __future__ import annotations

from time import perf_counter

from ._compiling import announce_compilation


def warmup() -> None:
    """Compile the kernels now, so that the first use does not wait for it."""
    from .. import kernels
    from .._warm import warm_runs

    announce_compilation()
    compiled: list[str] = []
    withdraw = kernels.on_compile(compiled.append)
    start = perf_counter()
    kernels.warmup()
    warm_runs()
    withdraw()
    done = "compiled" if compiled else "already compiled, loaded"
    print(f"kernels {done} in {perf_counter() - start:.1f} s")
