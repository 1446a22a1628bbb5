"""What the lanes of a subgroup do together, as a builder writes it. `ir/OPS.md` says what each op gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vyre_py.ir.builder.emission import Emitter
from vyre_py.ir.builder.expressions import Expr, Operand, number
from vyre_py.ir.builder.where import fail
from vyre_py.ir.imports import deferred, importing
from vyre_py.ir.language.assembler import OperandTypeError
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.ops import SUBGROUPS
from vyre_py.ir.language.types import u32

if TYPE_CHECKING:
    from vyre_py.ir.builder import refusals
else:
    (refusals,) = deferred("vyre_py.ir.builder", "refusals")

__all__ = ["SubgroupEmitter"]

_FOLDS: Final = tuple(dict.fromkeys(row.fold for row in SUBGROUPS.values() if row.fold))


class SubgroupEmitter(Emitter):
    """The part of a builder that is about subgroups: those of a Program made with `subgroup=S` are S neighbours by `local_index`, on every device.

    All lanes of a subgroup must come to each of these calls but the first two together (V405). They order no memory: `barrier` does. Each raises
    ValidationError at the caller's line, V211 in a Program without subgroups.
    """

    def subgroup_lane(self) -> Expr:
        """The invocation's number in its subgroup, u32."""
        self._require_subgroups("subgroup_lane")
        return self.emit_op("subgroup_lane", (), None)

    def subgroup_id(self) -> Expr:
        """The subgroup's number in its workgroup, u32; a condition on it is the same for the whole subgroup."""
        self._require_subgroups("subgroup_id")
        return self.emit_op("subgroup_id", (), None)

    def subgroup_shuffle(self, x: Expr, i: Operand) -> Expr:
        """x of lane i, a u32 that may differ from lane to lane; zero where there is no such lane."""
        return self._together("shuffle", x, i)

    def subgroup_shuffle_xor(self, x: Expr, mask: Operand) -> Expr:
        """x of lane ^ mask; zero where there is no such lane."""
        return self._together("shuffle_xor", x, mask)

    def subgroup_shuffle_up(self, x: Expr, d: Operand) -> Expr:
        """x of lane - d; zero where there is no such lane."""
        return self._together("shuffle_up", x, d)

    def subgroup_shuffle_down(self, x: Expr, d: Operand) -> Expr:
        """x of lane + d; zero where there is no such lane."""
        return self._together("shuffle_down", x, d)

    def subgroup_broadcast(self, x: Expr, i: Operand) -> Expr:
        """x of lane i, a u32 that is the same for the whole subgroup (V406), and so is the result."""
        return self._together("broadcast", x, i)

    def subgroup_ballot(self, c: Expr) -> Expr:
        """The mask of the lanes whose bool c is true, lane 0 lowest: a u32 for up to 32 lanes, u32x2 for 64, u32x4 for 128."""
        return self._together("ballot", c)

    def subgroup_all(self, c: Expr) -> Expr:
        """Whether the bool c is true in all lanes."""
        return self._together("all", c)

    def subgroup_any(self, c: Expr) -> Expr:
        """Whether the bool c is true in any lane."""
        return self._together("any", c)

    def subgroup_match(self, x: Expr) -> Expr:
        """The mask, as of `subgroup_ballot`, of the lanes whose x is equal to this lane's."""
        return self._together("match", x)

    def subgroup_reduce(self, op: str, x: Expr) -> Expr:
        """x of all lanes by "add", "mul", "min", "max", "and", "or" or "xor", in a fixed order: x = op(x, x of lane ^ d), d = S / 2, ..., 2, 1."""
        return self._together(f"reduce_{self._fold(op)}", x)

    def subgroup_scan(self, op: str, x: Expr, *, exclusive: bool = False) -> Expr:
        """x of the lanes up to this one, or of those before it, by an op of `subgroup_reduce`, in a fixed order (`ir/OPS.md`)."""
        return self._together(f"{'exclusive' if exclusive else 'inclusive'}_{self._fold(op)}", x)

    # ---- how

    @staticmethod
    def _fold(op: str) -> str:
        if op not in _FOLDS:
            fail("B108", f"a subgroup does not fold with {shown(op)}", f"one of {', '.join(_FOLDS)}")
        return op

    def _require_subgroups(self, name: str) -> None:
        if not self._a.subgroup:
            fail("V211", f"{name} is used, and the Program has no subgroups")

    def _together(self, name: str, x: Operand, *index: Operand) -> Expr:
        row, called = SUBGROUPS[name], f"subgroup_{name}"
        self._require_subgroups(called)
        if not isinstance(x, Expr):
            fail("B106", f"nothing says what type {shown(x)} has in {called}", "vp.const(value, type) gives it one")
        atoms: list[Atom] = [self._own(x), *[self._own(i) if isinstance(i, Expr) else number(i, u32) for i in index]]
        try:
            return Expr(self, self._here().together(row, tuple(atoms)))
        except OperandTypeError as error:
            with importing:
                from vyre_py.ir.language.describe import PYTHON

            fail("V201", *refusals.refusal_together(row, error.operands, PYTHON))
