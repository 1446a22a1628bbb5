"""Variables over lanes: a scalar where all lanes have one value, else a vector; and what of them lives across barriers."""

from __future__ import annotations

from vyre_py.ir.language.nodes import Get, Set, Var, Variable
from vyre_py.ir.language.op import Level
from vyre_py.lowering.llvm.cpu.plan.regions import BarrierFreeRegion
from vyre_py.lowering.llvm.cpu.state import AREA_ALIGN, State
from vyre_py.lowering.llvm.cpu.values import LaneValue, Mask, Variability
from vyre_py.lowering.llvm.types import llvm_type

__all__ = ["Variables"]


class Variables:
    """The variables of a kernel."""

    def __init__(self, state: State) -> None:
        self.state, self.w = state, state.w
        self.locals: dict[int, tuple[str, Mask]] = {}  # variable -> its local, and the lanes on where it was declared
        self.slots: dict[int, tuple[str, str]] = {}  # carried uniform variable -> the type and name of its slot
        self.saves: dict[int, tuple[Variable, int]] = {}  # carried varying variable -> its offset among the saved values

    def _is_uniform(self, variable: int) -> bool:
        return self.state.uniformity.variables[variable] <= Level.WORKGROUP

    def _type(self, variable: Variable) -> str:
        return llvm_type(variable.type, 1 if self._is_uniform(variable.id) else self.state.width)

    def var(self, index: int, s: Var) -> int:
        """Declares a variable: a local, and a slot beyond it where other regions see it."""
        variable = s.variable
        local = self.w.local(self._type(variable))
        self.locals[variable.id] = (local, self.state.mask)
        if variable.id in self.state.plan.carried:
            if self._is_uniform(variable.id):
                self.slots[variable.id] = (self._type(variable), self.w.local(self._type(variable)))
            else:
                self.saves[variable.id] = (variable, self.state.save_space(self._save_bytes(variable)))
        self._assign(variable, self.state.operand(s.args[0]), None)
        return index + 1

    def get(self, index: int, s: Get) -> int:
        """Reads a variable."""
        uniform = self._is_uniform(s.variable.id)
        name = self.w.let(f"load {self._type(s.variable)}, ptr {self.locals[s.variable.id][0]}")
        self.state.bind(s, LaneValue(Variability.UNIFORM, s.variable.type, name) if uniform else self.w.varying(s.variable.type, name))
        return index + 1

    def set(self, index: int, s: Set) -> int:
        """Changes a variable in the lanes that are on: all that there are in its scope, or some."""
        declared = self.locals[s.variable.id][1]
        self._assign(s.variable, self.state.operand(s.args[0]), None if declared == self.state.mask else self.state.mask)
        return index + 1

    def _assign(self, variable: Variable, value: LaneValue, mask: Mask) -> None:
        w, type_, local = self.w, self._type(variable), self.locals[variable.id][0]
        if self._is_uniform(variable.id):
            name = w.scalar(value, self.state.mask)
            # At once, since a chunk in which no lane is left must not write what it does not know.
            if variable.id in self.slots:
                w.line(f"store {type_} {name}, ptr {self.slots[variable.id][1]}")
        else:
            self.state.fill(variable.type.bits)
            name = w.vector(value)
            if mask is not None:
                name = w.blend(type_, mask, name, w.let(f"load {type_}, ptr {local}"))
        w.line(f"store {type_} {name}, ptr {local}")

    def _save_bytes(self, variable: Variable) -> int:
        return variable.type.size_bytes * self.state.width

    def load_carried(self, region: BarrierFreeRegion) -> None:
        """Begins a chunk with what other regions left in variables that differ between lanes."""
        for number in region.reads:
            if number in self.saves:
                variable, offset = self.saves[number]
                size = self._save_bytes(variable)
                found = self.state.load_elements(variable.type, self.state.width, self.state.saved_pointer(offset, size), min(size, AREA_ALIGN))
                self.w.line(f"store {self._type(variable)} {found}, ptr {self.locals[number][0]}")

    def save_carried(self, region: BarrierFreeRegion) -> None:
        """Leaves it to other regions."""
        for number in region.writes:
            if number in self.saves:
                variable, offset = self.saves[number]
                size = self._save_bytes(variable)
                now = self.w.let(f"load {self._type(variable)}, ptr {self.locals[number][0]}")
                self.state.store_elements(variable.type, self.state.width, self.state.saved_pointer(offset, size), now, min(size, AREA_ALIGN))

    def shared(self, region: BarrierFreeRegion) -> dict[int, tuple[str, str]]:
        """What a region reads that all lanes share, read before any chunk writes: every chunk begins with the same."""
        return {v: (type_, self.w.let(f"load {type_}, ptr {slot}")) for v in region.reads if v in self.slots for type_, slot in (self.slots[v],)}

    def share(self, found: dict[int, tuple[str, str]]) -> None:
        """Begins a chunk with it."""
        for variable, (type_, name) in found.items():
            self.w.line(f"store {type_} {name}, ptr {self.locals[variable][0]}")
