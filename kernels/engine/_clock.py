"""Seconds of a steady clock, within compiled code."""

from __future__ import annotations

import sys
import time
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .._jit import JIT_DISABLED

# A function of the C library, called by name: an address would not survive in a cache.
_CLOCK_MONOTONIC = 6 if sys.platform == "darwin" else 1
_HAS_CLOCK = sys.platform != "win32"

if JIT_DISABLED:
    now = time.perf_counter
else:

    @intrinsic
    def now(typingctx: Any) -> Any:
        """Seconds since some moment in the past; only differences mean anything."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            i32, i64, double = ir.IntType(32), ir.IntType(64), ir.DoubleType()
            if not _HAS_CLOCK:
                ticks, rate = (cgutils.alloca_once(builder, i64) for _ in range(2))
                for name, place in (
                    ("QueryPerformanceCounter", ticks),
                    ("QueryPerformanceFrequency", rate),
                ):
                    kind = ir.FunctionType(i32, [i64.as_pointer()])
                    function = cgutils.get_or_insert_function(builder.module, kind, name)
                    builder.call(function, [place])
                parts = (builder.sitofp(builder.load(place), double) for place in (ticks, rate))
                return builder.fdiv(*parts)
            time_kind = ir.ArrayType(i64, 2)
            place = cgutils.alloca_once(builder, time_kind)
            kind = ir.FunctionType(i32, [i32, time_kind.as_pointer()])
            function = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
            builder.call(function, [i32(_CLOCK_MONOTONIC), place])
            seconds, nanoseconds = (
                builder.sitofp(
                    builder.load(builder.gep(place, [i32(0), i32(k)], inbounds=True)), double
                )
                for k in range(2)
            )
            return builder.fadd(seconds, builder.fmul(nanoseconds, double(1e-9)))

        return types.float64(), codegen
