"""The asv suite.

The compiled kernels' cache is shared by the benchmarks of a commit in an environment, each of which
is a process or several, and by no other: machine code of one commit must never time another.

asv calls ``setup`` before every timed call where a benchmark has one, and then makes no more than
one call a sample. So there is none: data are made once a process, by cached functions, in the call
that warms up. Every parameter costs two processes: it stays where it has shown what others did not.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

if "ASV_COMMIT" in os.environ:  # an environment that asv made, for this commit
    os.environ["NUMBA_CACHE_DIR"] = os.path.join(
        tempfile.gettempdir(),
        "fedepm_fast_asv",
        f"{os.environ['ASV_COMMIT']}-{os.environ.get('ASV_ENV_NAME', '')}"[:150],
    )


class Timed:
    """Two processes, each of about a second after what it warms up with."""

    rounds = 2
    repeat = (3, 20, 1.0)
    sample_time = 0.02
    warmup_time = 0.1
    timeout = 900


def at(commit_lacks: ImportError | None) -> None:
    """Skip a benchmark whose module could not import what it asks for at this commit."""
    if commit_lacks is not None:
        from asv_runner.benchmarks.mark import SkipNotImplemented

        raise SkipNotImplemented(str(commit_lacks))


def units(work: Any, unit: str) -> Any:
    """Name the unit of a tracked value."""
    work.unit = unit
    return work
