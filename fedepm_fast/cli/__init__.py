"""The command line, ``fedepm``.

A command is a module with a function, and one line here. Its options are the function's own and,
by groups, those that the descriptions of the parameters make: see `_options`. Nothing heavy is
imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from .. import __version__
from .._common.files import is_failure_of_disk
from .._common.notes import notes_of
from . import (
    _compare,
    _fit,
    _paper,
    _plan,
    _predict,
    _privacy,
    _run,
    _runs,
    _sweep,
    _tune,
    _warmup,
)
from ._common import INTERRUPTED, CommandFailed
from ._names import with_option_names
from ._options import Command, command
from ._output import guarded_output

#: The commands by name; `runs` is a group of its own.
COMMANDS: dict[str, Command] = {
    "fit": _fit.fit,
    "predict": _predict.predict,
    "evaluate": _predict.evaluate,
    "run": _run.run,
    "compare": _compare.compare,
    "sweep": _sweep.sweep,
    "tune": _tune.tune,
    "paper": _paper.paper,
    "audit": _privacy.audit,
    "plan": _plan.plan,
    "tradeoff": _privacy.tradeoff,
    "warmup": _warmup.warmup,
}


def _renamed(option: str) -> str:
    """The name that an option has now: ``--client`` is still taken."""
    return "client-column" if option == "client" else option


def make_app(only: str | None = None) -> typer.Typer:
    """All commands, with the options of what is registered now; or the one that is asked for."""
    app = typer.Typer(
        name="fedepm",
        help="FedEPM, the exact penalty method for federated learning.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.callback()(_root)
    for name in [only] if only in COMMANDS else COMMANDS:
        former = {"token_normalize_func": _renamed} if name in ("fit", "evaluate") else None
        app.command(name, context_settings=former)(
            command(COMMANDS[name], whole=only in (None, name))
        )
    if only not in COMMANDS:
        app.add_typer(_runs.app, name="runs")
    return app


def __getattr__(name: str) -> typer.Typer:
    """`app`, for who looks into it."""
    if name == "app":
        return make_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _print_version(value: bool) -> None:
    if value:
        print(f"fedepm {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0, 1 for what failed, 2 for bad input, 130 for Ctrl-C.

    What goes wrong is one line on standard error, and never a traceback. That nobody reads what is
    printed any more, as in ``fedepm run | head``, goes not wrong.
    """
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    with guarded_output():
        code = _main(arguments)
    sys.exit(code)


def _main(arguments: list[str]) -> int:
    code: Any
    typer.core.HAS_RICH = False  # of which typer 0.20 imports all for the plainest help
    completing = any(name.endswith("_COMPLETE") for name in os.environ)
    app = make_app(None if completing else arguments[0])
    called = " ".join(arguments[: 1 + (arguments[0] == "runs")])
    try:
        code = app(arguments, standalone_mode=False, prog_name="fedepm")
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        sys.stdout.flush()
    except CommandFailed as error:
        prefix = "" if error.code == INTERRUPTED else "error: "
        code = _say(with_option_names(error, called), error.code, prefix)
    except (KeyboardInterrupt, typer.Abort):
        code = _say("interrupted, nothing was written", INTERRUPTED, prefix="")
    except MemoryError as error:
        code = _say(f"not enough memory: {error}", 1)
    except Exception as error:
        usage = getattr(error, "format_message", None)
        if usage is not None:  # a mistake in the options themselves
            code = _say(_said_once(usage()) or "a command is missing: fedepm --help", 2)
        elif is_failure_of_disk(error):
            code = _say(_told(error) + notes_of(error), 1)
        elif isinstance(error, (ValueError, TypeError, ImportError, OSError)):
            code = _say(with_option_names(_told(error), called) + notes_of(error), 2)
        else:
            raise
    return code if isinstance(code, int) else 0


def _say(message: str, code: int, prefix: str = "error: ") -> int:
    print(prefix + " ".join(message.split()), file=sys.stderr)
    return code


def _told(error: Exception) -> str:
    """An error; one of the system's without its number, the file first."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        what = " cannot be written:" if is_failure_of_disk(error) else ":"
        return f"{error.filename}{what} {error.strerror}"
    return str(error)


def _said_once(message: str) -> str:
    """A message without what Typer adds to it where Click has said so already."""
    before, hint, after = message.partition("Did you mean")
    return (before + hint + after.partition("Did you mean")[0]).rstrip(" (")
