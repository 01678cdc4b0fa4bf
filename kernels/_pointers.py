"""Calls of compiled functions by their address, as Numba calls them: what they raise is raised."""

from __future__ import annotations

from typing import Any

from llvmlite import ir


def address_of(compiled: Any) -> int:
    """Where the machine code is, of functions that are not helpers compiled into others."""
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))


def call_at(context: Any, builder: Any, address: ir.Value, sig: Any, args: Any) -> ir.Value:
    """What the function of a signature returns that is at an address."""
    convention = context.call_conv
    kind = convention.get_function_type(sig.return_type, sig.args)
    function = builder.inttoptr(address, kind.as_pointer())
    status, found = convention.call_function(builder, function, sig.return_type, sig.args, args)
    with builder.if_then(status.is_error, likely=False):
        convention.return_status_propagate(builder, status)
    return found
