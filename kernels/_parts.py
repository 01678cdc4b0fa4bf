"""Slices, room and named tuples for compiled code, in a few instructions each.

Numba's own slices stand for any start, end and step and check them all: a stage with five of them
spends more time on their compilation than on its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from ._jit import JIT_DISABLED, device
from ._uncounted import makes_arrays

#: Bytes of a cache line.
_LINE = 64
#: Numbers of `scratch`.
_SCRATCH = 128

if JIT_DISABLED:

    def part(array, first, last):
        """Rows `first` to ``last - 1`` of a C-contiguous array, which has them."""
        return array[first:last]

    def room(like, count):
        """Memory for so many numbers of the type of `like`, from a cache line on."""
        memory = np.empty(count + _LINE, like.dtype)
        first = (-memory.ctypes.data % _LINE) // memory.itemsize
        return memory[first : first + count]

    def scratch(like):
        """128 zeros of the type of `like`, on the stack, in whole cache lines."""
        return np.zeros(_SCRATCH, like.dtype)

    def as_named(values, kind):
        """The named tuple of a class that has as many fields as the array."""
        return kind(*values)

else:

    @intrinsic
    def part(typingctx: Any, array: Any, first: Any, last: Any) -> Any:
        """Rows `first` to ``last - 1`` of a C-contiguous array, which has them."""
        if not isinstance(array, types.Array) or array.layout != "C":
            raise TypingError(f"part() takes C-contiguous arrays, got {array}")

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            given = context.make_array(array)(context, builder, args[0])
            out = context.make_array(array)(context, builder)
            count = builder.sub(args[2], args[1])
            shape, strides = (
                [builder.extract_value(values, k) for k in range(array.ndim)]
                for values in (given.shape, given.strides)
            )
            items = count
            for size in shape[1:]:
                items = builder.mul(items, size)
            start = builder.ptrtoint(given.data, strides[0].type)
            start = builder.add(start, builder.mul(args[1], strides[0]))
            context.populate_array(
                out,
                data=builder.inttoptr(start, given.data.type),
                shape=[count, *shape[1:]],
                strides=strides,
                itemsize=given.itemsize,
                meminfo=given.meminfo,
                parent=given.parent,
            )
            out.nitems = items
            if context.enable_nrt:
                context.nrt.incref(builder, array, out._getvalue())
            return out._getvalue()

        return array(array, types.int64, types.int64), codegen

    @makes_arrays
    @intrinsic
    def room(typingctx: Any, like: Any, count: Any) -> Any:
        """Memory for so many numbers of the type of `like`, from a cache line on."""
        kind = types.Array(like.dtype, 1, "C")

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            out = context.make_array(kind)(context, builder)
            stored = context.get_data_type(kind.dtype)
            item = context.get_constant(types.intp, context.get_abi_sizeof(stored))
            size = builder.mul(args[1], item)
            owner = context.nrt.meminfo_alloc_aligned(builder, size, align=_LINE)
            data = context.nrt.meminfo_data(builder, owner)
            context.populate_array(
                out,
                data=builder.bitcast(data, stored.as_pointer()),
                shape=[args[1]],
                strides=[item],
                itemsize=item,
                meminfo=owner,
            )
            return out._getvalue()

        return kind(like, types.int64), codegen

    @intrinsic
    def scratch(typingctx: Any, like: Any) -> Any:
        """128 zeros of the type of `like`, on the stack, in whole cache lines.

        They are gone when the kernel returns.
        """
        kind = types.Array(like.dtype, 1, "C")

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            stored = context.get_data_type(kind.dtype)
            room = cgutils.alloca_once(builder, ir.ArrayType(stored, _SCRATCH))
            room.align = _LINE
            count = context.get_constant(types.intp, _SCRATCH)
            item = context.get_constant(types.intp, context.get_abi_sizeof(stored))
            cgutils.memset(builder, room, builder.mul(count, item), 0)
            out = context.make_array(kind)(context, builder)
            context.populate_array(
                out,
                data=builder.bitcast(room, stored.as_pointer()),
                shape=[count],
                strides=[item],
                itemsize=item,
                meminfo=None,
            )
            return out._getvalue()

        return kind(like), codegen

    @intrinsic
    def as_named(typingctx: Any, values: Any, kind: Any) -> Any:
        """The named tuple of a class that has as many fields as the array of float64 numbers."""
        fields = kind.instance_class
        if values != types.Array(types.float64, 1, "C"):
            raise TypingError(f"{fields.__name__} is made of an array of float64, got {values}")

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            data = context.make_array(values)(context, builder, args[0]).data
            places = (context.get_constant(types.intp, k) for k in range(len(fields._fields)))
            numbers = [builder.load(builder.gep(data, [place])) for place in places]
            return context.make_tuple(builder, sig.return_type, numbers)

        named = types.NamedUniTuple(types.float64, len(fields._fields), fields)
        return named(values, kind), codegen


@device
def fill(array, value):
    """``array[:] = value`` for one dimension."""
    for j in range(array.size):
        array[j] = value
