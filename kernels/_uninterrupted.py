"""Ctrl-C while LLVM is at work."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C be heard when the block ends.

    LLVM hands machine code over by calling Python back. An exception cannot leave such a call: an
    interrupt that falls into one is lost, with the code, or ends the process by a signal.
    """
    handler: Any = signal.getsignal(signal.SIGINT)
    # Python handles signals in the main thread alone.
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *what: came.append(what))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[0])
