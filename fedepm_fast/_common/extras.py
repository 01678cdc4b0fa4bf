"""Optional libraries: imported where they are used, named in one line when they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional module, or say which extra brings it.

    Parameters
    ----------
    module : str
        The module to import, for example ``"matplotlib.pyplot"``.
    extra : str
        The extra of this package that installs it.
    purpose : str
        What needs it, as the subject of a sentence.

    Returns
    -------
    module
        The imported module.

    Raises
    ------
    ImportError
        With a one-line hint, when the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        library = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != library:
            raise
        raise ImportError(
            f"{purpose} needs {library}: pip install 'fedepm-fast[{extra}]'"
        ) from None
