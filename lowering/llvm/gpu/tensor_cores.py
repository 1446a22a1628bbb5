"""Products of matrices by the tensor cores of a warp (PTX ISA, `mma.sync.aligned.m16n8k16`), from sm_80 on.

The instruction wants of the first factor, for lane 4 g + t, pairs of neighbours along k at 2 t and at 2 t + 8. It is given those at 4 t and 4 t + 2, of both
factors alike, so that a lane loads four neighbours at once. What is summed is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from vyre_py.ir.language.nodes import Atom, Const, Load, Memory, Store, TensorCore
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bf16, f16
from vyre_py.lowering.layout import element_count
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import llvm_type

__all__ = ["TensorCores", "uses_tensor_cores"]

_WORDS: Final[Mapping[Type, str]] = {bf16: "bf16", f16: "f16"}
# The pairs of a lane's elements, in the order in which the instruction takes them.
_PAIRS: Final = ((0, 4, 2, 6), (0, 2))
_SUMS: Final = 4
_RESULT: Final = "{ float, float, float, float }"


def uses_tensor_cores(program: Program) -> bool:
    """Whether a Program that was made for a target has products by tensor cores."""
    return any(isinstance(s, TensorCore) for s in program.body)


class TensorCores:
    """What a walk over such a Program does for them. `sums` has the places of the elements of private arrays that products are added to: each has one of its
    own, so that LLVM sees registers in them at once."""

    def __init__(self, w: Writer, program: Program, name_of: Callable[[Atom], str]) -> None:
        self._w, self._name_of = w, name_of
        self._pairs: dict[tuple[str, str, str], str] = {}  # by the block that it was made in, and the two elements
        arrays = dict.fromkeys([s.memory for s in program.body if isinstance(s, TensorCore)])
        self.sums: dict[Memory, list[str]] = {memory: [w.local("float", zero=True) for _ in range(element_count(memory))] for memory in arrays}

    def load(self, s: Load) -> str:
        """An element of such an array."""
        return self._w.let(f"load float, ptr {self._place(s.memory, s.indices[0])}")

    def store(self, s: Store) -> None:
        """Writes an element of such an array."""
        self._w.line(f"store float {self._name_of(s.value)}, ptr {self._place(s.memory, s.indices[0])}")

    def _place(self, memory: Memory, index: Atom) -> str:
        assert isinstance(index, Const)  # `lowering.tiles` numbers them
        return self.sums[memory][index.bits]

    def multiply(self, s: TensorCore) -> None:
        """Adds a product to four sums."""
        w, first = self._w, s.args[0]
        assert isinstance(first, Const)  # as above
        word = _WORDS[s.factors[0][0].type]
        operands = [self._pair(elements, k) for elements, order in zip(s.factors, _PAIRS, strict=True) for k in order]
        places = self.sums[s.memory][first.bits : first.bits + _SUMS]
        sums = [w.let(f"load float, ptr {place}") for place in places]
        given = ", ".join([f"i32 {operand}" for operand in operands] + [f"float {one}" for one in sums])
        text = f"mma.sync.aligned.m16n8k16.row.col.f32.{word}.{word}.f32 {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$0, $1, $2, $3}};"
        made = w.let(f'call {_RESULT} asm "{text}", "=f,=f,=f,=f,r,r,r,r,r,r,0,1,2,3"({given}) convergent')
        for k, place in enumerate(places):
            w.line(f"store float {w.let(f'extractvalue {_RESULT} {made}, {k}')}, ptr {place}")

    def _pair(self, elements: Sequence[Atom], first: int) -> str:
        """Two neighbours as a word."""
        w, type_, (low, high) = self._w, llvm_type(elements[0].type), [self._name_of(a) for a in elements[first : first + 2]]
        key = w.current, low, high
        if key not in self._pairs:
            made = w.let(f"insertelement <2 x {type_}> undef, {type_} {low}, i32 0")
            made = w.let(f"insertelement <2 x {type_}> {made}, {type_} {high}, i32 1")
            self._pairs[key] = w.let(f"bitcast <2 x {type_}> {made} to i32")
        return self._pairs[key]
