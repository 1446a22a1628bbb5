"""Products of matrices by the tensor cores of a warp (PTX ISA, `mma.sync.aligned.m16n8k16`), from sm_80 on, and of a warpgroup (`wgmma.mma_async`), on sm_90a.

The instruction wants of the first factor, for lane 4 g + t, pairs of neighbours along k at 2 t and at 2 t + 8. It is given those at 4 t and 4 t + 2, of both
factors alike, so that a lane loads four neighbours at once. What is summed is the same.

A warpgroup reads the factors from workgroup memory by descriptors: address and strides in units of 16 bytes, and the swizzle of rows of 128 bytes. Sums that
are under way are operands and results of every instruction that begins a product or waits for one, so that LLVM moves nothing past these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from vyre_py.ir.language.nodes import (
    Atom,
    Const,
    Load,
    Memory,
    Statement,
    Store,
    TensorCore,
    WarpgroupProduct,
    WarpgroupWait,
)
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
_KINDS: Final[tuple[type[Statement], ...]] = (TensorCore, WarpgroupProduct)
_UNIT_BYTES: Final = 16
_DEEP: Final = 16  # elements along k that an instruction takes
_ROW: Final = 64  # elements of a swizzled row
_SWIZZLE: Final = 1 << 62
_ROWS_APART: Final = (8 * 128 // _UNIT_BYTES) << 32  # eight rows and the next eight
_RESULT: Final = "{ float, float, float, float }"


def uses_tensor_cores(program: Program) -> bool:
    """Whether a Program that was made for a target has products by tensor cores."""
    return any(isinstance(s, _KINDS) for s in program.body)


class TensorCores:
    """What a walk over such a Program does for them. `sums` has the places of the elements of private arrays that products are added to: each has one of its
    own, so that LLVM sees registers in them at once."""

    def __init__(self, w: Writer, program: Program, name_of: Callable[[Atom], str]) -> None:
        self._w, self._name_of = w, name_of
        self._pairs: dict[tuple[str, str, str], str] = {}  # by the block that it was made in, and the two elements
        arrays = dict.fromkeys([s.memory for s in program.body if isinstance(s, TensorCore | WarpgroupProduct)])
        # What invocations write to workgroup memory is seen by descriptors behind a fence.
        self.fences = any(isinstance(s, WarpgroupProduct) for s in program.body)
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

    # ---- warpgroups

    def fence(self) -> None:
        """Before a barrier: what was written to workgroup memory may be read by descriptors behind it."""
        if self.fences:
            self._w.line('call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()')

    def begin(self, s: WarpgroupProduct, bases: Mapping[Memory, str]) -> None:
        """Begins a product, an instruction for each 16 elements along k."""
        word = _WORDS[s.left.type]
        columns_apart = s.depth * 128 // _UNIT_BYTES if not s.along_k else 1
        left = self._descriptor(bases[s.left], s.args[0], 1)
        right = self._descriptor(bases[s.right], s.args[1], columns_apart)
        count = s.width // 2
        names = ", ".join(f"${k}" for k in range(count))
        head, tail = f"wgmma.mma_async.sync.aligned.m64n{s.width}k{_DEEP}.f32.{word}.{word} {{{names}}}", f"1, 1, 1, 0, {int(not s.along_k)};"
        operands: list[tuple[str, str]] = []
        lines = ["wgmma.fence.sync.aligned;"]
        for step in range(s.depth // _DEEP):
            first = count + len(operands)
            operands += [("i64", self._further(left, self._along_k(s, step, s.rows))), ("i64", self._further(right, self._of_right(s, step)))]
            lines.append(f"{head}, ${first}, ${first + 1}, {tail}")
        self._tied(s.memory, " ".join([*lines, "wgmma.commit_group.sync.aligned;"]), operands)

    def wait(self, s: WarpgroupWait) -> None:
        """Waits for products."""
        pending = s.args[0]
        assert isinstance(pending, Const)  # `lowering.tiles` says how many
        text = f"wgmma.wait_group.sync.aligned {pending.bits};"
        if pending.bits:
            self._w.line(f'call void asm sideeffect "{text}", "~{{memory}}"() convergent')
        else:
            self._tied(s.memory, text, ())

    def _tied(self, memory: Memory, text: str, operands: Sequence[tuple[str, str]]) -> None:
        """An instruction that has all sums for operands and results."""
        w, places = self._w, self.sums[memory]
        sums = [w.let(f"load float, ptr {place}") for place in places]
        result = f"{{ {', '.join(['float'] * len(places))} }}"
        registers = ",".join([*["=f"] * len(places), *["l"] * len(operands), *map(str, range(len(places))), "~{memory}"])
        given = ", ".join([*[f"{type_} {name}" for type_, name in operands], *[f"float {one}" for one in sums]])
        made = w.let(f'call {result} asm sideeffect "{text}", "{registers}"({given}) convergent')
        for k, place in enumerate(places):
            w.line(f"store float {w.let(f'extractvalue {result} {made}, {k}')}, ptr {place}")

    def _descriptor(self, base: str, first: Atom, columns_apart: int) -> str:
        """The descriptor of what lies so many units from the beginning of an array on."""
        w = self._w
        address = w.let(f"ptrtoint ptr addrspace(3) {base} to i32")
        unit = w.let(f"and i32 {w.let(f'lshr i32 {address}, 4')}, {(1 << 14) - 1}")
        place = w.let(f"add i32 {unit}, {self._name_of(first)}")
        return w.let(f"or i64 {w.let(f'zext i32 {place} to i64')}, {_SWIZZLE | _ROWS_APART | columns_apart << 16}")

    def _further(self, descriptor: str, units: int) -> str:
        return self._w.let(f"add i64 {descriptor}, {units}") if units else descriptor

    def _along_k(self, s: WarpgroupProduct, step: int, rows: int) -> int:
        """How far step k of a factor is whose rows go along k: 16 elements a step, and every 64 the next rows."""
        blocks, within = divmod(step * _DEEP, _ROW)
        return (blocks * rows * 128 + within * 2) // _UNIT_BYTES

    def _of_right(self, s: WarpgroupProduct, step: int) -> int:
        return self._along_k(s, step, s.width) if s.along_k else step * _DEEP * 128 // _UNIT_BYTES
