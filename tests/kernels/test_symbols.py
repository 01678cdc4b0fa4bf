"""Machine code that different processes kept is told apart in one that loads all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedepm_fast.kernels._jit import JIT_DISABLED

pytestmark = pytest.mark.skipif(JIT_DISABLED, reason="nothing is compiled")

#: Stages of one factory: of one qualified name, and of the same types.
MODULE = """
import ctypes
import sys

from numba.core import types

from fedepm_fast.kernels._jit import on_compile, stage
from fedepm_fast.kernels._pointers import address_of

SIGNATURE = types.int64(types.int64)


def add(summand):
    @stage
    def added(x):
        return x + summand

    return added


word = ctypes.c_int64
numbas = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.POINTER(word)] * 2, word)


def call(address, x):
    returned = word()
    numbas(address)(ctypes.byref(returned), ctypes.byref(word()), x)
    return returned.value


on_compile(lambda name: print("compiled", end=" "))
found = [add(int(k)).get_compile_result(SIGNATURE) for k in sys.argv[1:]]
# Looked for after all are loaded, and again in the other order.
for compiled in (*found, *found[::-1]):
    print(call(address_of(compiled), 100), end=" ")
"""


def test_stages_of_one_factory_that_two_processes_compiled(tmp_path: Path):
    (tmp_path / "adding.py").write_text(MODULE)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def adds(*summands: int) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "import adding", *map(str, summands)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    assert adds(1) == "compiled 101 101"
    assert adds(2) == "compiled 102 102"
    assert adds(1, 2) == "101 102 102 101"
    assert adds(2, 1) == "102 101 101 102"


#: All functions that are compiled for a stage, and the kernels whose machine code is kept.
COMPILING = """
from numba.core import compiler

compiled = []
compile_core = compiler.CompilerBase._compile_core

def recorded(self):
    told = self.state.func_id
    compiled.append(told.modname[:5] + " " + told.func_qualname.rpartition("_")[0])
    return compile_core(self)

compiler.CompilerBase._compile_core = recorded
from fedepm_fast.kernels import _jit, engine
assert engine._pointer(engine.select)
numba = sum(name.startswith("numba") for name in compiled)
print(len(compiled), len(set(compiled)), numba, _jit._compiled)
"""


def test_a_stage_compiles_each_helper_once_and_no_kernel_beside_it(tmp_path: Path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILING],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    count, different, of_numba, kept = done.stdout.strip().split(" ", 3)
    # Of Numba's own there is the smaller of two numbers, and nothing that formats an error.
    assert count == different and int(count) <= 14 and int(of_numba) <= 1
    assert kept == "['select']"
