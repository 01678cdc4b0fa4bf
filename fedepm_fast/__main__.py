"""``python -m fedepm_fast`` and ``fedepm``, the command line."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # what signal adds takes time to import
import os
import sys

#: The exit code after Ctrl-C, as shells have it.
INTERRUPTED = 130


def _leave(*_: object) -> None:
    """End at once: an exception would come out of the middle of some library's import."""
    os.write(2, b"interrupted, nothing was written\n")
    os._exit(INTERRUPTED)


def _is_command() -> bool:
    """Whether this process is the command, and not one of its workers, or who imports this."""
    named = os.path.basename(sys.argv[0] if sys.argv else "").startswith("fedepm")
    return __name__ == "__main__" or (named and "multiprocessing" not in sys.modules)


_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored
if _ours and _is_command():
    signal.signal(signal.SIGINT, _leave)


def main() -> None:
    """Import the command line, which an interrupt ends without a traceback, and run it."""
    if _ours:
        signal.signal(signal.SIGINT, _leave)
    from .cli import main as run

    try:
        if _ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        _leave()
    finally:
        if _ours:  # all is said: an interrupt of Python's own end is silent
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
