"""Subgroups of up to 32 lanes on NVIDIA: parts of a warp, whose threads are 32 neighbours by the local index.

Each instruction names the threads that take part, those of one subgroup of several lanes: all that do not exist or have ended are in other subgroups, or the
kernel is being ended. Values move in pieces of 32 bits, their bits as they are. A shuffle past the end of a subgroup gives the own value (PTX ISA,
`shfl.sync`), so zero is chosen behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from vyre_py.ir.language.nodes import Const, Subgroup
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Kind, Type, i32, u32
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import llvm_type, number

__all__ = ["REDUCES_SINCE", "WARP", "gather", "joined", "parts_warps", "pieces", "takes", "together"]

WARP: Final = 32
# The architecture from which on integers are reduced by one instruction.
REDUCES_SINCE: Final = 80

_WORD_BITS: Final = 32
_WORDS: Final = frozenset({i32, u32})

# Shuffle -> its intrinsic's word, the last lane that it is held against, and what tells by operand and own lane whether there is such a lane.
_Inside = Callable[[Writer, str, str, int], str]
_SHUFFLES: Final[Mapping[str, tuple[str, int, _Inside]]] = {
    "shuffle": ("idx", WARP - 1, lambda w, i, lane, size: w.let(f"icmp ult i32 {i}, {size}")),
    "shuffle_xor": ("bfly", WARP - 1, lambda w, mask, lane, size: w.let(f"icmp ult i32 {mask}, {size}")),
    "shuffle_up": ("up", 0, lambda w, d, lane, size: w.let(f"icmp ule i32 {d}, {lane}")),
    "shuffle_down": ("down", WARP - 1, lambda w, d, lane, size: w.let(f"icmp ult i32 {d}, {w.let(f'sub i32 {size}, {lane}')}")),
}
_ALWAYS_INSIDE: Final = frozenset({"shuffle", "shuffle_xor"})  # where the operand is below the size
_VOTES: Final = {"ballot": ("i32", "ballot"), "all": ("i1", "all"), "any": ("i1", "any")}
# What is reduced -> the intrinsic for signed and unsigned words.
_REDUCTIONS: Final = {
    "reduce_add": ("add", "add"), "reduce_min": ("min", "umin"), "reduce_max": ("max", "umax"), "reduce_and": ("and", "and"), "reduce_or": ("or", "or"),
    "reduce_xor": ("xor", "xor"),
}


def takes(generation: int) -> Callable[[Subgroup], bool]:
    """Which ops of scalars are written here for architectures of a generation, of subgroups of at most a warp."""

    def taken(s: Subgroup) -> bool:
        type_, name = s.args[0].type, s.op.name
        if name in _REDUCTIONS:
            return generation >= REDUCES_SINCE and type_ in _WORDS
        return name in _SHUFFLES or name in _VOTES or (name == "match" and not type_.is_float)

    return taken


def together(w: Writer, s: Subgroup, size: int, local_index: Callable[[], str], operands: Sequence[str]) -> str:
    """What an op that is taken gives, in subgroups of `size` lanes."""
    type_, name = s.args[0].type, s.op.name
    if size == 1:
        return _alone(w, s, operands)
    members = _members(w, size, local_index)
    if name in _SHUFFLES:
        return _shuffled(w, s, size, local_index, members, operands)
    if name in _VOTES:
        result, vote = _VOTES[name]
        found = w.call(result, f"llvm.nvvm.vote.{vote}.sync", ("i32", members), ("i1", operands[0]))
        return _own(w, found, size, local_index) if name == "ballot" else found
    if name == "match":
        wide = type_.bits > _WORD_BITS
        value = operands[0] if type_.bits >= _WORD_BITS else w.let(f"zext {llvm_type(type_)} {operands[0]} to i32")
        bits = "i64" if wide else "i32"
        return _own(w, w.call("i32", f"llvm.nvvm.match.any.sync.{bits}", ("i32", members), (bits, value)), size, local_index)
    return w.call("i32", f"llvm.nvvm.redux.sync.{_REDUCTIONS[name][not type_.is_signed]}", ("i32", operands[0]), ("i32", members))


def parts_warps(program: Program) -> bool:
    """Whether instructions of a Program name parts of a warp."""
    return 1 < program.subgroup < WARP and any(isinstance(s, Subgroup) for s in program.body)


def gather(w: Writer, threads: int, local_index: str) -> None:
    """Has all threads of a warp of a workgroup of so many come together, before a barrier of the workgroup. Where instructions name parts of a warp the
    assembler lets these go apart, and its barriers did not hold for a warp that was (ptxas 13.0 and 13.5, on an H200; see `_alone`)."""
    whole, left = threads // WARP * WARP, threads % WARP
    members = "-1"
    if left:
        members = str((1 << left) - 1)
        if whole:
            members = w.let(f"select i1 {w.let(f'icmp ult i32 {local_index}, {whole}')}, i32 -1, i32 {members}")
    w.run("llvm.nvvm.bar.warp.sync", ("i32", members))


def _alone(w: Writer, s: Subgroup, operands: Sequence[str]) -> str:
    """What an op gives in a subgroup of one lane, without an instruction of the warp: those would be about as many sets of threads as there are threads, which
    the hardware takes one after the other. Of 40,000 generated Programs two went wrong so on an H200 (ptxas 13.0): for one of them a barrier did not hold."""
    type_, name = s.args[0].type, s.op.name
    if name in _SHUFFLES:
        zero = "false" if type_.kind is Kind.BOOL else number(type_, 0)
        held = llvm_type(type_)
        return w.let(f"select i1 {w.let(f'icmp eq i32 {operands[1]}, 0')}, {held} {operands[0]}, {held} {zero}")
    if name == "match":
        return "1"
    return w.let(f"zext i1 {operands[0]} to i32") if name == "ballot" else operands[0]


def _first(w: Writer, size: int, local_index: Callable[[], str]) -> str:
    """The first thread of the subgroup in its warp."""
    return w.let(f"and i32 {local_index()}, {(WARP - 1) & -size}")


def _members(w: Writer, size: int, local_index: Callable[[], str]) -> str:
    """The threads of the subgroup, as a mask over their warp."""
    if size == WARP:
        return "-1"
    return w.let(f"shl i32 {(1 << size) - 1}, {_first(w, size, local_index)}")


def _own(w: Writer, mask: str, size: int, local_index: Callable[[], str]) -> str:
    """A mask over a warp as one over the subgroup, whose threads alone it has."""
    return mask if size == WARP else w.let(f"lshr i32 {mask}, {_first(w, size, local_index)}")


def _shuffled(w: Writer, s: Subgroup, size: int, local_index: Callable[[], str], members: str, operands: Sequence[str]) -> str:
    type_, (value, by) = s.args[0].type, operands
    word, last, inside = _SHUFFLES[s.op.name]
    # Above the last lane stand the bits of a thread's number that the subgroup shares.
    clamp = WARP - size << 8 | last
    moved = [
        w.call("i32", f"llvm.nvvm.shfl.sync.{word}.i32", ("i32", members), ("i32", piece), ("i32", by), ("i32", str(clamp)))
        for piece in pieces(w, type_, value)
    ]
    made = joined(w, type_, moved)
    if s.op.name in _ALWAYS_INSIDE and isinstance(s.args[1], Const) and s.args[1].bits < size:
        return made
    there = inside(w, by, w.let(f"and i32 {local_index()}, {size - 1}"), size)
    zero = "false" if type_.kind is Kind.BOOL else number(type_, 0)
    return w.let(f"select i1 {there}, {llvm_type(type_)} {made}, {llvm_type(type_)} {zero}")


def pieces(w: Writer, type_: Type, value: str) -> list[str]:
    """A value as words."""
    held, bits = llvm_type(type_), type_.bits
    if held in ("float", "double"):
        value = w.let(f"bitcast {held} {value} to i{bits}")
    if bits == _WORD_BITS:
        return [value]
    if bits < _WORD_BITS:
        return [w.let(f"zext {held} {value} to i32")]
    return [w.let(f"trunc i64 {value} to i32"), w.let(f"trunc i64 {w.let(f'lshr i64 {value}, {_WORD_BITS}')} to i32")]


def joined(w: Writer, type_: Type, words: Sequence[str]) -> str:
    """The value of words."""
    held, bits, value = llvm_type(type_), type_.bits, words[0]
    if bits < _WORD_BITS:
        return w.let(f"trunc i32 {value} to {held}")
    if bits > _WORD_BITS:
        low, high = (w.let(f"zext i32 {part} to i64") for part in words)
        value = w.let(f"or i64 {low}, {w.let(f'shl i64 {high}, {_WORD_BITS}')}")
    return w.let(f"bitcast i{bits} {value} to {held}") if held in ("float", "double") else value
