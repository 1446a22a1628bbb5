"""What LLVM targets can't lower, by name and place; and the facts about a Program that both walks lay out memory by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from vyre_py.ir.functions.called import signature_of
from vyre_py.ir.language.effects import ORDERS, SYNCHRONISES
from vyre_py.ir.language.nodes import TARGET_KINDS, Atomic, BoxCopy, Let, Memory, Space, Statement, WarpgroupProduct
from vyre_py.ir.language.ops import JOINED
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.layout import element_count
from vyre_py.lowering.llvm.gpu.fast import NVPTX_EMITTERS

__all__ = ["SWIZZLE_BYTES", "WORKGROUP_ALIGN", "alignment_of", "orders_memory", "require_ops", "shares_memory", "symbol_of", "workgroup_offsets"]

WORKGROUP_ALIGN: Final = 16
SWIZZLE_BYTES: Final = 1024  # what the swizzle of tensor cores repeats after

_NOT_IN_SYMBOLS = re.compile(r"[^A-Za-z0-9_]")
_SYMBOL_LENGTH: Final = 80


def symbol_of(program: Program) -> str:
    """The kernel's name in the code: `vyre_` and the Program's name, with what no assembler takes replaced."""
    return "vyre_" + _NOT_IN_SYMBOLS.sub("_", program.name)[:_SYMBOL_LENGTH]


def _missing_ops(optimised: Optimised) -> Iterator[Missing]:
    program, functions = optimised.program, optimised.functions
    for index, statement in enumerate(program.body):
        if not isinstance(statement, Let) or statement.op.is_query or statement.op is JOINED:
            continue
        if statement.op.name not in NVPTX_EMITTERS and signature_of(statement) not in functions:
            yield Missing(f"op {statement.op.name}", program.place(index))


def require_ops(who: str, optimised: Optimised) -> None:
    """Raises Unsupported that names every op without a row in the table, or a function."""
    if missing := list(_missing_ops(optimised)):
        raise Unsupported(who, missing)


def orders_memory(program: Program) -> bool:
    """Whether other workgroups' writes may become visible in the middle of an invocation: at a fence, an atomic that orders memory or one that only loads."""
    return any(ORDERS[type(s)] or (isinstance(s, Atomic) and not s.op.writes) for s in program.body)


def shares_memory(program: Program) -> bool:
    """Whether writes of other invocations may become visible in the middle of one: those of its own workgroup at a barrier, too."""
    return orders_memory(program) or any(SYNCHRONISES[type(s)] for s in program.body)


def _copied_first(program: Program) -> frozenset[Memory]:
    """The arrays from which tensor cores take factors: `lowering.tiles` has all of one written, by whoever loads it, before a barrier and its products."""
    if not any(isinstance(s, TARGET_KINDS) for s in program.body):
        return frozenset()
    return frozenset({m for m in program.memories if m.space is Space.WORKGROUP and m.rank > 1})


# The arrays that instructions see as swizzled.
_SWIZZLED: Final[Mapping[type[Statement], Callable[[Any], tuple[Memory, ...]]]] = {
    WarpgroupProduct: lambda s: (s.left, s.right), BoxCopy: lambda s: (s.memory,),
}  # fmt: skip


def alignment_of(memory: Memory, program: Program) -> int:
    """What a workgroup array begins on a multiple of, in bytes."""
    swizzled = any(memory in _SWIZZLED[type(s)](s) for s in program.body if type(s) in _SWIZZLED)
    return SWIZZLE_BYTES if swizzled else WORKGROUP_ALIGN


def workgroup_offsets(optimised: Optimised) -> tuple[Mapping[Memory, int], int, int]:
    """Where each workgroup array lies in the workgroup's block, how much of the block has to be zero before it is read, and the block's size, in
    bytes: the arrays that are not written first come first."""
    offsets: dict[Memory, int] = {}
    size = zeros = 0
    written_first = optimised.written_first | _copied_first(optimised.program)
    memories = [memory for memory in optimised.program.memories if memory.space is Space.WORKGROUP]
    for memory in sorted(memories, key=written_first.__contains__):
        size += -size % alignment_of(memory, optimised.program)
        offsets[memory] = size
        size += -(-element_count(memory) * memory.type.size_bytes // WORKGROUP_ALIGN) * WORKGROUP_ALIGN
        zeros = zeros if memory in written_first else size
    return offsets, zeros, size
