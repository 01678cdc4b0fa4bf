"""``fedepm warmup``."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated

import typer

from ._compiling import announce_compilation


def warmup(
    float32: Annotated[
        bool, typer.Option("--float32", help="Also what only calls of your own with float32 need.")
    ] = False,
) -> None:
    """Compile the kernels now, so that the first use does not wait for it."""
    from .. import kernels
    from .._warm import warm_runs

    announce_compilation()
    compiled: list[str] = []
    withdraw = kernels.on_compile(compiled.append)
    start = perf_counter()
    kernels.warmup(("float64", "float32") if float32 else ("float64",))
    warm_runs()
    withdraw()
    done = "compiled" if compiled else "already compiled, loaded"
    print(f"kernels {done} in {perf_counter() - start:.1f} s")
