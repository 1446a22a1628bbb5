"""Products of matrices by the tensor cores of a warp (PTX ISA, `mma.sync`), from sm_80 on, and of a warpgroup (`wgmma.mma_async`), on sm_90a.

The instruction wants of the first factor, for lane 4 g + t, words of neighbours along k, the t-th and the (t + 4)-th, as `ldmatrix` gives them. Where that does
not load them, it is given the (2 t)-th and the next, of both factors alike, so that a lane loads 8 bytes at once. What is summed is the same.

A warpgroup reads the factors from workgroup memory by descriptors: address and strides in units of 16 bytes, and the swizzle of rows of 128 bytes. The first
factor may be in registers instead, as words of two elements. Sums that are under way are operands and results of every instruction that begins a product or
waits for them, so that LLVM moves nothing past these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final

from vyre_py.ir.language.nodes import (
    Atom,
    BoxCopy,
    Const,
    Let,
    Load,
    MatrixLoad,
    Memory,
    Space,
    Statement,
    Store,
    TensorCore,
    Value,
    WarpgroupProduct,
    WarpgroupSignal,
    WarpgroupWait,
)
from vyre_py.ir.language.ops import JOINED
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bf16, f8e4m3, f8e5m2, f16, f32, f64, i8, i32, u8
from vyre_py.lowering.layout import element_count
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import llvm_type

__all__ = ["TensorCores", "uses_tensor_cores"]

# What the instructions call the type of a factor.
_FACTORS: Final[Mapping[Type, str]] = {
    bf16: "bf16", f16: "f16", f32: "tf32", f64: "f64", i8: "s8", u8: "u8", f8e4m3: "e4m3", f8e5m2: "e5m2",
}  # fmt: skip
_TOTALS: Final[Mapping[Type, str]] = {f16: "f16", f32: "f32", f64: "f64", i32: "s32"}
_REGISTERS: Final[Mapping[str, str]] = {"float": "f", "double": "d", "i32": "r", "i64": "l"}
# The words of a lane's elements, in the order in which the instruction takes them.
_ORDERS: Final = ((0, 2, 1, 3), (0, 1))
_WORD_BYTES: Final = 4
_PAIR: Final = "<2 x i16>"  # sums of 16 bits, in a word
_SUMS: Final = 4
_FIRST_BARRIER: Final = 1  # of those by which warpgroups signal each other; 0 is the workgroup's
_PAIRED: Final = 256  # invocations that meet at one
_BOTH: Final = 2  # warpgroups
_NEVER: Final = 0x7FE1D5C3  # the bits of a NaN that nothing computes
_HELD_WORDS: Final = 4  # of the first factor, that an instruction of a warpgroup takes from a lane's registers
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
    """What a walk over such a Program does for them. Private arrays that products are added to have a place for each element, or for each word of two, and
    those that they take a factor from one for each word, so that LLVM sees registers in them at once."""

    def __init__(self, w: Writer, program: Program, name_of: Callable[[Atom], str]) -> None:
        self._w, self._name_of = w, name_of
        self._words: dict[tuple[str, ...], str] = {}  # by the block that it was made in, and the elements
        self._narrowed: dict[str, tuple[Type, str]] = {}  # by the name of a small float: its type, and the f32 that it was cast from
        # By array of matrices: the elements of those that were loaded last.
        self._matrices: dict[Memory, list[str]] = {s.memory: [] for s in program.body if isinstance(s, MatrixLoad)}
        products = [s for s in program.body if isinstance(s, _KINDS)]
        # What invocations write to workgroup memory is seen by descriptors behind a fence; what boxes bring needs none.
        read = {memory for s in products if isinstance(s, WarpgroupProduct) for memory in (s.left, s.right) if memory.space is Space.WORKGROUP}
        self.fences = not read <= {s.memory for s in program.body if isinstance(s, BoxCopy)}
        self.has_products = bool(products)
        self.has_warpgroups = any(isinstance(s, WarpgroupProduct) for s in products)
        sums = dict.fromkeys([s.memory for s in products if isinstance(s, TensorCore | WarpgroupProduct)])
        self._sums: dict[Memory, list[str]] = {
            memory: [w.local(_register(memory.type), zero=True) for _ in range(element_count(memory) // _in_word(memory.type))] for memory in sums
        }
        held = dict.fromkeys([s.left for s in products if isinstance(s, WarpgroupProduct) and s.left.space is Space.PRIVATE])
        self._held: dict[Memory, list[str]] = {memory: [w.local("i32", zero=True) for _ in range(element_count(memory) // 2)] for memory in held}
        # The values that something needs by themselves, and the names of casts that nothing does.
        self._alone = {a.id for s in program.body if not self._joins(s) for a in s.args if type(a) is Value} if self.has_products else set[int]()
        self._unwritten: set[str] = set()

    def _joins(self, s: Statement) -> bool:
        """Whether a statement takes elements as halves of words."""
        return (isinstance(s, Let) and s.op is JOINED) or isinstance(s, TensorCore) or (isinstance(s, Store) and s.memory in self._held)

    def owns(self, memory: Memory) -> bool:
        """Whether it is such an array."""
        return memory in self._sums or memory in self._held or memory in self._matrices

    def load(self, s: Load) -> str:
        """An element of such an array: of sums, or of matrices that were loaded before in the same block."""
        if s.memory in self._matrices:
            return self._matrices[s.memory][_number(s.indices[0])]
        return self._of_sum(s.memory, _number(s.indices[0]))

    def _of_sum(self, memory: Memory, number: int) -> str:
        w, (word, lane) = self._w, divmod(number, _in_word(memory.type))
        found = w.let(f"load {_register(memory.type)}, ptr {self._sums[memory][word]}")
        return found if _in_word(memory.type) == 1 else w.let(f"extractelement {_PAIR} {w.let(f'bitcast i32 {found} to {_PAIR}')}, i32 {lane}")

    def store(self, s: Store) -> None:
        """Writes an element of such an array. Those of a factor come two by two."""
        w = self._w
        if s.memory in self._sums:
            word, lane = divmod(_number(s.indices[0]), _in_word(s.memory.type))
            place, value = self._sums[s.memory][word], self._name_of(s.value)
            if _in_word(s.memory.type) > 1:
                before = w.let(f"bitcast i32 {w.let(f'load i32, ptr {place}')} to {_PAIR}")
                value = w.let(f"bitcast {_PAIR} {w.let(f'insertelement {_PAIR} {before}, i16 {value}, i32 {lane}')} to i32")
            w.line(f"store {_register(s.memory.type)} {value}, ptr {place}")
        elif _number(s.indices[0]) % 2 == 0:
            self._even: Atom = s.value
        else:
            w.line(f"store i32 {self._word((self._even, s.value), 0)}, ptr {self._held[s.memory][_number(s.indices[0]) // 2]}")

    def narrows(self, s: Let) -> bool:
        """Whether a statement casts an f32 to a float of 16 bits, in a Program with products: every GPU that has these has an instruction for it."""
        return self.has_products and s.op.name == "cast" and s.args[0].type is f32 and s.bound.type in (f16, bf16)

    def narrow(self, bound: Value, x: str) -> str:
        """An f32 cast to a float of 16 bits; that is written where it is joined to another one, unless something else needs it, too."""
        name = self._cast(bound.type, x) if bound.id in self._alone else self._w.name()
        self._narrowed[name] = bound.type, x
        if bound.id not in self._alone:
            self._unwritten.add(name)
        return name

    def _cast(self, type_: Type, x: str) -> str:
        to = "half" if type_ is f16 else "bfloat"
        return self._w.let(f"bitcast {to} {self._w.let(f'fptrunc float {x} to {to}')} to i16")

    def join(self, s: Let) -> str:
        """Two elements of 16 bits as a word."""
        return self._word(s.args, 0)

    def multiply(self, s: TensorCore) -> None:
        """Adds a product to four sums."""
        first, (a, b) = _number(s.args[0]) // _in_word(s.memory.type), [elements[0].type for elements in s.factors]
        total, count = _TOTALS[s.memory.type], _SUMS // _in_word(s.memory.type)
        if a is f64:
            operands = [[("double", self._name_of(x)) for x in elements] for elements in s.factors]
        else:
            operands = [[("i32", self._word(elements, k)) for k in order] for elements, order in zip(s.factors, _ORDERS, strict=True)]
        sums, places, taken = _listed(0, count), self._sums[s.memory][first : first + count], list(chain(*operands))
        shape, types = f"m16n8k{_DEEP_BYTES // a.size_bytes}", f"{total}.{_FACTORS[a]}.{_FACTORS[b]}.{total}"
        if a is f64:
            for half in range(2):  # products of 16 rows came later
                text = f"mma.sync.aligned.m8n8k4.row.col.{types} {_listed(0, 2)}, {{$2}}, {{$3}}, {_listed(0, 2)};"
                self._tied(s.memory, text, [taken[half], taken[2]], places[2 * half : 2 * half + 2])
            return
        left, right = _listed(count, len(operands[0])), _listed(count + len(operands[0]), len(operands[1]))
        self._tied(s.memory, f"mma.sync.aligned.{shape}.row.col.{types} {sums}, {left}, {right}, {sums};", taken, places)

    def _word(self, elements: Sequence[Atom], number: int) -> str:
        """Neighbours as a word."""
        w, type_ = self._w, elements[0].type
        count = _WORD_BYTES // type_.size_bytes
        names = [self._name_of(a) for a in elements[number * count : (number + 1) * count]]
        key = w.current, *names
        if key not in self._words and all(name in self._narrowed for name in names):
            (type_, low), (_, high) = [self._narrowed[name] for name in names]
            self._words[key] = w.let(f'call i32 asm "cvt.rn.{_FACTORS[type_]}x2.f32 $0, $1, $2;", "=r,f,f"(float {high}, float {low})')
        elif key not in self._words:
            vector = f"<{count} x {llvm_type(type_)}>"
            made = "undef"
            for k, name in enumerate(names):
                one = self._cast(*self._narrowed[name]) if name in self._unwritten else name
                made = w.let(f"insertelement {vector} {made}, {llvm_type(type_)} {one}, i32 {k}")
            self._words[key] = w.let(f"bitcast {vector} {made} to i32")
        return self._words[key]

    def load_matrices(self, s: MatrixLoad, base: str) -> None:
        """Loads four matrices (PTX ISA, `ldmatrix`)."""
        w, type_ = self._w, s.memory.type
        place = w.let(f"getelementptr [{_UNIT_BYTES} x i8], ptr addrspace(3) {base}, i32 {self._name_of(s.args[0])}")
        text = f"ldmatrix.sync.aligned.m8n8.x4{'.trans' * bool(s.turned)}.shared.b16 {{$0, $1, $2, $3}}, [$4];"
        address = w.let(f"ptrtoint ptr addrspace(3) {place} to i32")
        made = w.let(f'call {{ i32, i32, i32, i32 }} asm sideeffect "{text}", "=r,=r,=r,=r,r,~{{memory}}"(i32 {address}) convergent')
        count = _WORD_BYTES // type_.size_bytes
        elements = self._matrices[s.memory] = []
        for k in range(_SUMS):
            word = w.let(f"extractvalue {{ i32, i32, i32, i32 }} {made}, {k}")
            vector = w.let(f"bitcast i32 {word} to <{count} x {llvm_type(type_)}>")
            elements += [w.let(f"extractelement <{count} x {llvm_type(type_)}> {vector}, i32 {lane}") for lane in range(count)]
            self._words[w.current, *elements[-count:]] = word

    # ---- warpgroups

    def fence(self) -> None:
        """Before a barrier: what was written to workgroup memory may be read by descriptors behind it."""
        if self.fences:
            self._w.line('call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()')

    def begin(self, s: WarpgroupProduct, bases: Mapping[Memory, str]) -> None:
        """Begins a product, an instruction for each 32 bytes along k."""
        w, type_, deep = self._w, s.left.type, _DEEP_BYTES // s.left.type.size_bytes
        columns_apart = s.depth * _ROW_BYTES // _UNIT_BYTES if not s.along_k else 1
        left = "" if s.left in self._held else self._descriptor(bases[s.left], s.args[0], 1)
        right = self._descriptor(bases[s.right], s.args[1], columns_apart)
        count = s.width // 2 // _in_word(s.memory.type)
        head = f"wgmma.mma_async.sync.aligned.m64n{s.width}k{deep}.{_TOTALS[s.memory.type]}.{_FACTORS[type_]}.{_FACTORS[s.right.type]} {_listed(0, count)}"
        # Of floats no factor is negated; of 16 bits one in workgroup memory may lie by rows that do not go along k, as the second may here.
        tail = ", 1, 1" * type_.is_float + ", 0" * (type_.size_bytes == 2 and bool(left)) + f", {int(not s.along_k)}" * (type_.size_bytes == 2)
        operands: list[tuple[str, str]] = []
        lines: list[str] = []
        for step in range(s.depth // deep):
            first = count + len(operands)
            if left:
                operands.append(("i64", self._further(left, self._along_k(s, step, s.rows))))
            else:
                operands += [("i32", w.let(f"load i32, ptr {place}")) for place in self._held[s.left][step * _HELD_WORDS : (step + 1) * _HELD_WORDS]]
            factor = ", ".join(f"${k}" for k in range(first, count + len(operands)))
            lines.append(f"{head}, {factor if left else f'{{{factor}}}'}, ${count + len(operands)}, {int(bool(s.adds or step))}{tail};")
            operands.append(("i64", self._further(right, self._of_right(s, step))))
        text = " ".join(["wgmma.fence.sync.aligned;", *lines, "wgmma.commit_group.sync.aligned;"])
        self._tied(s.memory, text, operands, self._sums[s.memory], touches_memory=True, adds=bool(s.adds))

    def wait(self, s: WarpgroupWait) -> None:
        """Waits for products."""
        text = f"wgmma.wait_group.sync.aligned {_number(s.args[0])};"
        for value in s.args[1:]:
            # The assembler moves a wait as far up as it can. An instruction that depends on a value, and hardly ever does anything, keeps it behind that.
            word = self._w.let(f"bitcast {llvm_type(value.type)} {self._name_of(value)} to i32")
            test = f"{{ .reg .pred %never; setp.eq.b32 %never, $0, {_NEVER:#x}; @%never nanosleep.u32 0; }}"
            self._w.line(f'call void asm sideeffect "{test}", "r"(i32 {word}) convergent')
        if s.releases:
            self._tied(s.memory, text, (), self._sums[s.memory], touches_memory=True)
        else:
            self._w.line(f'call void asm sideeffect "{text}", "~{{memory}}"() convergent')

    def signal(self, s: WarpgroupSignal) -> None:
        """Signals the other warpgroup, or waits for its signal, by a barrier for each number and receiver: the one signals there, the other waits."""
        if s.shows:
            self.fence()
        name, own = "bar.sync" if s.waits else "bar.arrive", self._name_of(s.args[0])
        first = _FIRST_BARRIER + 2 * s.number
        if s.who == _BOTH:
            barrier = self._w.let(f"add i32 {own}, {first}" if s.waits else f"sub i32 {first + 1}, {own}")
            self._w.line(f'call void asm sideeffect "{name} $0, {_PAIRED};", "r,~{{memory}}"(i32 {barrier}) convergent')
            return
        barrier = str(first + (s.who if s.waits else 1 - s.who))
        text = f"{{ .reg .pred %does; setp.eq.u32 %does, $0, {s.who}; @%does {name} {barrier}, {_PAIRED}; }}"
        self._w.line(f'call void asm sideeffect "{text}", "r,~{{memory}}"(i32 {own}) convergent')

    def _tied(
        self, memory: Memory, text: str, operands: Sequence[tuple[str, str]], places: Sequence[str], *, touches_memory: bool = False, adds: bool = True
    ) -> None:
        """An instruction that has the sums in these places for operands and results; for results alone, unless it `adds`."""
        w, type_ = self._w, _register(memory.type)
        sums = [w.let(f"load {type_}, ptr {place}") if adds else "undef" for place in places]
        result = f"{{ {', '.join([type_] * len(places))} }}"
        taken = [_REGISTERS[of] for of, _ in operands]
        registers = ",".join([*[f"={_REGISTERS[type_]}"] * len(places), *taken, *map(str, range(len(places))), *["~{memory}"] * touches_memory])
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


def _in_word(type_: Type) -> int:
    """How many sums of a type a register has."""
    return max(1, _WORD_BYTES // type_.size_bytes)


def _register(type_: Type) -> str:
    """The LLVM type of a register of sums."""
    return llvm_type(type_) if _in_word(type_) == 1 else "i32"


def _listed(first: int, count: int) -> str:
    """Operands of an instruction, by number."""
    return f"{{{', '.join([f'${k}' for k in range(first, first + count)])}}}"


def _number(atom: Atom) -> int:
    """A place in an array, or how many: `lowering.tiles` numbers them."""
    assert isinstance(atom, Const)
    return atom.bits
