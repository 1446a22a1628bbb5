"""Planning a launch in native code: LLVM IR that does for addresses and sizes what binding does for arguments.

The code decides nothing twice: where sizes, addresses and the grid keep every rule of binding it fills the argument block and names the entry. Where
one does not, or a number leaves 64 bits on the way, it gives the status of the first rule that is broken, in the order of exported C
(`vyre_py/export/arguments.py`); the words are `bind`'s. It is one straight line: every rule is computed, and what breaks one sets a flag. Nothing in it
belongs to a kind of device but the limits.

One module because all of it writes one function.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import SIZE_LIMIT, WORD_LIMIT, Dim, DimConst, DimExpr, dims_of
from vyre_py.ir.language.types import u32
from vyre_py.lowering.artifact.parts import Aligned, Entry, Interface, Need, Step, Within
from vyre_py.lowering.layout import BOXES_ALIGN, BOXES_BYTES, Slot, SlotKind
from vyre_py.lowering.statuses import CStatus

__all__ = ["BoxEncoder", "GRID_WORDS", "PLAN_SYMBOL", "PlanCode", "plan_code"]

PLAN_SYMBOL: Final = "vyre_plan"
GRID_WORDS: Final = 7  # workgroups along x, y, z, those of the entry, invocations that the Program asks for
_TAKEN: Final = frozenset({SlotKind.BUFFER, SlotKind.PARAM, SlotKind.EXTENT, SlotKind.GROUPS, SlotKind.BOXES})
_OVERFLOWING: Final = {"add": "sadd", "sub": "ssub", "mul": "smul"}
_LEAST: Final = -(1 << 63)
_COMPARED: Final[Mapping[str, Callable[[int, int], bool]]] = {"eq": operator.eq, "sge": operator.ge, "sle": operator.le, "slt": operator.lt}

# ceil(%a / %b) of signed words, rounded as Python does, and whether it has no value: %b is 0, or %a the least word, whose negation is none.
_CEIL_DIV: Final = f"""
define internal {{ i64, i1 }} @ceil_div(i64 %a, i64 %b) alwaysinline {{
  %zero = icmp eq i64 %b, 0
  %least = icmp eq i64 %a, {_LEAST}
  %bad = or i1 %zero, %least
  %left = select i1 %bad, i64 0, i64 %a
  %right = select i1 %bad, i64 1, i64 %b
  %quotient = sdiv i64 %left, %right
  %rest = srem i64 %left, %right
  %signs = xor i64 %rest, %right
  %same = icmp sge i64 %signs, 0
  %some = icmp ne i64 %rest, 0
  %up = and i1 %some, %same
  %more = zext i1 %up to i64
  %value = add i64 %quotient, %more
  %first = insertvalue {{ i64, i1 }} poison, i64 %value, 0
  %both = insertvalue {{ i64, i1 }} %first, i1 %bad, 1
  ret {{ i64, i1 }} %both
}}
declare {{ i64, i1 }} @llvm.sadd.with.overflow.i64(i64, i64)
declare {{ i64, i1 }} @llvm.ssub.with.overflow.i64(i64, i64)
declare {{ i64, i1 }} @llvm.smul.with.overflow.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


@dataclass(frozen=True, slots=True)
class PlanCode:
    """The text of `i32 vyre_plan(ptr addresses, ptr sizes, ptr params, ptr block, ptr grid)`, and how its arguments lie.

    `addresses` has a word for each buffer of the interface; `sizes` one for each axis of each buffer, then one for each dim: what was given by name, or -1. The
    bytes of each param begin at its offset of `params`. The argument block goes to `block`; to `grid`, as words of 64 bits, the workgroups along x, y, z, those
    that the entry takes, and the invocations that the Program asks for. The result is the number of the entry, or a `CStatus`. Where there are no workgroups
    there is nothing to run, and the block is of no use.
    """

    text: str
    params: Mapping[str, int]
    params_bytes: int


@dataclass(frozen=True, slots=True)
class BoxEncoder:
    """How descriptions of boxes are made: the address of the driver's function (`cuTensorMapEncodeTiled`), and the numbers that it takes for a slot's type,
    swizzle, and reads ahead."""

    address: int
    words: Callable[[Slot], tuple[int, int, int]]


def _is_number(operand: object) -> bool:
    return str(operand).lstrip("-").isdigit()


class _PlanLines:
    """The text, the dims that are solved, and the flags of what is broken."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.broken: list[tuple[str, CStatus]] = []
        self.dims: dict[str, str] = {}
        self.phase = CStatus.SIZE  # what a number says that leaves 64 bits
        self._count = 0

    def emit(self, text: str) -> str:
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def word(self, base: str, number: int) -> str:
        return self.emit(f"load i64, ptr {self.emit(f'getelementptr i64, ptr {base}, i64 {number}')}")

    def refuse(self, condition: str, status: CStatus | None = None) -> None:
        self.broken.append((condition, self.phase if status is None else status))

    def require(self, comparison: str, left: str, right: object, status: CStatus | None = None) -> None:
        """Breaks a rule unless the comparison, of signed words, holds."""
        if _is_number(left) and _is_number(right) and _COMPARED[comparison](int(left), int(str(right))):
            return
        self.refuse(self.emit(f"xor i1 true, {self.emit(f'icmp {comparison} i64 {left}, {right}')}"), status)

    def checked(self, call: str) -> str:
        pair = self.emit(f"call {{ i64, i1 }} {call}")
        self.refuse(self.emit(f"extractvalue {{ i64, i1 }} {pair}, 1"))
        return self.emit(f"extractvalue {{ i64, i1 }} {pair}, 0")

    def product(self, left: str, right: object) -> str:
        if "1" in (left, str(right)):
            return str(right) if left == "1" else left
        return self.checked(f"@llvm.smul.with.overflow.i64(i64 {left}, i64 {right})")

    def ceil_div(self, left: str, right: object) -> str:
        """Rounded up; by a number above zero without a case in which there is no value, and by a power of two without a division."""
        if not _is_number(right) or int(str(right)) < 1:
            return self.checked(f"@ceil_div(i64 {left}, i64 {right})")
        by = int(str(right))
        if by == 1 or _is_number(left):
            return left if by == 1 else str(-(-int(left) // by))
        even = not by & by - 1
        down = self.emit(f"ashr i64 {left}, {by.bit_length() - 1}" if even else f"sdiv i64 {left}, {by}")
        rest = self.emit(f"and i64 {left}, {by - 1}" if even else f"srem i64 {left}, {by}")
        some = self.emit(f"icmp sgt i64 {rest}, 0")
        return self.emit(f"add i64 {down}, {self.emit(f'zext i1 {some} to i64')}")

    def any(self, conditions: list[str]) -> str:
        found = "false"
        for condition in conditions:
            found = self.emit(f"or i1 {found}, {condition}")
        return found

    def dim(self, expr: DimExpr) -> str:
        """An expression's exact value, as `evaluate_dim`."""
        if isinstance(expr, DimConst):
            if expr.value < 1 << 63:
                return str(expr.value)
            self.refuse("true")
            return "0"
        if isinstance(expr, Dim):
            return self.dims[expr.name]
        left, right = self.dim(expr.left), self.dim(expr.right)
        if expr.op in _OVERFLOWING:
            return self.checked(f"@llvm.{_OVERFLOWING[expr.op]}.with.overflow.i64(i64 {left}, i64 {right})")
        if expr.op == "ceil_div":
            return self.ceil_div(left, right)
        return self.emit(f"call i64 @llvm.s{expr.op}.i64(i64 {left}, i64 {right})")

    def extent(self, expr: DimExpr) -> str:
        """As `evaluate_extent`; below zero breaks a rule."""
        value = self.dim(expr)
        if value == "1":
            return value
        zeros = [self.emit(f"icmp eq i64 {self.dims[dim.name]}, 0") for dim in dict.fromkeys(dims_of(expr))]
        negative = self.emit(f"icmp slt i64 {value}, 0")
        none = self.emit(f"and i1 {negative}, {self.any(zeros)}")
        value = self.emit(f"select i1 {none}, i64 0, i64 {value}")
        self.require("sge", value, 0)
        return value


def _solve(line: _PlanLines, interface: Interface, wide: frozenset[str]) -> list[list[str]]:
    """The sizes of the buffers' axes; every dim is solved from what was given by name, and then from the axes in order."""
    at, axes = 0, []
    for memory in interface.buffers:
        axes.append([line.word("%sizes", at + axis) for axis in range(memory.rank)])
        at += memory.rank
    for number, dim in enumerate(interface.dims):
        value = line.word("%sizes", at + number)
        for memory, sizes in zip(interface.buffers, axes, strict=True):
            for expr, size in zip(memory.shape, sizes, strict=True):
                if expr == dim:
                    unset = line.emit(f"icmp eq i64 {value}, -1")
                    value = line.emit(f"select i1 {unset}, i64 {size}, i64 {value}")
        line.require("sge", value, 0)
        line.require("slt", value, SIZE_LIMIT if dim.name in wide else WORD_LIMIT)
        line.dims[dim.name] = value
    return axes


def _shapes(line: _PlanLines, interface: Interface, axes: list[list[str]]) -> None:
    """Every axis has the size that the dims ask for."""
    for memory, sizes in zip(interface.buffers, axes, strict=True):
        for expr, size in zip(memory.shape, sizes, strict=True):
            line.require("eq", size, line.extent(expr), CStatus.SHAPE)


def _memories(line: _PlanLines, interface: Interface, axes: list[list[str]], wide: frozenset[str], elements: int, size_bytes: int) -> list[str]:
    """Every rule about the memory of single buffers, and about those that must lie apart; gives the addresses."""
    addresses, ends, filled = [], [], []
    for number, (memory, sizes) in enumerate(zip(interface.buffers, axes, strict=True)):
        most = min(elements + 1, SIZE_LIMIT if memory.name in wide else WORD_LIMIT)
        count = str(memory.type.lanes)
        for size in sizes:
            line.require("slt", size, most)
            count = line.product(count, size)
        line.require("slt", count, most)
        taken = line.product(count, memory.type.scalar.size_bytes)
        line.require("sle", taken, size_bytes)
        address = line.word("%addresses", number)
        some = line.emit(f"icmp ne i64 {count}, 0")
        odd = line.emit(f"icmp ne i64 {line.emit(f'urem i64 {address}, {memory.type.scalar.size_bytes}')}, 0")
        null = line.emit(f"icmp eq i64 {address}, 0")
        line.refuse(line.emit(f"and i1 {some}, {null}"), CStatus.NULL)
        line.refuse(line.emit(f"and i1 {some}, {odd}"), CStatus.ALIGNMENT)
        addresses.append(address)
        filled.append(some)
        ends.append(line.emit(f"add i64 {address}, {taken}"))
    at = {memory.name: number for number, memory in enumerate(interface.buffers)}
    for written, other in interface.apart():
        one, two = at[written.name], at[other.name]
        before = line.emit(f"icmp ult i64 {addresses[one]}, {ends[two]}")
        behind = line.emit(f"icmp ult i64 {addresses[two]}, {ends[one]}")
        both = line.emit(f"and i1 {filled[one]}, {filled[two]}")
        line.refuse(line.emit(f"and i1 {both}, {line.emit(f'and i1 {before}, {behind}')}"), CStatus.OVERLAP)
    return addresses


def _grid(line: _PlanLines, step: Step, limits: tuple[int, int, int]) -> tuple[list[str], str]:
    """The workgroups along each axis, and whether there are none; the Program's invocations go to the grid's last word."""
    line.phase = CStatus.GRID
    counts, asked, total = [], "1", "1"
    for expr, width, limit in zip(step.grid.extents, step.workgroup, limits, strict=True):
        extent = line.extent(expr)
        count = line.ceil_div(extent, width) if step.grid.over else extent
        line.require("sle", count, limit)
        line.require("slt", line.product(count, width), WORD_LIMIT)
        total = line.product(total, count)
        asked = line.product(asked, extent if step.grid.over else line.product(count, width))
        counts.append(count)
    _store(line, "%grid", 8 * (GRID_WORDS - 1), "i64", asked)
    line.phase = CStatus.SIZE
    return counts, line.emit(f"icmp eq i64 {total}, 0")


def _store(line: _PlanLines, base: str, offset: int, type_: str, value: str) -> None:
    line.lines.append(f"  store {type_} {value}, ptr {line.emit(f'getelementptr i8, ptr {base}, i64 {offset}')}, align 4")


def _number(line: _PlanLines, slot: Slot, value: str) -> None:
    narrow = value if slot.size_bytes == 8 else line.emit(f"trunc i64 {value} to i32")
    _store(line, "%block", slot.offset_bytes, f"i{8 * slot.size_bytes}", narrow)


def _fill(line: _PlanLines, step: Step, addresses: Mapping[str, str], params: Mapping[str, int], counts: list[str]) -> None:
    """The argument block."""
    line.lines.append(f"  call void @llvm.memset.p0.i64(ptr %block, i8 0, i64 {step.layout.size_bytes}, i1 false)")
    for slot in step.layout.slots:
        if slot.kind is SlotKind.BUFFER:
            _store(line, "%block", slot.offset_bytes, "i64", addresses[slot.name])
        elif slot.kind is SlotKind.PARAM:
            name, begin = slot.source
            source = line.emit(f"getelementptr i8, ptr %params, i64 {params[name] + begin}")
            target = line.emit(f"getelementptr i8, ptr %block, i64 {slot.offset_bytes}")
            line.lines.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {slot.type.size_bytes}, i1 false)")
        elif slot.axis is not None:
            _number(line, slot, counts[slot.axis])
        elif slot.kind is not SlotKind.BOXES:
            assert slot.expr is not None  # an extent slot has an expression (layout.lay_out)
            value = line.dim(slot.expr)
            line.require("sge", value, 0)
            line.require("slt", value, WORD_LIMIT if slot.type is u32 else SIZE_LIMIT)
            _number(line, slot, value)


def _unmet(line: _PlanLines, need: Need, addresses: Mapping[str, str]) -> str:
    """Whether a need is not met."""
    if isinstance(need, Within):
        before = line.emit(f"sub i64 {line.dim(need.expr)}, 1")
        return line.emit(f"icmp uge i64 {before}, {need.most}")
    value, by = (addresses[need.buffer], need.size_bytes) if isinstance(need, Aligned) else (line.dim(need.expr), need.by)
    rest = line.emit(f"{'urem' if isinstance(need, Aligned) else 'srem'} i64 {value}, {by}")
    return line.emit(f"icmp ne i64 {rest}, 0")


def _entry(line: _PlanLines, step: Step, addresses: Mapping[str, str], counts: list[str], fits: Sequence[int]) -> tuple[str, str]:
    """The number of the best entry whose needs are met, and of the best that takes no descriptions of boxes; the workgroups that the first takes along x go
    to the grid. Entries that take such descriptions come first, and take as many workgroups."""
    launched = [_launched(line, step, entry, counts[0]) for entry in step.entries]
    if step.persistent:
        total = line.product(line.product(counts[0], counts[1]), counts[2])
        launched = [line.emit(f"call i64 @llvm.smin.i64(i64 {total}, i64 {fit})") for fit in fits]
    number, along = str(len(step.entries) - 1), launched[-1]
    plain = number
    for index in range(len(step.entries) - 2, -1, -1):
        entry = step.entries[index]
        missed = line.any([_unmet(line, need, addresses) for need in entry.needs])
        number = line.emit(f"select i1 {missed}, i32 {number}, i32 {index}")
        along = line.emit(f"select i1 {missed}, i64 {along}, i64 {launched[index]}")
        plain = plain if entry.boxes else number
    _store(line, "%grid", 24, "i64", along)
    return number, plain


def _launched(line: _PlanLines, step: Step, entry: Entry, count: str) -> str:
    if entry.elements == 1:
        return count
    width, extent = step.workgroup[0], line.dim(step.grid.extents[0])
    full = line.emit(f"sdiv i64 {extent}, {width * entry.elements}")
    left = line.emit(f"srem i64 {extent}, {width * entry.elements}")
    return line.emit(f"add i64 {full}, {line.ceil_div(left, width)}")


def _words(line: _PlanLines, type_: str, values: Sequence[str | int]) -> str:
    """An array of words on the stack."""
    place = line.emit(f"alloca [{len(values)} x {type_}], align 8")
    for number, value in enumerate(values):
        line.lines.append(f"  store {type_} {value}, ptr {line.emit(f'getelementptr {type_}, ptr {place}, i64 {number}')}")
    return place


def _describe(line: _PlanLines, step: Step, addresses: Mapping[str, str], encoder: BoxEncoder) -> str:
    """Fills the slots of boxes; gives whether the driver refused."""
    refused = []
    room = line.emit(f"alloca [{BOXES_BYTES} x i8], align {BOXES_ALIGN}")
    for slot in step.layout.boxes:
        assert slot.memory is not None  # of which they are
        extents, rank, size = [line.dim(extent) for extent in slot.memory.shape], slot.memory.rank, slot.type.size_bytes
        pitches, pitch = list[str](), str(size)
        for extent in reversed(extents[1:]):
            pitch = line.emit(f"mul i64 {pitch}, {extent}")
            pitches.append(pitch)
        arrays = [_words(line, "i64", extents[::-1]), _words(line, "i64", pitches), _words(line, "i32", slot.box[::-1]), _words(line, "i32", [1] * rank)]
        type_, swizzle, promotion = encoder.words(slot)
        given = f"ptr {room}, i32 {type_}, i32 {rank}, i64 {addresses[slot.memory.name]}, {', '.join([f'ptr {array}' for array in arrays])}"
        status = line.emit(f"call i32 inttoptr (i64 {encoder.address} to ptr)({given}, i32 0, i32 {swizzle}, i32 {promotion}, i32 0)")
        refused.append(line.emit(f"icmp ne i32 {status}, 0"))
        target = line.emit(f"getelementptr i8, ptr %block, i64 {slot.offset_bytes}")
        line.lines.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {room}, i64 {BOXES_BYTES}, i1 false)")
    return line.any(refused)


def _boxed(line: _PlanLines, step: Step, addresses: Mapping[str, str], numbers: tuple[str, str], empty: str, encoder: BoxEncoder | None) -> str:
    """The number of the entry, for which the slots of boxes are filled if it takes them; of one that takes none where that was refused."""
    number, plain = numbers
    if encoder is None or number == plain:
        return plain
    other = line.emit(f"icmp ne i32 {number}, {plain}")
    wanted = line.emit(f"and i1 {other}, {line.emit(f'xor i1 true, {empty}')}")
    line.lines += [f"  br i1 {wanted}, label %describe, label %described", "describe:"]
    refused = _describe(line, step, addresses, encoder)
    line.lines += [f"  br i1 {refused}, label %undescribed, label %described", "undescribed:", f"  ret i32 {plain}", "described:"]
    return number


def _walked(line: _PlanLines, step: Step, counts: list[str], fits: Sequence[int], result: str) -> None:
    """The workgroups of an entry that walks, where another does not, go to the grid."""
    for number in [number for number, entry in enumerate(step.entries) if entry.walks]:
        chosen = line.emit(f"icmp eq i32 {result}, {number}")
        total = line.emit(f"mul i64 {line.emit(f'mul i64 {counts[0]}, {counts[1]}')}, {counts[2]}")
        along = line.emit(f"call i64 @llvm.smin.i64(i64 {total}, i64 {fits[number]})")
        for axis, walked in enumerate((along, "1", "1")):
            _store(line, "%grid", 24 + 8 * axis, "i64", line.emit(f"select i1 {chosen}, i64 {walked}, i64 {line.word('%grid', 3 + axis)}"))


def plan_code(
    interface: Interface, step: Step, limits: tuple[int, int, int], elements: int, size_bytes: int, fits: Sequence[int] = (),
    encoder: BoxEncoder | None = None,
) -> PlanCode | None:  # fmt: skip
    """The code for a step of a device whose grids, buffers' elements and buffers' bytes have these limits. `fits` says how many workgroups of each
    entry run at once, where any walks through the grid; `encoder` makes descriptions of boxes, without which no entry is chosen that takes them. None where
    the step has arguments that the driver keeps for each launch: grid barriers, scans, reports, words that end it."""
    if any(slot.kind not in _TAKEN for slot in step.layout.slots):
        return None
    params, at = {}, 0
    for param in interface.params:
        params[param.name], at = at, at + param.type.size_bytes
    line, wide = _PlanLines(), interface.wide & step.layout.wide
    axes = _solve(line, interface, wide)
    _shapes(line, interface, axes)
    addresses = dict(zip([m.name for m in interface.buffers], _memories(line, interface, axes, wide, elements, size_bytes), strict=True))
    counts, empty = _grid(line, step, limits)
    for axis, count in enumerate(counts):
        _store(line, "%grid", 8 * axis, "i64", count)
        _store(line, "%grid", 24 + 8 * axis, "i64", "1" if step.persistent else count)
    general = len(line.broken)  # what must hold even where nothing is to run; the rest is about values
    for memory in interface.buffers:
        for expr in memory.shape:
            line.require("sge", line.dim(expr), 0)
    _fill(line, step, addresses, params, counts)
    numbers = _entry(line, step, addresses, counts, fits)
    _refuse(line, empty, general)
    result = _boxed(line, step, addresses, numbers, empty, encoder)
    _walked(line, step, counts, fits, result)
    head = f"define i32 @{PLAN_SYMBOL}(ptr %addresses, ptr %sizes, ptr %params, ptr %block, ptr %grid) {{"
    return PlanCode("\n".join([_CEIL_DIV, head, *line.lines, f"  ret i32 {result}", "}", ""]), params, at)


def _refuse(line: _PlanLines, empty: str, general: int) -> None:
    """Gives the status of the first rule that is broken, if any is; the rules from `general` on count where something is to run."""
    values = line.any([condition for condition, _ in line.broken[general:]])
    some = line.emit(f"xor i1 true, {empty}")
    wrong = line.any([*[condition for condition, _ in line.broken[:general]], line.emit(f"and i1 {some}, {values}")])
    line.lines += [f"  br i1 {wrong}, label %refused, label %given", "refused:"]
    status = str(int(CStatus.SIZE))  # of the values, whose rules are about sizes alone
    for condition, why in reversed(line.broken[:general]):
        status = line.emit(f"select i1 {condition}, i32 {int(why)}, i32 {status}")
    line.lines += [f"  ret i32 {status}", "given:"]
