"""The command line, ``fedepm``.

A command is a module with a function of typed options, and one line of registration here.
Nothing heavy is imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

import typer

from . import __version__, _cli_compare, _cli_run, _cli_warmup
from ._cli_common import CommandFailed

INTERRUPTED = 130

app = typer.Typer(
    name="fedepm",
    help="FedEPM, the exact penalty method for federated learning.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(_cli_run.run)
app.command("compare")(_cli_compare.compare)
app.command("warmup")(_cli_warmup.warmup)


def _print_version(value: bool) -> None:
    if value:
        print(f"fedepm {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0, 1 for a run that failed, 2 for bad input, 130 for Ctrl-C.

    Bad input is one line on standard error, and never a traceback.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    code: Any
    try:
        code = app(arguments, standalone_mode=False, prog_name="fedepm")
        if code == INTERRUPTED:
            raise KeyboardInterrupt
    except CommandFailed as error:
        code = _say(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        code = _say("interrupted, nothing was written", INTERRUPTED, prefix="")
    except BrokenPipeError:
        # The reader of our output has gone, as in `fedepm run | head`.
        sys.stderr.close()
        code = 141
    except Exception as error:
        usage = getattr(error, "format_message", None)
        if usage is not None:  # a mistake in the options themselves
            code = _say(usage() or "a command is missing: fedepm --help", 2)
        elif isinstance(error, (ValueError, TypeError, ImportError, OSError)):
            code = _say(_with_option_names(str(error), arguments), 2)
        else:
            raise
    sys.exit(code if isinstance(code, int) else 0)


def _say(message: str, code: int, prefix: str = "error: ") -> int:
    print(prefix + " ".join(message.split()), file=sys.stderr)
    return code


def _with_option_names(message: str, arguments: list[str]) -> str:
    """A message that begins with an argument's name, with the option's name instead."""
    match = re.match(r"[a-z]\w*", message)
    if match:
        option = "--" + match[0].replace("_", "-")
        if any(option in command_options(name) for name in arguments[:1]):
            return option + message[match.end() :]
    return message


def command_options(command: str) -> set[str]:
    """The options of a command."""
    group: Any = typer.main.get_command(app)
    found = group.commands.get(command)
    return {o for p in found.params for o in p.opts} if found else set()
