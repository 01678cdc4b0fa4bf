"""Work in blocks, shared between Python threads, for kernels that run without the GIL.

A kernel is compiled once then, and not again for Numba's threads, which takes longer still. What a
block costs beside its work is a call from Python, so blocks should take a tenth of a millisecond.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

from ._jit import most_threads

_pool: ThreadPoolExecutor | None = None


def _forget_pool() -> None:
    global _pool
    _pool = None  # its threads are the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def shared(work: Callable[[int], Any], blocks: int, threads: int) -> list[Any]:
    """``work(block)`` of every block, by `threads` threads, of which the caller is one.

    Any number of threads may call this at once: none waits for a block that nobody has begun.
    """
    results: list[Any] = [None] * blocks
    pending = iter(range(blocks))
    failed = False

    def take() -> None:
        nonlocal failed
        try:
            for block in pending:
                if failed:
                    break
                results[block] = work(block)
        except BaseException:
            failed = True
            raise

    helpers = _submitted(take, min(threads, blocks) - 1)
    try:
        take()
    finally:
        # Nobody is at work on what the caller gets back, or goes on with after an error.
        wait([helper for helper in helpers if not helper.cancel()])
    for helper in helpers:
        if not helper.cancelled():
            helper.result()
    return results


def _submitted(take: Callable[[], None], count: int) -> list[Future[None]]:
    """What the pool has been given to do: nothing, once the interpreter begins to end."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max(1, most_threads() - 1), "fedepm_fast")
    helpers: list[Future[None]] = []
    with suppress(RuntimeError):
        for _ in range(count):
            helpers.append(_pool.submit(take))
    return helpers
