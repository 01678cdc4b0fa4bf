"""What is noted on errors that functions of the user's raise: whose they were, and when."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_LOSS, _NOISE = "in the loss of client ", "in the noise of client "


@contextmanager
def of_client(who: int | str, *, noise: bool = False) -> Iterator[None]:
    """What the block raises says whose loss, or noise, raised it, unless it does already."""
    try:
        yield
    except Exception as error:
        if not is_known(error):
            named = repr(who) if isinstance(who, str) else str(who)
            error.add_note(f"{_NOISE if noise else _LOSS}{named}")
        raise


def is_known(error: BaseException) -> bool:
    """Whether an error says whose it is."""
    return any(note.startswith((_LOSS, _NOISE)) for note in getattr(error, "__notes__", ()))


def name_clients(error: BaseException, names: Sequence[str] | None) -> None:
    """Let what is noted on an error have the names of the clients instead of their numbers."""
    if names is not None and is_known(error):
        error.__notes__ = [
            re.sub(rf"(?<=^{_LOSS})\d+$|(?<=^{_NOISE})\d+$", lambda m: repr(names[int(m[0])]), note)
            for note in error.__notes__
        ]


def notes_of(error: BaseException) -> str:
    """What is noted on an error, to follow its message on the same line."""
    notes = getattr(error, "__notes__", ())
    return f" ({', '.join(notes)})" if notes else ""
