"""Atomics on one element in LLVM IR: an instruction where there is one, a loop of compare-and-exchange for min and max of floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from vyre_py.ir.language.types import Type
from vyre_py.lowering.llvm.idioms import Emitter
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import bits_type, llvm_type

__all__ = ["OPERATIONS", "atomic_operation"]

# Atomic -> its `atomicrmw` operation for signed and unsigned integers and for floats. min and max of floats have none that puts a number
# before NaN and -0 before +0; compare_exchange is an instruction of its own.
OPERATIONS: Final[Mapping[str, tuple[str, str, str]]] = {
    "add": ("add", "add", "fadd"), "sub": ("sub", "sub", ""), "min": ("min", "umin", ""), "max": ("max", "umax", ""), "and": ("and", "and", ""),
    "or": ("or", "or", ""), "xor": ("xor", "xor", ""), "exchange": ("xchg", "xchg", ""),
}  # fmt: skip


def atomic_operation(w: Writer, name: str, t: Type, pointer: str, operands: Sequence[str], rows: Mapping[str, Emitter], scope: str = "") -> str:
    """An atomic on the element at `pointer` ("ptr %p"); gives the old value. `rows` is the op table of the target; `scope` is empty or
    `syncscope("...") `."""
    type_, align = llvm_type(t), f"align {t.size_bytes}"
    if name == "compare_exchange":
        expected, desired = operands
        return w.let(f"extractvalue {{ {type_}, i1 }} {_exchange(w, t, pointer, expected, desired, scope)}, 0")
    operation = OPERATIONS[name][2 if t.is_float else not t.is_signed]
    if not operation:
        return _loop(w, rows[name], t, pointer, operands[0], scope)
    return w.let(f"atomicrmw {operation} {pointer}, {type_} {operands[0]} {scope}monotonic, {align}")


def _exchange(w: Writer, t: Type, pointer: str, expected: str, desired: str, scope: str) -> str:
    bits = bits_type(t.bits)
    return w.let(f"cmpxchg {pointer}, {bits} {expected}, {bits} {desired} {scope}monotonic monotonic, align {t.size_bytes}")


def _loop(w: Writer, row: Emitter, t: Type, pointer: str, operand: str, scope: str) -> str:
    """Computes the new element and puts it in the place of the one seen, again while another was put there in between."""
    type_, bits = llvm_type(t), bits_type(t.bits)
    # Volatile: where LLVM finds that nothing is ever changed (the least of x and NaN), NVPTX would turn what is left, an atomic load of
    # read-only memory, into a cached one, and fails an assertion, which ends the process.
    first = w.let(f"freeze {bits} {w.let(f'load atomic volatile {bits}, {pointer} {scope}monotonic, align {t.size_bytes}')}")
    head, change, done = w.label("try"), w.label("change"), w.label("tried")
    before = w.current
    seen, found = w.name(), w.name()
    w.block(head)
    w.line(f"{seen} = phi {bits} [ {first}, %{before} ], [ {found}, %{change} ]")
    old = w.let(f"bitcast {bits} {seen} to {type_}")
    new = w.let(f"bitcast {type_} {row(w, 1, t, t, (old, operand))} to {bits}")
    # Most elements are no new least or greatest: they are left alone.
    w.branch(w.let(f"icmp eq {bits} {new}, {seen}"), done, change)
    w.block(change)
    pair = _exchange(w, t, pointer, seen, new, scope)
    w.line(f"{found} = extractvalue {{ {bits}, i1 }} {pair}, 0")
    w.branch(w.let(f"extractvalue {{ {bits}, i1 }} {pair}, 1"), done, head)
    w.block(done)
    return old
