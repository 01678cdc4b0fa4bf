"""``fedepm warmup``."""

from __future__ import annotations

from time import perf_counter

from ._cli_common import announce_compilation


def warmup() -> None:
    """Compile the kernels now, so that the first use does not wait for it."""
    from . import kernels

    announce_compilation()
    start = perf_counter()
    compiled = kernels.warmup()
    done = "compiled" if compiled else "already compiled, loaded"
    print(f"kernels {done} in {perf_counter() - start:.1f} s")
