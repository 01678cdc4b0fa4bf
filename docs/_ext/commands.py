"""Every command with all its options, as ``fedepm COMMAND --help`` says them, on one page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from fedepm_fast import cli

if TYPE_CHECKING:
    from sphinx.application import Sphinx

#: What the page has where the commands belong.
PLACE = "<!-- every command -->"


def _escaped(text: str) -> str:
    text = re.sub(r"([\\`*_<>\[\]|$])", r"\\\1", text)
    return re.sub(r"(--[a-z-]+)", r"`\1`", text)  # or two hyphens become a dash


def _of(command: Any, above: Any, name: str) -> Iterator[str]:
    """Heading, words and options of a command and of those below it."""
    context = command.make_context(name, [], parent=above, resilient_parsing=True)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"{'##' if above.parent is None else '###'} {context.command_path}"
    yield from map(_escaped, (command.help or "").split("\n\n"))
    if not hasattr(command, "commands"):
        yield f"```console\n{usage}\n```"
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None:
            yield f"`{record[0]}`\n: {_escaped(record[1])}"
    for sub in getattr(command, "commands", {}).values():
        yield from _of(sub, context, sub.name)


def markdown() -> str:
    """The commands of the application, as Markdown."""
    typer.core.HAS_RICH = False  # as the program has it
    group: Any = typer.main.get_command(cli.app)
    top = group.make_context("fedepm", [], resilient_parsing=True)
    return "\n\n".join(p for sub in group.commands.values() for p in _of(sub, top, sub.name))


def _fill(app: Sphinx, name: str, source: list[str]) -> None:
    if PLACE in source[0]:
        source[0] = source[0].replace(PLACE, markdown())


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
