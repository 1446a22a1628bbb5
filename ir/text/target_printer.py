"""How statements are printed that a Program has only once it was made for a target (`nodes.TARGET_KINDS`): for people, since no text has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from vyre_py.ir.language.nodes import (
    ArrivalsExpect,
    ArrivalsSet,
    ArrivalsTell,
    ArrivalsWait,
    Atom,
    BoxCopy,
    ClusterBarrier,
    MatrixLoad,
    Memory,
    Pack,
    PackedProduct,
    Statement,
    StripCopy,
    TensorCore,
    Unpack,
    WarpgroupBarrier,
    WarpgroupProduct,
    WarpgroupRegisters,
    WarpgroupSignal,
    WarpgroupWait,
)
from vyre_py.ir.language.types import Type, u32
from vyre_py.ir.text.lexer import written_name

__all__ = ["TARGET_TEXTS", "Operands"]


class Operands(Protocol):
    """What writes the operands of a statement."""

    def operand(self, atom: Atom, type_: Type | None = None) -> str:
        """An operand's text; a constant of type `type_` goes without a suffix."""

    def access(self, memory: Memory, indices: Sequence[Atom]) -> str:
        """An element of an array."""


def _box(w: Operands, memory: Memory, places: Sequence[Atom], extents: Mapping[int, int]) -> str:
    """The elements of an array from some place on, so many along some of its axes."""
    axes = [w.operand(a) + (f" : {extents[axis]}" if axis in extents else "") for axis, a in enumerate(places)]
    return f"{written_name(memory.name)}[{', '.join(axes)}]"


def _from(w: Operands, memory: Memory, place: Atom) -> str:
    """An array from a flat place on."""
    return f"{written_name(memory.name)} at {w.operand(place, u32)}"


def _tensor_core(w: Operands, s: TensorCore) -> str:
    factors = [f"({', '.join([w.operand(a) for a in factor])})" for factor in s.factors]
    return f"tensor_core {w.access(s.memory, s.args[:1])}, {', '.join(factors)}"


def _matrix_load(w: Operands, s: MatrixLoad) -> str:
    return f"matrix_load {w.access(s.memory, s.indices)}, {_from(w, s.source, s.args[0])}{', turned' * bool(s.turned)}"


def _strip_copy(w: Operands, s: StripCopy) -> str:
    lies = f"axis {s.axis}, count {s.count}, down {s.down}, further {s.further}"
    return f"strip_copy {_from(w, s.memory, s.args[0])} = {_box(w, s.source, s.args[1:], {})}, {lies}"


def _warpgroup_product(w: Operands, s: WarpgroupProduct) -> str:
    left, right = [_from(w, m, a) for m, a in zip((s.left, s.right), s.args, strict=True)]
    sizes = f"rows {s.rows}, depth {s.depth}, width {s.width}{', along_k' * s.along_k}{', adds' * s.adds}"
    return f"warpgroup_product {w.access(s.memory, s.indices)}, {left}, {right}, {sizes}"


def _warpgroup_wait(w: Operands, s: WarpgroupWait) -> str:
    return f"warpgroup_wait {w.access(s.memory, s.indices)}, {w.operand(s.args[0], u32)}{', releases' * s.releases}"


def _warpgroup_signal(w: Operands, s: WarpgroupSignal) -> str:
    return f"warpgroup_signal {s.number}, {w.operand(s.args[0], u32)}, who {s.who}{', waits' * s.waits}{', shows' * s.shows}"


def _arrivals_set(w: Operands, s: ArrivalsSet) -> str:
    does = f", {s.arrivals}{', shared' * s.shared}" if s.arrivals else ""
    return f"arrivals_{'set' if s.arrivals else 'end'} {written_name(s.memory.name)}{does}"


def _arrivals_expect(w: Operands, s: ArrivalsExpect) -> str:
    return f"arrivals_expect {w.access(s.memory, s.indices)}, {s.expected} bytes by {s.by}{', closes' * s.closes}"


def _arrivals_tell(w: Operands, s: ArrivalsTell) -> str:
    return f"arrivals_tell {w.access(s.memory, s.indices)}, if {w.operand(s.args[1])}{', shared' * s.shared}"


def _arrivals_wait(w: Operands, s: ArrivalsWait) -> str:
    return f"arrivals_wait {w.access(s.memory, s.indices)}, turn {w.operand(s.args[1], u32)}"


def _box_copy(w: Operands, s: BoxCopy) -> str:
    source, arrival = _box(w, s.source, s.args[2:], dict(enumerate(s.box))), w.operand(s.args[1], u32)
    by = f"by {s.by}{f', shared {s.shared}' * (s.shared >= 0)}"
    return f"box_copy {_from(w, s.memory, s.args[0])}, {source}, {written_name(s.arrivals.name)}[{arrival}], {by}"


def _pack(w: Operands, s: Pack) -> str:
    source = _box(w, s.source, s.args, {s.down: s.rows, s.across: s.columns})
    return f"pack {written_name(s.memory.name)}, {source}, row {s.row}, strip {s.strip}, lanes {s.lanes}{', turned' * (s.down > s.across)}"


def _unpack(w: Operands, s: Unpack) -> str:
    target = _box(w, s.memory, s.args, {s.down: s.rows, s.memory.rank - 1: s.columns})
    return f"unpack {target}, {written_name(s.source.name)}, pitch {s.pitch}, lanes {s.lanes}"


def _packed_product(w: Operands, s: PackedProduct) -> str:
    left, right = [written_name(m.name) for m in (s.left, s.right)]
    lies = f"{left} by {s.left_row} and {s.left_column}, {right} by {s.right_row} and {s.right_strip}"
    sizes = f"rows {s.rows}, depth {s.depth}, columns {s.columns}, {s.down} by {s.across} of {s.lanes} lanes"
    return f"packed_product {written_name(s.memory.name)}, {lies}, {sizes}"


TARGET_TEXTS: Final[Mapping[type[Statement], Callable[[Operands, Any], str]]] = {
    TensorCore: _tensor_core, MatrixLoad: _matrix_load, StripCopy: _strip_copy, BoxCopy: _box_copy,
    WarpgroupProduct: _warpgroup_product, WarpgroupWait: _warpgroup_wait, WarpgroupSignal: _warpgroup_signal,
    WarpgroupBarrier: lambda w, s: f"warpgroup_barrier {s.count}",
    WarpgroupRegisters: lambda w, s: f"warpgroup_registers {s.count}{', more' * s.more}",
    ClusterBarrier: lambda w, s: "cluster_barrier",
    ArrivalsSet: _arrivals_set, ArrivalsExpect: _arrivals_expect, ArrivalsTell: _arrivals_tell, ArrivalsWait: _arrivals_wait,
    Pack: _pack, Unpack: _unpack, PackedProduct: _packed_product,
}  # fmt: skip
