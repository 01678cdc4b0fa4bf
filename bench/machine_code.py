"""What LLVM makes of the kernels' loops, for processors that need not be this one.

    python bench/machine_code.py                                  # every kernel, every target
    python bench/machine_code.py --only logistic --target haswell --loops
    python bench/machine_code.py --only "ens 100" --target znver4 --asm /tmp/ens.s
    python bench/machine_code.py --page bench/README.md           # writes the table of that page

Each kernel is called once on little data, in a process whose Numba lowers and optimises for the
target: its name, its features, its costs. What runs here is made for this machine from that same
code, so a target may be of another architecture; not one whose instructions a kernel names itself
and this machine lacks. Only loops that work on vectors are counted:

=========  =====================================================================================
loops      loops with vectors in them, and the instructions in all of those
spills     registers put on the stack + taken back, those folded into an operand among them; in
           brackets those in innermost loops
unfused    sums of a product that was rounded before
calls      what loops call, by name: ``exp`` and the like are the C library's
gathers    loads of addresses that lie in a vector
widths     floating-point instructions by the bits of their vectors; 64, 32: one number at a time
=========  =====================================================================================
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine_code_loops import Loop, loops

AVX2 = "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+bmi,+bmi2"
AVX512 = f"{AVX2},+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx512cd,+avx512ifma,+avx512vbmi"
X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
#: Triple and features; LLVM knows what else a name implies, the kernels read the features alone.
TARGETS = {
    "znver4": (X86, AVX512),
    "znver5": (X86, AVX512),
    "haswell": (X86, AVX2),
    "x86-64-v2": (X86, "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt"),
    "x86-64": (X86, ""),
    "neoverse-n1": (ARM, "+neon,+fp-armv8"),
}
USUAL = [name for name in TARGETS if name != "x86-64"]


def logistic(rows: int, columns: int, dtype: str, sparse: bool = False) -> Callable[[], Any]:
    """Values and gradients of four clients."""

    def call() -> None:
        from scipy.sparse import csr_array

        from fedepm_fast.kernels import losses

        A = np.random.default_rng(0).normal(size=(4 * rows, columns)).astype(dtype)
        table = csr_array(A) if sparse else A
        packed = losses.pack(table, np.arange(4.0 * rows) % 2, np.full(4, rows))
        losses.values_and_gradients(packed, np.zeros(columns, dtype))

    return call


def aggregation(clients: int, dtype: str) -> Callable[[], Any]:
    """ENS of the uploads of that many."""

    def call() -> None:
        from fedepm_fast.kernels.ens import ens

        ens(np.random.default_rng(0).normal(size=(clients, 64)).astype(dtype), 0.5)

    return call


def laplace(dtype: str) -> Callable[[], Any]:
    """Noise of two clients."""

    def call() -> None:
        from fedepm_fast.kernels import noise

        noise.laplace(0, 0, 0, 0, np.arange(2), 100, dtype=dtype)

    return call


def local_steps(columns: int, dtype: str) -> Callable[[], Any]:
    """FedEPM's local steps of sixteen clients."""

    def call() -> None:
        from fedepm_fast.kernels.local_steps import fedepm_local_steps

        W = np.ones((16, columns), dtype)
        fedepm_local_steps(
            W, W[0], W, np.ones(16, dtype), lam=1.0, eta=1.0, mu0=1.0, c=1e-8, alpha=1.001,
            local_steps=12, first_iteration=0,
        )  # fmt: skip

    return call


def elementwise(name: str, dtype: str) -> Callable[[], Any]:
    """A function of `vecmath`."""

    def call() -> None:
        from fedepm_fast.kernels import vecmath

        getattr(vecmath, name)(np.ones(100, dtype))

    return call


CASES: dict[str, Callable[[], Any]] = {
    "logistic, 14 columns": logistic(50, 14, "float64"),
    "logistic, 14 columns, float32": logistic(50, 14, "float32"),
    "logistic, 300 columns": logistic(50, 300, "float64"),
    "logistic, CSR": logistic(50, 30, "float64", sparse=True),
    "ens 10": aggregation(10, "float64"),
    "ens 100": aggregation(100, "float64"),
    "ens 100, float32": aggregation(100, "float32"),
    "laplace": laplace("float64"),
    "laplace, float32": laplace("float32"),
    "local steps": local_steps(14, "float64"),
    "exp": elementwise("exp", "float64"),
    "log": elementwise("log", "float64"),
}


def listen(cpu: str, record: Callable[[str, str], None]) -> None:
    """Make Numba lower and optimise for that target, and record the assembly of what it makes."""
    from llvmlite import binding as llvm
    from numba.core import codegen

    triple, features = TARGETS[cpu]
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    prepare, finish = codegen.CPUCodegen._init, codegen.JITCodeLibrary._finalize_specific

    def _init(self: Any, module: Any) -> None:
        prepare(self, module)  # the engine makes code of this machine
        # As the engine does it; ARM's large addresses are not written as text.
        model = {"codemodel": "jitdefault", "jit": True} if triple == X86 else {}
        self._tm = llvm.Target.from_triple(triple).create_target_machine(
            cpu=cpu, features=features, opt=3, reloc="static", **model
        )
        self._tm.set_asm_verbosity(True)

    def _finalize_specific(self: Any) -> None:
        module = self._final_module.clone()
        if triple != X86:
            module = llvm.parse_assembly(str(module))
            module.triple, module.data_layout = triple, str(self._codegen._tm.target_data)
        record(self.name, self._codegen._tm.emit_assembly(module))
        finish(self)
        self._compiled_object = b"not for a cache"

    def _add_module(self: Any, module: Any) -> None:
        self._engine.add_module(module.clone())  # which it prepares for this machine

    codegen.CPUCodegen._init = _init
    codegen.JITCPUCodegen._add_module = _add_module
    codegen.JITCodeLibrary._finalize_specific = _finalize_specific
    codegen.CPUCodegen.magic_tuple = lambda self: (triple, cpu, features)


def compiled(cpu: str, only: str, asm: Path | None) -> dict[str, list[Loop]]:
    """The loops with vectors of each kernel, compiled for a target in this process."""
    found: dict[str, list[Loop]] = {}
    texts: list[str] = []
    present: list[Loop] = []

    def record(name: str, text: str) -> None:
        texts.append(text)
        present.extend(loop for loop in loops(name, text) if loop.vectors)

    listen(cpu, record)
    for name, call in CASES.items():
        if only in name:
            present = found[name] = []
            call()
    if asm is not None:
        asm.write_text("\n".join(texts), encoding="utf-8")
    return found


def ask(cpu: str, arguments: argparse.Namespace) -> dict[str, list[Loop]] | str:
    """What a process of that target's own finds, or the last line of what it died of."""
    command = [sys.executable, __file__, "--json", "--target", cpu, "--only", arguments.only]
    if arguments.asm:
        command += ["--asm", str(arguments.asm)]
    environment = {name: v for name, v in os.environ.items() if not name.startswith("NUMBA_CPU")}
    environment["NUMBA_CACHE_DIR"] = os.devnull  # no code that is kept: nothing to look at
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"signal {-done.returncode}"])[-1]
    return {n: [Loop(**loop) for loop in part] for n, part in json.loads(done.stdout).items()}


MARK = "<!-- machine code -->"
COLUMNS = ["loops", "spills", "unfused", "calls", "gathers", "widths"]


def cells(part: list[Loop]) -> list[str]:
    """The counts of some loops, added."""
    total, inner = Loop("", "", 0), Loop("", "", 0)
    for loop in part:
        total += loop
        inner += loop if loop.inner else Loop("", "", 0)
    spills = f"{total.spills} + {total.reloads} ({inner.spills} + {inner.reloads})"
    spills = "0" if spills == "0 + 0 (0 + 0)" else spills
    widths = ", ".join(f"{w}: {total.widths[w]}" for w in sorted(total.widths, key=int)[::-1])
    calls = ", ".join(f"{n} {name}" for name, n in total.calls.items())
    return [
        f"{len(part)} ({total.instructions})",
        spills,
        str(total.unfused),
        calls or "0",
        str(total.gathers),
        widths,
    ]


def short(part: list[Loop]) -> str:
    """What innermost loops spill, what is unfused, and calls of the C library; of some loops."""
    total = cells(part)
    inner = total[1].partition("(")[2].rstrip(")") or "0"
    calls = [call for call in total[3].split(", ") if not re.search(r"NRT_|mem(set|cpy)|^0$", call)]
    return ", ".join([inner.replace("0 + 0", "0"), total[2], *calls])


def write(page: Path, found: dict[str, dict[str, list[Loop]]]) -> None:
    """The table of a page, a row a kernel and a column a target, anew."""
    before, _, rest = page.read_text(encoding="utf-8").partition(f"{MARK}\n")
    after = rest.partition("\n\n")[2]
    lines = [["kernel", *found], ["---"] * (1 + len(found))]
    for name in CASES:
        lines.append([name, *(short(part[name]) for part in found.values())])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    page.write_text(f"{before}{MARK}\n{table}\n\n{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--target", action="append", choices=TARGETS, help="of LLVM; repeatable")
    parser.add_argument("--loops", action="store_true", help="a line for each loop")
    parser.add_argument("--asm", type=Path, help="write the assembly here, of one target")
    parser.add_argument("--page", type=Path, help="write the table of this page, of all kernels")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.json:
        found = compiled(arguments.target[0], arguments.only, arguments.asm)
        print(json.dumps({n: [vars(loop) for loop in part] for n, part in found.items()}))
        return
    heads = ["kernel", "target", *COLUMNS]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    whole = {}
    for cpu in arguments.target or USUAL:
        answer = ask(cpu, arguments)
        if isinstance(answer, str):
            print(f"{cpu}: {answer}", file=sys.stderr)
            continue
        whole[cpu] = answer
        for name, part in answer.items():
            print(f"| {' | '.join([name, cpu, *cells(part)])} |", flush=True)
            for loop in part if arguments.loops else ():
                place = f"- {loop.function} {loop.header}, depth {loop.depth}"
                print(f"| {' | '.join([place, cpu, *cells([loop])])} |")
    if arguments.page and not arguments.only:
        write(arguments.page, whole)


if __name__ == "__main__":
    main()
