"""Named tuples of arrays and numbers as compiled code is given them: by their address.

Passed by value, the arguments of a stage are some 350 numbers, at every call and in every
function between, and most of what there is to compile. A `View` is an address; what is read of it
is loaded where it is read, as compiled code would read an attribute of a tuple. Arrays are borrowed
of the caller: no reference is counted.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np
from llvmlite import ir
from numba import typeof
from numba.core import types
from numba.core.datamodel import PrimitiveModel, register_default
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, intrinsic, lower_getattr_generic, unbox
from numba.np.numpy_support import as_dtype, from_dtype
from numpy.typing import NDArray

from ._boundary import ArgumentTypeError

_I64 = ir.IntType(64)
_WORD = 8
_ALL_ONES = 2**64 - 1
_FROM_FLOAT, _TO_WORD = struct.Struct("=d").pack, struct.Struct("=Q").unpack


class View(types.Type):
    """The type of an address at which are the fields, each of a number or of an array."""

    #: Arrays among the fields are the caller's, which outlive the call.
    lends = True

    def __init__(self, label: str, names: tuple[str, ...], kinds: tuple[Any, ...]) -> None:
        self.names, self.kinds = names, kinds
        self._given = [_given(kind) for kind in kinds]
        super().__init__(name=f"{label}({', '.join(map(str, kinds))})")

    def offset(self, position: int) -> int:
        """Where a field begins, in words of 8 bytes."""
        return sum(map(_words, self.kinds[:position]))

    def packed(self, values: Any) -> NDArray[np.uint64]:
        """The fields as words; the arrays must live as long as the result is used.

        Raises
        ------
        TypeError
            Naming an array that is not of the type that was compiled for.
        """
        words: list[int] = []
        for name, given, value in zip(self.names, self._given, values, strict=True):
            if given is None:
                words.append(int(value) & _ALL_ONES)
            elif given is float:
                words += _TO_WORD(_FROM_FLOAT(value))
            elif given != (value.dtype, value.ndim) or not value.flags.c_contiguous:
                raise ArgumentTypeError(
                    name,
                    f"must be C-contiguous, {given[0]} and of {given[1]} dimensions, "
                    f"got {value.dtype} of {value.ndim}",
                )
            else:
                # What has no entries is read nowhere: its address takes longer than all else.
                address = value.ctypes.data if value.size else 0
                words += value.size, address, *value.shape, *value.strides
        return np.array(words, np.uint64)


def _given(kind: Any) -> Any:
    """What an argument for a field of this type is: an array, a float, or an integer."""
    if isinstance(kind, types.Array):
        return as_dtype(kind.dtype), kind.ndim
    return float if isinstance(kind, types.Float) else None


def _words(kind: Any) -> int:
    """Numbers that stand for a field: an array has its size, address, shape and strides."""
    return 2 + 2 * kind.ndim if isinstance(kind, types.Array) else 1


def view_of(example: Any, label: str = "") -> View:
    """The type of views of tuples like `example`."""
    names = getattr(example, "_fields", tuple(map(str, range(len(example)))))
    return _view(label or type(example).__name__, names, tuple(map(_kind, example)))


def _kind(value: Any) -> Any:
    """What the type of a value follows from, which takes Numba longer than a round of a run."""
    if isinstance(value, np.ndarray) and value.flags.c_contiguous:
        return value.dtype, value.ndim, value.flags.writeable
    return typeof(value)


@functools.cache
def _view(label: str, names: tuple[str, ...], kinds: tuple[Any, ...]) -> View:
    return View(label, names, tuple(map(_type, kinds)))


def _type(kind: Any) -> Any:
    if not isinstance(kind, tuple):
        return kind
    dtype, ndim, writeable = kind
    return types.Array(from_dtype(dtype), ndim, "C", readonly=not writeable)


@register_default(View)
class _Model(PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, _I64)


@unbox(View)
def _from_python(kind: Any, value: Any, c: Any) -> NativeValue:
    """From the address as a Python integer."""
    return NativeValue(c.pyapi.long_as_ulonglong(value), is_error=c.pyapi.c_api_error())


@infer_getattr
class _Attributes(AttributeTemplate):
    key = View

    def generic_resolve(self, value: Any, attr: str) -> Any:  # type: ignore[override]
        return value.kinds[value.names.index(attr)] if attr in value.names else None


@lower_getattr_generic(View)
def _get_attribute(context: Any, builder: Any, kind: Any, value: Any, attribute: str) -> Any:
    return field(context, builder, kind, value, kind.names.index(attribute))


def field(context: Any, builder: Any, kind: View, address: ir.Value, position: int) -> ir.Value:
    """The field at a position."""
    found, at = kind.kinds[position], kind.offset(position)
    if not isinstance(found, types.Array):
        stored = context.get_data_type(found)
        value = _word(builder, address, at, stored if found != types.boolean else _I64)
        return builder.trunc(value, ir.IntType(1)) if found == types.boolean else value
    dims = range(found.ndim)
    items, data = (_word(builder, address, at + k, _I64) for k in range(2))
    size = _I64(context.get_abi_sizeof(context.get_data_type(found.dtype)))
    if found.ndim == 1:  # C-contiguous, as `packed` has it
        return _array(context, builder, found, data, items, [items], [size])
    shape = [_word(builder, address, at + 2 + k, _I64) for k in dims]
    strides = [_word(builder, address, at + 2 + found.ndim + k, _I64) for k in dims]
    return _array(context, builder, found, data, items, shape, strides)


def _word(builder: Any, address: ir.Value, at: int, kind: Any) -> ir.Value:
    """The word at a place, which nobody changes while compiled code has the view."""
    place = builder.inttoptr(builder.add(address, _I64(_WORD * at)), kind.as_pointer())
    value = builder.load(place)
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


def _array(
    context: Any, builder: Any, kind: Any, data: ir.Value, items: Any, shape: Any, strides: Any
) -> Any:
    """An array that nobody owns."""
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    model = context.data_model_manager[kind]
    made = ir.Constant(context.get_value_type(kind), None)
    parts = {
        "nitems": items,
        "itemsize": _I64(size),
        "data": builder.inttoptr(data, made.type.elements[model.get_field_position("data")]),
    }
    for name, value in parts.items():
        made = builder.insert_value(made, value, model.get_field_position(name))
    for name, values in (("shape", shape), ("strides", strides)):
        for k, value in enumerate(values):
            made = builder.insert_value(made, value, (model.get_field_position(name), k))
    return made


@intrinsic
def whole(typingctx: Any, view: Any) -> Any:
    """All fields of a view, as a tuple."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        values = [field(context, builder, view, args[0], k) for k in range(len(view.kinds))]
        return context.make_tuple(builder, sig.return_type, values)

    return types.Tuple(view.kinds)(view), codegen


@intrinsic
def vector(typingctx: Any, address: Any, size: Any) -> Any:
    """The float64 array of that size at an address."""
    return types.Array(types.float64, 1, "C")(types.int64, types.int64), _of_one_dimension


@intrinsic
def single(typingctx: Any, address: Any, size: Any) -> Any:
    """The float32 array of that size at an address."""
    return types.Array(types.float32, 1, "C")(types.int64, types.int64), _of_one_dimension


@intrinsic
def integers(typingctx: Any, address: Any, size: Any) -> Any:
    """The int64 array of that size at an address."""
    return types.Array(types.int64, 1, "C")(types.int64, types.int64), _of_one_dimension


def _of_one_dimension(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kind, (data, items) = sig.return_type, args
    return _array(context, builder, kind, data, items, [items], [_I64(kind.dtype.bitwidth // 8)])
