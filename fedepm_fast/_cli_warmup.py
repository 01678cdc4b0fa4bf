"""``fedepm warmup``."""

from __future__ import annotations

import sys
from time import perf_counter


def warmup() -> None:
    """Compile the kernels now, so that the first use does not wait for it."""
    from . import kernels

    compiled: list[str] = []

    def say(name: str) -> None:
        compiled.append(name)
        print("compiling kernels, the first time only ...", file=sys.stderr, flush=True)

    withdraw = kernels.on_compile(say)
    start = perf_counter()
    try:
        kernels.warmup()
    finally:
        withdraw()
    done = "compiled" if compiled else "already compiled, loaded"
    print(f"kernels {done} in {perf_counter() - start:.1f} s")
