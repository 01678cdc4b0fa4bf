"""Code for loops over ranges and for items of arrays, in as few instructions as it takes.

What LLVM makes of it is what it makes of Numba's, which writes four times as many: a third of all
that there was to write, to read and to simplify.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.ir import Expr, FreeVar, Global
from numba.core.lowering import Lower

#: Types of names of which nothing is left in compiled code.
_NO_VALUE = types.Function, types.Module
_NUMBER = types.Integer, types.Float, types.Boolean


class ShortLower(Lower):
    """Numba's lowering, with less to lower."""

    #: Start, stop and step of the ranges, and value and end of the steps, of the present block.
    _ranges: dict[str, tuple[Any, Any, Any]]
    _pairs: dict[str, tuple[Any, Any]]

    def pre_block(self, block: Any) -> None:
        super().pre_block(block)
        self._ranges, self._pairs = {}, {}

    def lower_assign(self, ty: Any, inst: Any) -> Any:
        value, name = inst.value, inst.target.name
        if isinstance(value, Expr):
            short = getattr(self, f"_short_{value.op}", None)
            found = None if short is None else short(ty, value, name)
            if found is not None:
                return found
        elif isinstance(value, Global | FreeVar) and isinstance(ty, _NO_VALUE):
            return self.context.get_dummy_value()
        return super().lower_assign(ty, inst)

    # Calls --------------------------------------------------------------------------------

    def _short_call(self, ty: Any, expr: Any, name: str) -> Any:
        function = self.typeof(expr.func.name)
        if not isinstance(function, types.Function) or expr.kws or expr.vararg:
            return None
        if function.typing_key is bool and self.typeof(expr.args[0].name) == ty == types.boolean:
            return self.loadvar(expr.args[0].name)
        if function.typing_key is range and isinstance(ty, types.RangeType):
            return self._range(ty, expr, name)
        return None

    def _range(self, ty: Any, expr: Any, name: str) -> Any:
        if ty.dtype not in (types.int64, types.uint64):
            return None
        kinds = self.fndesc.calltypes[expr].args
        given = [
            self.context.cast(self.builder, self.loadvar(of.name), self.typeof(of.name), kind)
            for of, kind in zip(expr.args, kinds, strict=True)
        ]
        word = self.context.get_value_type(ty.dtype)
        start, stop = (word(0), given[0]) if len(given) == 1 else given[:2]
        step = given[2] if len(given) == 3 else word(1)
        self._ranges[name] = start, stop, step
        return self._tuple(ty, start, stop, step)

    def _tuple(self, ty: Any, *values: Any) -> Any:
        made = ir.Constant(self.context.get_value_type(ty), ir.Undefined)
        for k, value in enumerate(values):
            made = self.builder.insert_value(made, value, k)
        return made

    # Loops --------------------------------------------------------------------------------

    def _short_getiter(self, ty: Any, expr: Any, name: str) -> Any:
        start, stop, step = self._ranges.get(expr.value.name, (None, None, None))
        if not isinstance(step, ir.Constant) or step.constant <= 0:
            return None
        builder, word = self.builder, step.type
        at, left = (cgutils.alloca_once(builder, word) for _ in range(2))
        span = builder.sub(stop, start)
        builder.store(start, at)
        some = builder.icmp_signed(">", span, word(0))
        with builder.if_else(builder.not_(some)) as (none, loop):
            with none:
                builder.store(word(0), left)
            with loop:
                count = span
                if step.constant > 1:
                    rest = builder.srem(span, step)
                    rest = builder.icmp_signed(">", rest, word(0))
                    rest = builder.select(rest, word(1), word(0))
                    count = builder.add(builder.sdiv(span, step), rest)
                builder.store(count, left)
        return self._tuple(ty, at, stop, step, left)

    def _short_iternext(self, ty: Any, expr: Any, name: str) -> Any:
        kind = self.typeof(expr.value.name)
        if not isinstance(kind, types.RangeIteratorType):
            return None
        builder = self.builder
        iterator = self.loadvar(expr.value.name)
        at, step, left = (builder.extract_value(iterator, k) for k in (0, 2, 3))
        count, value = builder.load(left), builder.load(at)
        going = builder.icmp_signed(">", count, count.type(0))
        with builder.if_then(going):
            builder.store(builder.sub(count, count.type(1), flags=["nsw"]), left)
            builder.store(builder.add(value, step), at)
        self._pairs[name] = value, going
        return self._tuple(ty, value, going)

    def _short_pair_first(self, ty: Any, expr: Any, name: str) -> Any:
        return self._pairs.get(expr.value.name, (None, None))[0]

    def _short_pair_second(self, ty: Any, expr: Any, name: str) -> Any:
        return self._pairs.get(expr.value.name, (None, None))[1]

    # Items --------------------------------------------------------------------------------

    def _short_static_getitem(self, ty: Any, expr: Any, name: str) -> Any:
        """Of an array: Numba looks for other ways first, in all that it has."""
        if expr.index_var is None or not isinstance(self.typeof(expr.value.name), types.Array):
            return None
        signature = self.fndesc.calltypes[expr]
        return self.lower_getitem(ty, expr, expr.value, expr.index_var, signature)

    def item(self, signature: Any, array: Any, index: Any) -> Any:
        """An item of an array; None where that is left to Numba."""
        kind, at = signature.args
        pointer = self._pointer(kind, at, array, index)
        if pointer is None:
            return None
        return self.context.unpack_value(self.builder, kind.dtype, pointer, _align(kind))

    def set_item(self, signature: Any, array: Any, index: Any, value: Any) -> bool:
        """Set it, or say that this is left to Numba."""
        kind, at, given = signature.args
        pointer = self._pointer(kind, at, array, index)
        if pointer is None:
            return False
        context, builder = self.context, self.builder
        number = context.cast(builder, self.loadvar(value.name), self.typeof(value.name), given)
        number = context.cast(builder, number, given, kind.dtype)
        context.pack_value(builder, kind.dtype, number, pointer, _align(kind))
        return True

    def _pointer(self, kind: Any, at: Any, array: Any, index: Any) -> Any:
        """Where an item of a C-contiguous array is; None for all else."""
        kinds: Any = at if isinstance(at, types.BaseTuple) else [at]
        kinds = [types.unliteral(of) for of in kinds]
        if (
            not isinstance(kind, types.Array)
            or kind.layout != "C"
            or not kind.ndim == len(kinds) > 0
            or not isinstance(kind.dtype, _NUMBER)
            or not all(isinstance(of, types.Integer) for of in kinds)
            or self.context.enable_boundscheck
        ):
            return None
        context, builder = self.context, self.builder
        place = context.cast(builder, self.loadvar(index.name), self.typeof(index.name), at)
        places = cgutils.unpack_tuple(builder, place) if len(kinds) > 1 else [place]
        held = self.loadvar(array.name)
        position = context.data_model_manager[kind].get_field_position
        data, shape = (builder.extract_value(held, position(k)) for k in ("data", "shape"))
        item: Any = None
        for axis, (of, k) in enumerate(zip(kinds, places, strict=True)):
            size = builder.extract_value(shape, axis)
            k = self._counted_from_0(of, k, size)
            item = k if item is None else builder.add(builder.mul(item, size), k)
        return builder.gep(data, [item])

    def _counted_from_0(self, kind: Any, index: Any, size: Any) -> Any:
        """An index; a negative one counts from the end."""
        signed = kind.signed
        index = self.context.cast(self.builder, index, kind, types.intp if signed else types.uintp)
        if not signed or (isinstance(index, ir.Constant) and index.constant >= 0):
            return index
        below = self.builder.icmp_signed("<", index, index.type(0))
        return self.builder.select(below, self.builder.add(index, size), index)


def _align(kind: Any) -> int | None:
    return None if kind.aligned else 1
