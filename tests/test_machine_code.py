"""The counts of bench/machine_code.py, on a few lines of assembly."""

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"

X86 = """
f:
.LBB0_1:                                # =>This Loop Header: Depth=1
	vmovupd	(%rsp), %zmm1           # 64-byte Reload
.LBB0_2:                                #   Parent Loop BB0_1 Depth=1
                                        # =>  This Inner Loop Header: Depth=2
	vmulpd	%zmm1, %zmm2, %zmm3
	vfmadd231pd	%zmm1, %zmm2, %zmm7
	vaddpd	%zmm3, %zmm4, %zmm4
	vaddsd	%xmm5, %xmm6, %xmm6
	vmovups	%zmm4, 64(%rsp)         # 64-byte Spill
	vgatherqpd	(%rax,%zmm1,8), %zmm5 {%k1}
	movabsq	$exp, %rax
	callq	*%rax
	jne	.LBB0_2
# %bb.3:                                #   in Loop: Header=BB0_1 Depth=1
	jne	.LBB0_1
# %bb.4:
	vaddpd	%zmm3, %zmm4, %zmm4
"""
ARM = """
f:
.LBB0_1:                                // =>This Inner Loop Header: Depth=1
	fmul	v0.2d, v1.2d, v2.2d
	fmla	v3.2d, v1.2d, v2.2d
	fadd	v4.2d, v4.2d, v0.2d
	str	q4, [sp, #16]                   // 16-byte Spill
	bl	log
	b.ne	.LBB0_1
"""


@pytest.fixture
def loops(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    yield __import__("machine_code_loops").loops
    sys.modules.pop("machine_code_loops")


def test_x86(loops):
    outer, inner = loops("a.<locals>.f_0123456789abcdef0123456789abcdef", X86)
    assert (outer.function, outer.depth, outer.inner) == ("f", 1, False)
    assert (outer.instructions, outer.spills, outer.reloads) == (2, 0, 1)
    assert (inner.depth, inner.inner, inner.instructions) == (2, True, 9)
    assert (inner.spills, inner.reloads, inner.unfused, inner.gathers) == (1, 0, 1, 1)
    assert inner.calls == {"exp": 1} and inner.widths == {"512": 3, "64": 1}
    total = outer + inner
    assert (total.instructions, total.spills, total.reloads) == (11, 1, 1)


def test_arm(loops):
    (loop,) = loops("f", ARM)
    assert (loop.instructions, loop.vectors, loop.spills, loop.unfused) == (6, 4, 1, 1)
    assert loop.calls == {"log": 1} and loop.widths == {"128": 3}
