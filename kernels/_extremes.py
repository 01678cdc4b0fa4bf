"""The smaller and the larger of two numbers, as `min` and `max` have them, in two instructions.

Numba compiles a function for each pair of types, and machine code of it, which nobody calls.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic


def _extreme(symbol: str) -> Any:
    @intrinsic
    def extreme(typingctx: Any, first: Any, second: Any) -> Any:
        """The second where it compares as it must with the first, and else the first."""
        kind = typingctx.unify_types(first, second)
        if not isinstance(kind, types.Integer | types.Float):
            return None

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            one, other = (
                context.cast(builder, value, of, sig.return_type)
                for value, of in zip(args, sig.args, strict=True)
            )
            if isinstance(sig.return_type, types.Float):
                wins = builder.fcmp_ordered(symbol, other, one)
            elif sig.return_type.signed:
                wins = builder.icmp_signed(symbol, other, one)
            else:
                wins = builder.icmp_unsigned(symbol, other, one)
            return builder.select(wins, other, one)

        return kind(first, second), codegen

    return extreme


#: What stands for the functions of Python in compiled code.
EXTREMES = {min: _extreme("<"), max: _extreme(">")}
