"""The order of atomics and fences on NVIDIA GPUs, written out.

LLVM's NVPTX lowers the order of an atomic load, an atomic store and a fence, and drops that of every read-modify-write, which becomes a relaxed `atom`. So
those get fences before and behind them: PTX ISA, "Memory Consistency Model", release and acquire patterns. A fence is also what restricts an order to a
scope: the scope of the instruction itself would be that of its atomicity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from vyre_py.ir.language.nodes import Space
from vyre_py.ir.language.op import RELAXED, AtomicOp, Order, Scope
from vyre_py.lowering.llvm.text import Writer

__all__ = ["fence", "in_order", "scope_of"]

# Who sees an atomic, in LLVM's words for the two memories that have them; and for whom memory is ordered.
_SCOPES: Final[Mapping[Space, str]] = {Space.BUFFER: "device", Space.WORKGROUP: "block"}
_ORDER_SCOPES: Final[Mapping[Scope, str]] = {Scope.DEVICE: "device", Scope.WORKGROUP: "block"}


def scope_of(space: Space) -> str:
    """Who sees an atomic on memory of a space, as an operand of the instruction."""
    return f'syncscope("{_SCOPES[space]}") '


def fence(w: Writer, scope: Scope) -> None:
    """A fence that is in one order with all others of its scope."""
    w.line(f'fence syncscope("{_ORDER_SCOPES[scope]}") seq_cst')


def in_order(w: Writer, op: AtomicOp, space: Space, perform: Callable[[Order], str]) -> str:
    """What `perform` gives, which writes the instruction with an order, between the fences that the order of `op` needs beside that."""
    order = op.order
    if order.scope is None:
        return perform(order)
    # Only invocations of the workgroup see its memory, and what they learn from one another they pass on by orders of their own.
    scope = _SCOPES[space] if space is Space.WORKGROUP else _ORDER_SCOPES[order.scope]
    if scope == _SCOPES[space] and not (op.reads and op.writes):
        return perform(order)
    if order.releases:
        w.line(f'fence syncscope("{scope}") release')
    found = perform(RELAXED)
    if order.acquires:
        w.line(f'fence syncscope("{scope}") acquire')
    return found
