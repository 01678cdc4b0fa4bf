"""A process that is killed at a call of the system."""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any


def dying(calls: int) -> None:
    """Kill this process at a call of the system, within it if it writes."""
    left = [calls]

    def deadly(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                if call is write:
                    handle, data, offset = arguments
                    write(handle, data[: len(data) // 2], offset)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return wrapped

    write = os.pwrite
    for name in ("pwrite", "fsync", "ftruncate", "open"):
        setattr(os, name, deadly(getattr(os, name)))
    for name in ("replace", "unlink"):
        setattr(pathlib.Path, name, deadly(getattr(pathlib.Path, name)))
