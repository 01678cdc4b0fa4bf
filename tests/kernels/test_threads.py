"""Kernels called from several Python threads and processes at once: no abort, same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest

from fedepm_fast.kernels import _jit, _share

ROOT = Path(__file__).parents[2]

WORK = '''
import hashlib, os, sys, threading
import numpy as np
from fedepm_fast.kernels import ens as ens_module, losses, local_steps, noise, prox
from fedepm_fast.kernels.ens_blocks import ens_blocks

ens_module.PARALLEL_FROM = losses._PARALLEL_FROM = 0
rng = np.random.default_rng(0)
Z = rng.standard_cauchy((60, 333))
few = rng.normal(size=(7, 333))
A, b = rng.normal(size=(400, 9)), rng.integers(0, 2, 400).astype(float)
rows = losses.pack(A, b, np.full(8, 50))
x = rng.normal(size=9)
W, G = rng.normal(size=(2, 8, 9))
parameters = dict(lam=0.1, eta=0.2, mu0=0.5, c=0.1, alpha=1.01, local_steps=3, first_iteration=2)


def work(threads):
    """Everything once, as one digest."""
    results = [
        ens_module.ens(Z, 0.5, threads=threads),
        ens_module.ens(few, 0.5, threads=threads),
        ens_module.ens(np.ascontiguousarray(Z.T), 2.0, axis=1, threads=threads),
        ens_module.ens(Z, 0.5, weights=np.arange(1.0, 61.0), threads=threads),
        ens_blocks(Z, 0.5, block_rows=17),
        *losses.values_and_gradients(rows, x, threads=threads),
        *local_steps.fedepm_local_steps(W, x, G, np.ones(8), threads=threads, **parameters),
        prox.soft_threshold(Z, 0.3, threads=threads),
        noise.laplace(1, 2, 3, 4, np.arange(20), 101, threads=threads),
        noise.laplace(1, 2, 3, 4, np.arange(20), 101, standardize=True, threads=threads),
    ]
    return hashlib.sha256(b"".join(np.ascontiguousarray(r).tobytes() for r in results)).hexdigest()
'''

FROM_THREADS = (
    WORK
    + """
expected = work(1)
found = []


def loop():
    for _ in range(10):
        found.append(work(2))
        found.append(work(1))


pool = [threading.Thread(target=loop) for _ in range(4)]
[t.start() for t in pool]
[t.join() for t in pool]
assert len(found) == 80 and set(found) == {expected}
print(expected)
"""
)

FROM_PROCESSES = (
    WORK
    + """
import multiprocessing

if __name__ == "__main__":
    expected = work(2)
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        found = pool.map(work, [1, 2, 1, 2])
    assert set(found) == {expected}
    print(expected)
"""
)


FROM_FORKS = (
    WORK
    + """
import multiprocessing, warnings
from concurrent.futures import ProcessPoolExecutor
import numba

warnings.simplefilter("ignore", DeprecationWarning)  # of Python, about forks and threads
fork = multiprocessing.get_context("fork")


def in_a_child_of_a_child(threads):
    with ProcessPoolExecutor(1, mp_context=fork) as pool:
        return pool.submit(work, threads).result(120)


if __name__ == "__main__":
    expected = work(1)
    if "FIRST" == "ours":
        assert work(2) == expected
    else:
        numba.set_num_threads(2)
        numba.njit(parallel=True)(lambda x: x + x)(np.ones(1000))
    with fork.Pool(2) as pool:
        found = pool.map_async(work, [1, 2, 1, 2]).get(120)
    with ProcessPoolExecutor(2, mp_context=fork) as pool:
        found += pool.map(work, [2, 2])
        found.append(pool.submit(in_a_child_of_a_child, 2).result(120))
    child = os.fork()
    if child == 0:
        os._exit(work(2) != expected)
    assert os.waitpid(child, 0)[1] == 0
    assert set(found) == {expected} and work(2) == expected
    print(expected)
"""
)

FORKED_BEFORE = """
import os
import numba
from fedepm_fast.kernels import _jit


def in_child(function):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(function()).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return os.read(read, 99).decode()


def start():
    with _jit.threads(2):
        return f"{_jit.most_threads()} {in_child(_jit.most_threads)}"


assert in_child(_jit.most_threads) == "2"
assert in_child(start) == "2 1"
with _jit.threads(2):
    print(in_child(_jit.most_threads), _jit.most_threads(), in_child(start)[0])
"""


def run(tmp_path: Path, code: str, *arguments: str, **environment: str) -> str:
    """What a script prints; it fails with what it says on standard error."""
    script = tmp_path / "script.py"
    # Whatever does not come to an end says where it is.
    where = "import faulthandler\nfaulthandler.dump_traceback_later(500, exit=True)\n"
    script.write_text(where + code)
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_NUM_THREADS": "2", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_shared_work_ends_before_its_error_is_raised():
    begun, ended = [], []

    def work(block):
        begun.append(block)
        sleep(0.01)
        ended.append(block)
        if block == 3:
            raise ValueError("block 3")
        return block

    with pytest.raises(ValueError, match="block 3"):
        _share.shared(work, 50, 4)
    assert sorted(begun) == sorted(ended) and len(begun) < 50
    assert _share.shared(lambda block: block, 50, 4) == list(range(50))


# A thread that goes on when the main thread has ended finds no pool.
LATE = """
import threading, time
from fedepm_fast.kernels import _share
_share.shared(int, 3, 2)
late = threading.Thread(target=lambda: (time.sleep(0.5), print(_share.shared(int, 9, 2))))
late.start()
"""


def test_shared_work_of_a_thread_that_outlives_the_main_one(tmp_path):
    assert run(tmp_path, LATE) == str(list(range(9)))


# Without compilation there are no threads to test.
if not _jit.JIT_DISABLED:

    @pytest.mark.parametrize("layer", ["omp", "workqueue"])
    def test_four_python_threads(layer, tmp_path):
        assert len(run(tmp_path, FROM_THREADS, NUMBA_THREADING_LAYER=layer)) == 64

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
    @pytest.mark.parametrize("layer", ["omp", "workqueue"])
    @pytest.mark.parametrize("first", ["ours", "another's"])
    def test_forks_of_a_process_that_used_threads(first, layer, tmp_path):
        code = FROM_FORKS.replace("FIRST", first)
        assert len(run(tmp_path, code, NUMBA_THREADING_LAYER=layer)) == 64

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
    def test_a_fork_before_any_threads_has_its_own(tmp_path):
        assert run(tmp_path, FORKED_BEFORE) == "1 2 1"

    @pytest.mark.parametrize("method", ["spawn", "forkserver"])
    def test_processes(method, tmp_path):
        assert len(run(tmp_path, FROM_PROCESSES, method)) == 64
