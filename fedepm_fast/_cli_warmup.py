"""``fedepm warmup``."""

from __future__ import annotations

from time import perf_counter

from ._cli_common import say_compiling


def warmup() -> None:
    """Compile the kernels now, so that the first use does not wait for it."""
    from . import kernels

    withdraw = kernels.on_compile(say_compiling)
    start = perf_counter()
    try:
        compiled = kernels.warmup()
    finally:
        withdraw()
    done = "compiled" if compiled else "already compiled, loaded"
    print(f"kernels {done} in {perf_counter() - start:.1f} s")
