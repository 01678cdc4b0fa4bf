"""Flower, imported and told which task this process would be in a real run."""

from __future__ import annotations

import contextlib
import warnings

# It warns of its own dependencies when it is imported, and here warnings are errors.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import flwr.clientapp
    import flwr.serverapp.strategy  # noqa: F401

with contextlib.suppress(ImportError):  # older versions need none
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
