"""Products of matrices by the tensor cores of a warp (PTX ISA, `mma.sync`), from sm_80 on, and of a warpgroup (`wgmma.mma_async`), on sm_90a.

The instruction wants of the first factor, for lane 4 g + t, words of neighbours along k, the t-th and the (t + 4)-th. It is given the (2 t)-th and the next,
of both factors alike, so that a lane loads 8 bytes at once. What is summed is the same.

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
from vyre_py.ir.language.types import Type, bf16, f16, f32, i8, i32, u8
from vyre_py.lowering.layout import element_count
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import llvm_type

__all__ = ["TensorCores", "uses_tensor_cores"]

# What the instructions call the type of a factor.
_FACTORS: Final[Mapping[Type, str]] = {bf16: "bf16", f16: "f16", f32: "tf32", i8: "s8", u8: "u8"}
_TOTALS: Final[Mapping[Type, str]] = {f32: "f32", i32: "s32"}
_REGISTERS: Final[Mapping[Type, str]] = {f32: "f", i32: "r"}
# The words of a lane's elements, in the order in which the instruction takes them.
_ORDERS: Final = ((0, 2, 1, 3), (0, 1))
_WORD_BYTES: Final = 4
_SUMS: Final = 4
_KINDS: Final[tuple[type[Statement], ...]] = (TensorCore, WarpgroupProduct)
_UNIT_BYTES: Final = 16
_DEEP_BYTES: Final = 32  # of a factor along k that an instruction takes
_ROW_BYTES: Final = 128  # of a swizzled row
_SWIZZLE: Final = 1 << 62
_ROWS_APART: Final = (8 * _ROW_BYTES // _UNIT_BYTES) << 32  # eight rows and the next eight


def uses_tensor_cores(program: Program) -> bool:
    """Whether a Program that was made for a target has products by tensor cores."""
    return any(isinstance(s, _KINDS) for s in program.body)


class TensorCores:
    """What a walk over such a Program does for them. `sums` has the places of the elements of private arrays that products are added to: each has one of its
    own, so that LLVM sees registers in them at once."""

    def __init__(self, w: Writer, program: Program, name_of: Callable[[Atom], str]) -> None:
        self._w, self._name_of = w, name_of
        self._words: dict[tuple[str, ...], str] = {}  # by the block that it was made in, and the elements
        arrays = dict.fromkeys([s.memory for s in program.body if isinstance(s, TensorCore | WarpgroupProduct)])
        # What invocations write to workgroup memory is seen by descriptors behind a fence.
        self.fences = any(isinstance(s, WarpgroupProduct) for s in program.body)
        self.sums: dict[Memory, list[str]] = {memory: [w.local(llvm_type(memory.type), zero=True) for _ in range(element_count(memory))] for memory in arrays}

    def load(self, s: Load) -> str:
        """An element of such an array."""
        return self._w.let(f"load {llvm_type(s.memory.type)}, ptr {self._place(s.memory, s.indices[0])}")

    def store(self, s: Store) -> None:
        """Writes an element of such an array."""
        self._w.line(f"store {llvm_type(s.memory.type)} {self._name_of(s.value)}, ptr {self._place(s.memory, s.indices[0])}")

    def _place(self, memory: Memory, index: Atom) -> str:
        assert isinstance(index, Const)  # `lowering.tiles` numbers them
        return self.sums[memory][index.bits]

    def multiply(self, s: TensorCore) -> None:
        """Adds a product to four sums."""
        first, (a, b) = s.args[0], [elements[0].type for elements in s.factors]
        assert isinstance(first, Const)  # as above
        operands = [("i32", self._word(elements, k)) for elements, order in zip(s.factors, _ORDERS, strict=True) for k in order]
        total = _TOTALS[s.memory.type]
        sums = "{$0, $1, $2, $3}"
        head = f"mma.sync.aligned.m16n8k{_DEEP_BYTES // a.size_bytes}.row.col.{total}.{_FACTORS[a]}.{_FACTORS[b]}.{total}"
        self._tied(s.memory, f"{head} {sums}, {{$4, $5, $6, $7}}, {{$8, $9}}, {sums};", operands, self.sums[s.memory][first.bits : first.bits + _SUMS])

    def _word(self, elements: Sequence[Atom], number: int) -> str:
        """Neighbours as a word."""
        w, type_ = self._w, elements[0].type
        count = _WORD_BYTES // type_.size_bytes
        names = [self._name_of(a) for a in elements[number * count : (number + 1) * count]]
        key = w.current, *names
        if key not in self._words:
            vector = f"<{count} x {llvm_type(type_)}>"
            made = "undef"
            for k, name in enumerate(names):
                made = w.let(f"insertelement {vector} {made}, {llvm_type(type_)} {name}, i32 {k}")
            self._words[key] = w.let(f"bitcast {vector} {made} to i32")
        return self._words[key]

    # ---- warpgroups

    def fence(self) -> None:
        """Before a barrier: what was written to workgroup memory may be read by descriptors behind it."""
        if self.fences:
            self._w.line('call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()')

    def begin(self, s: WarpgroupProduct, bases: Mapping[Memory, str]) -> None:
        """Begins a product, an instruction for each 32 bytes along k."""
        type_, deep = s.left.type, _DEEP_BYTES // s.left.type.size_bytes
        columns_apart = s.depth * _ROW_BYTES // _UNIT_BYTES if not s.along_k else 1
        left = self._descriptor(bases[s.left], s.args[0], 1)
        right = self._descriptor(bases[s.right], s.args[1], columns_apart)
        count = s.width // 2
        names = ", ".join(f"${k}" for k in range(count))
        head = f"wgmma.mma_async.sync.aligned.m64n{s.width}k{deep}.{_TOTALS[s.memory.type]}.{_FACTORS[type_]}.{_FACTORS[s.right.type]} {{{names}}}"
        # Sums are kept; of floats no factor is negated; of 16 bits the second may lie by rows that do not go along k.
        tail = "1" + ", 1, 1" * type_.is_float + f", 0, {int(not s.along_k)}" * (type_.size_bytes == 2)
        operands: list[tuple[str, str]] = []
        lines = ["wgmma.fence.sync.aligned;"]
        for step in range(s.depth // deep):
            first = count + len(operands)
            operands += [("i64", self._further(left, self._along_k(s, step, s.rows))), ("i64", self._further(right, self._of_right(s, step)))]
            lines.append(f"{head}, ${first}, ${first + 1}, {tail};")
        self._tied(s.memory, " ".join([*lines, "wgmma.commit_group.sync.aligned;"]), operands, self.sums[s.memory], touches_memory=True)

    def wait(self, s: WarpgroupWait) -> None:
        """Waits for products."""
        pending = s.args[0]
        assert isinstance(pending, Const)  # `lowering.tiles` says how many
        text = f"wgmma.wait_group.sync.aligned {pending.bits};"
        if pending.bits:
            self._w.line(f'call void asm sideeffect "{text}", "~{{memory}}"() convergent')
        else:
            self._tied(s.memory, text, (), self.sums[s.memory], touches_memory=True)

    def _tied(self, memory: Memory, text: str, operands: Sequence[tuple[str, str]], places: Sequence[str], *, touches_memory: bool = False) -> None:
        """An instruction that has the sums in these places for operands and results."""
        w, type_ = self._w, llvm_type(memory.type)
        sums = [w.let(f"load {type_}, ptr {place}") for place in places]
        result = f"{{ {', '.join([type_] * len(places))} }}"
        taken = ["l" if of == "i64" else "r" for of, _ in operands]
        registers = ",".join([*[f"={_REGISTERS[memory.type]}"] * len(places), *taken, *map(str, range(len(places))), *["~{memory}"] * touches_memory])
        given = ", ".join([*[f"{of} {name}" for of, name in operands], *[f"{type_} {one}" for one in sums]])
        made = w.let(f'call {result} asm {"sideeffect " * touches_memory}"{text}", "{registers}"({given}) convergent')
        for k, place in enumerate(places):
            w.line(f"store {type_} {w.let(f'extractvalue {result} {made}, {k}')}, ptr {place}")

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
        """How far step k of a factor is whose rows go along k: 32 bytes a step, and every 128 the next rows."""
        blocks, within = divmod(step * _DEEP_BYTES, _ROW_BYTES)
        return (blocks * rows * _ROW_BYTES + within) // _UNIT_BYTES

    def _of_right(self, s: WarpgroupProduct, step: int) -> int:
        return self._along_k(s, step, s.width) if s.along_k else step * _DEEP_BYTES // s.right.type.size_bytes * _ROW_BYTES // _UNIT_BYTES
