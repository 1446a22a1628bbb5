"""Atomics on one element in LLVM IR: an instruction where there is one, a loop of compare-and-exchange for nand, and for min and max of floats.

Their order is an operand of the instruction. LLVM's NVPTX drops that of a read-modify-write, so that `lowering.llvm.gpu.orders` writes fences there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from vyre_py.ir.language.op import RELAXED, AtomicOp, Order
from vyre_py.ir.language.types import Type
from vyre_py.lowering.llvm.idioms import Emitter
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import bits_type, llvm_type

__all__ = ["OPERATIONS", "atomic_operation", "new_element"]

# Atomic -> its `atomicrmw` operation for signed and unsigned integers and for floats. min and max of floats have none that puts a number
# before NaN and -0 before +0; libNVVM has none for nand, and what NVPTX makes of it begins with a load that is no atomic one;
# compare_exchange is an instruction of its own.
OPERATIONS: Final[Mapping[str, tuple[str, str, str]]] = {
    "add": ("add", "add", "fadd"), "sub": ("sub", "sub", ""), "min": ("min", "umin", ""), "max": ("max", "umax", ""), "and": ("and", "and", ""),
    "or": ("or", "or", ""), "xor": ("xor", "xor", ""), "exchange": ("xchg", "xchg", ""),
    "nand": ("", "", ""),
}  # fmt: skip
# Atomics that are two ops of the table, one after the other.
_STEPS: Final[Mapping[str, tuple[str, str]]] = {"nand": ("and", "not")}


def _ordering(order: Order) -> str:
    """LLVM's word for an order."""
    return "monotonic" if order is RELAXED else order.name


def _loading(order: Order) -> str:
    """The same for what only loads."""
    return "acquire" if order.acquires else "monotonic"


def atomic_operation(
    w: Writer, op: AtomicOp, t: Type, pointer: str, operands: Sequence[str], rows: Mapping[str, Emitter], order: Order, scope: str = ""
) -> str:
    """An atomic on the element at `pointer` ("ptr %p"); gives the old value, "" for a store. `rows` is the op table of the target; `scope` is empty or
    `syncscope("...") `; `order` is that of the instruction, where fences around it may give the op its own."""
    name = op.name
    type_, bits, align = llvm_type(t), bits_type(t.bits), f"align {t.size_bytes}"
    if name == "load":
        found = w.let(f"load atomic {bits}, {pointer} {scope}{_ordering(order)}, {align}")
        return w.let(f"bitcast {bits} {found} to {type_}") if t.is_float else found
    if name == "store":
        value = w.let(f"bitcast {type_} {operands[0]} to {bits}") if t.is_float else operands[0]
        w.line(f"store atomic {bits} {value}, {pointer} {scope}{_ordering(order)}, {align}")
        return ""
    if name == "compare_exchange":
        expected, desired = operands
        return w.let(f"extractvalue {{ {type_}, i1 }} {_exchange(w, t, pointer, expected, desired, scope, order)}, 0")
    operation = OPERATIONS[name][2 if t.is_float else not t.is_signed]
    if not operation:
        return _loop(w, op, rows, t, pointer, operands[0], scope, order)
    return w.let(f"atomicrmw {operation} {pointer}, {type_} {operands[0]} {scope}{_ordering(order)}, {align}")


def new_element(w: Writer, name: str, t: Type, old: str, operand: str, rows: Mapping[str, Emitter]) -> str:
    """What an atomic of one operand that is an op, or two, puts in the place of the old element."""
    first, *then = _STEPS.get(name, (name,))
    new = rows[first](w, 1, t, t, (old, operand))
    for step in then:
        new = rows[step](w, 1, t, t, (new,))
    return new


def _exchange(w: Writer, t: Type, pointer: str, expected: str, desired: str, scope: str, order: Order) -> str:
    bits = bits_type(t.bits)
    orders = f"{_ordering(order)} {_loading(order)}"  # where it succeeds, where it fails
    return w.let(f"cmpxchg {pointer}, {bits} {expected}, {bits} {desired} {scope}{orders}, align {t.size_bytes}")


def _loop(
    w: Writer, op: AtomicOp, rows: Mapping[str, Emitter], t: Type, pointer: str, operand: str, scope: str, order: Order
) -> str:
    """Computes the new element and puts it in the place of the one seen, again while another was put there in between."""
    type_, bits = llvm_type(t), bits_type(t.bits)
    # Volatile: where LLVM finds that nothing is ever changed (the least of x and NaN), NVPTX would turn what is left, an atomic load of
    # read-only memory, into a cached one, and fails an assertion, which ends the process.
    first = w.let(f"freeze {bits} {w.let(f'load atomic volatile {bits}, {pointer} {scope}{_loading(order)}, align {t.size_bytes}')}")
    head, change, done = w.label("try"), w.label("change"), w.label("tried")
    before = w.current
    seen, found = w.name(), w.name()
    w.block(head)
    w.line(f"{seen} = phi {bits} [ {first}, %{before} ], [ {found}, %{change} ]")
    old = w.let(f"bitcast {bits} {seen} to {type_}")
    new = w.let(f"bitcast {type_} {new_element(w, op.name, t, old, operand, rows)} to {bits}")
    if op.order.releases:  # whoever acquires reads what is written here, though it is the same
        w.jump(change)
    else:  # most elements are no new least or greatest: they are left alone
        w.branch(w.let(f"icmp eq {bits} {new}, {seen}"), done, change)
    w.block(change)
    pair = _exchange(w, t, pointer, seen, new, scope, order)
    w.line(f"{found} = extractvalue {{ {bits}, i1 }} {pair}, 0")
    w.branch(w.let(f"extractvalue {{ {bits}, i1 }} {pair}, 1"), done, head)
    w.block(done)
    return old
