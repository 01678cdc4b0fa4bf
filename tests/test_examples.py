"""Every example runs, and says that what it checks holds."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: What each prints. The Flower app is run by tests/flower.
SAYS = {
    "dask_blocks.py": r"50 x 200,000 in 13 blocks: the bits of one call to ens: True",
    "memmap_ens.py": r"64 MiB on disk: peak \d\.\d MiB, limit 8 MiB; \d(e-1[5-9]|e\+00) from ens",
    "own_njit.py": r"10 rounds of 20 clients in one compiled function: \d\.\de-1[3-9] from run",
    "torch_model.py": r"82 parameters over 8 clients: f/m 0\.\d+ -> 0\.\d+, \d+ % of the rows",
    "torch_state_dict.py": r"20 state_dicts of 2,762 parameters aggregated in place, no copy: True",
}
if importlib.util.find_spec("dask") is None:
    SAYS["dask_blocks.py"] = r"this example needs dask: pip install 'fedepm-fast\[dask\]'"
if importlib.util.find_spec("torch") is None:
    SAYS["torch_model.py"] = r"fedepm_fast.torch needs torch: pip install 'fedepm-fast\[torch\]'"


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_an_example(name):
    options = ["--limit", "8"] if name == "memmap_ens.py" else []
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name, *options],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    said = done.stdout if done.returncode == 0 else done.stderr
    assert re.search(SAYS[name], said), done.stderr
