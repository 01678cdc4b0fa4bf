"""What the library says of its arguments, in the words of a command."""

from __future__ import annotations

import re
from typing import Any

import typer

#: Options that take names of parameters themselves, which messages on them give as they are.
_OF_NAMES = ("--space", "--plot", "--by", "--where")


#: What follows the name of an argument that a message begins with.
_SAID = (
    r"=|, {words}\b| '[^']*' in | of (?:the |[\w-]+:)| and (?:--|{words}\b)|"
    r"(?:'s \w+| of [\w-]+| '[^']*'| \S+(?= (?:cannot|has)))? "
    r"(?:must|is|are|can|cannot|needs?|has|have|takes?|depends?|exclude)\b"
)


def with_option_names(error: Exception | str, command: str) -> str:
    """What the library says, its arguments' names as the options of a command that are typed.

    A plain word such as ``label`` is an argument where the error says so, or where it begins the
    message, which may follow the name of a file, and something is said of it; a word such as
    ``local_steps`` is one wherever it stands alone.
    """
    message = str(error)
    options = command_options(command)
    if not options:
        return message
    if choice := options.get("algorithms", options.get("algorithm")):
        message = message.replace("CurvatureFedEPM", f"{choice} curvature")
    words = "|".join(sorted(options, key=len, reverse=True))
    message = re.sub(
        rf"(?<![\w./-])({words})=('\w+'|\d+(?![\w.:]))",
        lambda m: f"{options[m[1]]} {m[2].strip(chr(39))}",
        message,
    )
    message = re.sub(
        r"^(kind|reference)s?\[(['\"])(.*?)\2\](?= must)",
        lambda m: f"{options[m[1]]} {m[3]}" if m[1] in options else m[0],
        message,
    )
    said = _SAID.replace("{words}", f"(?:{words})")
    if argument := getattr(error, "argument", None):
        said += rf"|(?<={re.escape(argument)})(?![\w./-])"
    for before, after in (("^|: ", said), (r"^--\S+ and ", r"(?![\w./-])")):
        message = re.sub(
            # The rows of a table are no option, though the number of columns to generate is.
            rf"({before})(?!features must be finite)({words})(?={after})",
            lambda m: m[1] + options[m[2]],
            message,
            count=1,
        )
    telling = "|".join(name for name in options if not name.isalpha())
    if not telling or message.startswith(_OF_NAMES):
        return message
    # What stands in quotes was typed, or is to be typed, like that.
    quoted = r"(?<!\w)'[^']*'|(?<!\w)\"[^\"]*\""
    return re.sub(
        rf"{quoted}|(?<![\w./-])({telling})(?![\w./-])",
        lambda m: options[m[1]] if m[1] else m[0],
        message,
    )


def command_options(name: str) -> dict[str, str]:
    """The options of a command such as ``run`` or ``runs list``, by the name of the argument that
    each one sets."""
    from . import make_app

    found: Any = typer.main.get_command(make_app(name.partition(" ")[0]))
    for word in name.split():
        found = getattr(found, "commands", {}).get(word)
    options: dict[str, str] = {}
    for parameter in found.params if found else ():
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("--"):
                options[option[2:].replace("-", "_")] = option
        if parameter.opts[0].startswith("--"):
            options.setdefault(parameter.name, parameter.opts[0])
    return options
