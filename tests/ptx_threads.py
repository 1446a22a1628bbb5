"""A machine for PTX as compilers write it, a thread after the other: what a GPU would compute, where there is none.

It reads a module's text and runs one of its kernels over arrays of the host, exactly: floats through `exact_floats`. Threads meet at barriers, and take
turns at relaxed loads, where they wait for one another. Each access is looked at: it must be aligned, and lie within memory that there is.
Instructions that approximate are not among those it knows. For small grids only: a thread makes some 300,000 steps a second.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import exact_floats as exact
import numpy as np
from exact_floats import FORMATS

from vyre_py.drivers.binding import encode_param
from vyre_py.ir.dims import evaluate_dim
from vyre_py.ir.nodes import Param
from vyre_py.ir.program import Program
from vyre_py.ir.types import f16, f32, f64
from vyre_py.lowering.layout import SlotKind, lay_out
from vyre_py.lowering.options import CompileOptions

__all__ = ["Kernel", "run"]

Registers = dict[str, Any]
Step = Callable[[Registers], Any]

_WORD = (1 << 64) - 1
_FLOATS = {"f16": FORMATS[f16], "f32": FORMATS[f32], "f64": FORMATS[f64]}
_CODES = {"f32": (struct.Struct("<f"), struct.Struct("<I")), "f64": (struct.Struct("<d"), struct.Struct("<Q"))}
# An address is the number of a block and a place in it.
_BLOCK = 40
_SHARED, _LOCAL, _TABLES, _ARRAYS = 1, 2, 3, 100
# How often a thread may look for what another one does.
_LOOKS = 10_000

_ENTRY = re.compile(r"\.entry (\w+)\((.*?)\)\s*(?:\.\w+[^\n{]*\n)*\{(.*?)^\}", re.DOTALL | re.MULTILINE)
_TABLE = re.compile(r"\.global [^;{]*?\.b8 (\w+)\[(\d+)\](?: = \{([^}]*)\})?;")
_LINE = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.]*)(?:\s+(.*))?;")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")


def _bits(type_: str) -> int:
    return 1 if type_ == "pred" else int(type_[1:])


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _taken(type_: str) -> Callable[[int], int]:
    """A register's number as a type takes it."""
    bits = _bits(type_)
    mask = (1 << bits) - 1
    return (lambda x: _signed(x, bits)) if type_.startswith("s") else lambda x: x & mask


# ---------------------------------------------------------------- arithmetic


def _quick(type_: str, compute: Callable[[float, float], float], slow: Callable[..., int]) -> Callable[[int, int], int]:
    """Arithmetic in f64, rounded: for these operations the same as rounding once. What is no plain number goes the exact way."""
    format_, code = _FLOATS[type_], _CODES.get(type_)
    if code is None:
        return lambda a, b: slow(format_, a, b)
    number, word = code

    def apply(a: int, b: int) -> int:
        if format_.is_finite(a) and format_.is_finite(b):
            try:
                found: int = word.unpack(number.pack(compute(number.unpack(word.pack(a))[0], number.unpack(word.pack(b))[0])))[0]
            except (OverflowError, ZeroDivisionError):
                return slow(format_, a, b)
            return found if format_.is_finite(found) else slow(format_, a, b)
        return slow(format_, a, b)

    return apply


_FLOAT_OPS: Mapping[str, tuple[Callable[[float, float], float], Callable[..., int]]] = {
    "add": (operator.add, exact.add), "sub": (operator.sub, exact.sub), "mul": (operator.mul, exact.mul), "div": (operator.truediv, exact.div),
}  # fmt: skip


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_INTEGER_OPS: Mapping[str, Callable[..., int]] = {
    "add": operator.add, "sub": operator.sub, "mul.lo": operator.mul, "mul.wide": operator.mul, "mad.lo": lambda a, b, c: a * b + c, "div": _quotient,
    "rem": lambda a, b: a - b * _quotient(a, b), "min": min, "max": max, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "neg": operator.neg, "abs": abs, "not": operator.invert, "popc": int.bit_count, "mov": lambda a: a, "cvta": lambda a: a,
}  # fmt: skip
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
_ROUNDED: Mapping[str, Callable[[float], int]] = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def _converted(rounding: str, target: str, source: str, x: int) -> int:
    if source not in _FLOATS:
        value = _taken(source)(x)
        return _FLOATS[target].rounded(Fraction(value)) if target in _FLOATS else value
    given = _FLOATS[source]
    if target not in _FLOATS:
        bits, value = _bits(target), given.value(x)
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if target.startswith("s") else (0, (1 << bits) - 1)
        if math.isnan(value):
            return 0
        return low if value == -math.inf else high if value == math.inf else min(max(_ROUNDED[rounding](value), low), high)
    made = _FLOATS[target]
    if not given.is_finite(x):
        return made.from_special(given.value(x))
    sign = made.sign if x & given.sign else 0
    number = Fraction(given.value(x))
    return made.rounded(Fraction(_ROUNDED[rounding](number)) if rounding in _ROUNDED else number, sign)


def _prmt(a: int, b: int, selector: int) -> int:
    source = (a & 0xFFFFFFFF) | (b & 0xFFFFFFFF) << 32
    found = 0
    for k in range(4):
        pick = selector >> 4 * k & 15
        byte = source >> 8 * (pick & 7) & 255
        found |= (255 * (byte >> 7) if pick & 8 else byte) << 8 * k
    return found


def _funnel(left: bool) -> Callable[[int, int, int], int]:
    def apply(low: int, high: int, count: int) -> int:
        both, count = (high & 0xFFFFFFFF) << 32 | low & 0xFFFFFFFF, count & 31
        return (both << count >> 32 if left else both >> count) & 0xFFFFFFFF

    return apply


def _inserted(bits: int) -> Callable[[int, int, int, int], int]:
    def apply(a: int, b: int, place: int, count: int) -> int:
        mask = ((1 << count) - 1) << place & ((1 << bits) - 1)
        return b & ~mask | a << place & mask

    return apply


# ---------------------------------------------------------------- a kernel


class Kernel:
    """One kernel of a module, ready to run."""

    def __init__(self, ptx: str, symbol: str) -> None:
        ptx = re.sub(r"//[^\n]*", "", ptx)
        self.memory: dict[int, Any] = {}
        self._symbols: dict[str, int] = {"shared": _SHARED << _BLOCK}
        for number, (name, size, data) in enumerate(_TABLE.findall(ptx), _TABLES):
            assert number < _ARRAYS
            self._symbols[name] = number << _BLOCK
            values = [int(v, 0) for v in data.split(",")] if data else []
            self.memory[number] = bytearray(values + [0] * (int(size) - len(values)))
        body = next(found[3] for found in _ENTRY.finditer(ptx) if found[1] == symbol)
        depot = re.search(r"\.local [^;]*?(__local_depot\d+)\[(\d+)\];", body)
        self._local_bytes = int(depot[2]) if depot else 0
        if depot:
            self._symbols[depot[1]] = _LOCAL << _BLOCK
        statements = [s.strip() for s in re.sub(r"([;{}:])", r"\1\n", re.sub(r"\{([^{};:\n]*)\}", r"<\1>", body)).splitlines()]
        self._labels: dict[str, int] = {}
        self._steps: list[Step] = []
        for text in [s.replace("<", "{").replace(">", "}") if "<" in s else s for s in statements]:
            if text.endswith(":"):
                self._labels[text[:-1]] = len(self._steps)
            elif text and text not in "{}" and not text.startswith("."):
                self._steps.append(self._step(text))
        self._slots: Sequence[int] = ()
        self._block = b""

    # ---- decoding: an instruction becomes a function of the registers, which gives the number of the next one where it jumps, and a word where it stops

    def _step(self, text: str) -> Step:
        found = _LINE.fullmatch(text)
        assert found is not None, text
        negated, guard, name, rest = found.groups()
        step = self._decoded(name, _OPERAND.findall(rest or ""))
        if guard is None:
            return step
        wanted = 0 if negated else 1
        return lambda r: step(r) if r[guard] == wanted else None

    def _decoded(self, name: str, operands: list[str]) -> Step:
        parts = name.split(".")
        handler = getattr(self, f"_{parts[0]}", None)
        step: Step | None = handler(parts, operands) if handler is not None else None
        return step if step is not None else self._plain(parts, operands)

    def _given(self, text: str) -> Callable[[Registers], int]:
        if text.startswith("%"):
            return lambda r: r[text]
        if text in self._symbols:
            number = self._symbols[text]
        elif text.startswith(("0f", "0d")):
            number = int(text[2:], 16)
        else:
            number = int(text.rstrip("U"), 0)
        return lambda r: number

    def _assigned(self, target: str, compute: Callable[..., int], operands: Sequence[str]) -> Step:
        given = [self._given(text) for text in operands]

        def step(r: Registers) -> None:
            r[target] = compute(*[g(r) for g in given]) & _WORD

        return step

    def _plain(self, parts: list[str], operands: list[str]) -> Step:
        name, type_ = parts[0], parts[-1]
        words = [p for p in parts[1:-1] if p in ("lo", "hi", "wide")]
        full = ".".join([name, *words])
        compute: Callable[..., int]
        if parts[-2:] == ["f32", "f16"]:
            type_, both = "f32", self._float(name, "f32")
            compute = lambda a, b: both(_converted("", "f32", "f16", a & 0xFFFF), b)  # noqa: E731 - one of several forms of one thing
        elif type_ in _FLOATS:
            compute = self._float(name, type_)
        elif full == "mul.hi":
            take, bits = _taken(type_), _bits(type_)
            compute = lambda a, b: take(a) * take(b) >> bits  # noqa: E731 - likewise
        elif full in ("shl", "shr"):
            take, bits = _taken(type_), _bits(type_)
            compute = lambda a, b: (take(a) << min(b & 0xFFFFFFFF, bits)) if name == "shl" else take(a) >> min(b & 0xFFFFFFFF, bits)  # noqa: E731 - likewise
        else:
            take, apply = _taken(type_), _INTEGER_OPS[full]
            compute = lambda *x: apply(*map(take, x))  # noqa: E731 - likewise
        mask = (1 << (_bits(type_) * (2 if "wide" in words else 1))) - 1
        return self._assigned(operands[0], lambda *x: compute(*x) & mask, operands[1:])

    @staticmethod
    def _float(name: str, type_: str) -> Callable[..., int]:
        format_, mask = _FLOATS[type_], (1 << _bits(type_)) - 1
        if name in _FLOAT_OPS:
            apply = _quick(type_, *_FLOAT_OPS[name])
            return lambda a, b: apply(a & mask, b & mask)
        made: Mapping[str, Callable[..., int]] = {
            "fma": lambda a, b, c: exact.fma(format_, a, b, c), "sqrt": lambda a: exact.sqrt(format_, a), "rcp": lambda a: exact.div(format_, format_.one, a),
            "min": lambda a, b: exact.least(format_, a, b), "max": lambda a, b: exact.greatest(format_, a, b),
            "abs": format_.magnitude, "neg": lambda a: exact.neg(format_, a), "mov": lambda a: a,
            "copysign": lambda a, b: format_.magnitude(b) | a & format_.sign,
        }  # fmt: skip
        chosen = made[name]
        return lambda *x: chosen(*[v & mask for v in x])

    def _mov(self, parts: list[str], operands: list[str]) -> Step | None:
        target, source = operands
        if target.startswith("{"):
            names = [n.strip() for n in target.strip("{}").split(",")]
            width, given = _bits(parts[-1]) // len(names), self._given(source)

            def unpack(r: Registers) -> None:
                whole = given(r)
                for k, name in enumerate(names):
                    r[name] = whole >> k * width & (1 << width) - 1

            return unpack
        if source.startswith("{"):
            names = [n.strip() for n in source.strip("{}").split(",")]
            width = _bits(parts[-1]) // len(names)
            return self._assigned(target, lambda *x: sum((v & (1 << width) - 1) << k * width for k, v in enumerate(x)), names)
        return None

    def _cvt(self, parts: list[str], operands: list[str]) -> Step:
        assert "ftz" not in parts and "sat" not in parts, parts
        target, source = parts[-2:]
        take, rounding = (lambda x: x) if source not in _FLOATS else _taken(f"u{_bits(source)}"), parts[1]
        return self._assigned(operands[0], lambda x: _converted(rounding, target, source, take(x)), operands[1:])

    def _setp(self, parts: list[str], operands: list[str]) -> Step:
        name, type_ = parts[1], parts[-1]
        if type_ in _FLOATS:
            format_, mask = _FLOATS[type_], (1 << _bits(type_)) - 1
            unordered = name in ("equ", "neu", "ltu", "leu", "gtu", "geu", "nan")
            base = _COMPARED.get(name.removesuffix("u"), lambda a, b: name == "num")

            def compare(a: int, b: int) -> int:
                a, b = a & mask, b & mask
                return int(unordered if format_.is_nan(a) or format_.is_nan(b) else base(format_.value(a), format_.value(b)))
        else:
            take, base = _taken(type_), _COMPARED[name]

            def compare(a: int, b: int) -> int:
                return int(base(take(a), take(b)))

        assert len(parts) == 3, parts
        return self._assigned(operands[0], compare, operands[1:])

    def _selp(self, parts: list[str], operands: list[str]) -> Step:
        return self._assigned(operands[0], lambda a, b, p: a if p else b, operands[1:])

    def _clz(self, parts: list[str], operands: list[str]) -> Step:
        bits, take = _bits(parts[-1]), _taken(parts[-1])
        return self._assigned(operands[0], lambda a: bits - take(a).bit_length(), operands[1:])

    def _brev(self, parts: list[str], operands: list[str]) -> Step:
        bits, take = _bits(parts[-1]), _taken(parts[-1])
        return self._assigned(operands[0], lambda a: int(f"{take(a):0{bits}b}"[::-1], 2), operands[1:])

    def _bfi(self, parts: list[str], operands: list[str]) -> Step:
        return self._assigned(operands[0], _inserted(_bits(parts[-1])), operands[1:])

    def _prmt(self, parts: list[str], operands: list[str]) -> Step:
        return self._assigned(operands[0], _prmt, operands[1:])

    def _shf(self, parts: list[str], operands: list[str]) -> Step:
        assert parts[2:] == ["wrap", "b32"], parts
        return self._assigned(operands[0], _funnel(parts[1] == "l"), operands[1:])

    def _bra(self, parts: list[str], operands: list[str]) -> Step:
        return lambda r: self._labels[operands[0]]

    def _ret(self, parts: list[str], operands: list[str]) -> Step:
        return lambda r: "end"

    _exit = _ret

    def _bar(self, parts: list[str], operands: list[str]) -> Step:
        return lambda r: "meet"

    def _fence(self, parts: list[str], operands: list[str]) -> Step:
        return lambda r: None

    # ---- memory

    def _place(self, text: str) -> Callable[[Registers], int]:
        base, _, offset = text.strip("[]").partition("+")
        if base.startswith("%") or base in self._symbols:
            given, more = self._given(base), int(offset or 0)
            return lambda r: given(r) + more & _WORD
        slot, more = int(base.rsplit("_", 1)[1]), int(offset or 0)
        return lambda r: self._slots[slot] + more

    def _bytes(self, r: Registers, address: int, size: int) -> tuple[Any, int]:
        number, at = address >> _BLOCK, address & (1 << _BLOCK) - 1
        block = r["%local"] if number == _LOCAL else r["%shared"] if number == _SHARED else self.memory.get(number)
        assert block is not None and at + size <= len(block), f"an access to {address:#x} lies outside all memory"
        assert at % size == 0, f"an access to {address:#x} is not aligned"
        return block, at

    def _ld(self, parts: list[str], operands: list[str]) -> Step:
        type_, names = parts[-1], [n.strip() for n in operands[0].strip("{}").split(",")]
        size, place, take = _bits(type_) // 8, self._place(operands[1]), (lambda x: x) if type_ in _FLOATS else _taken(type_)
        if "param" in parts:

            def read(r: Registers) -> None:
                at = place(r)
                r[names[0]] = int.from_bytes(self._block[at : at + size], "little")

            return read
        stop = "look" if "relaxed" in parts else None

        def load(r: Registers) -> Any:
            block, at = self._bytes(r, place(r), size * len(names))
            for k, name in enumerate(names):
                r[name] = take(int.from_bytes(block[at + k * size : at + (k + 1) * size], "little")) & _WORD
            return stop

        return load

    def _st(self, parts: list[str], operands: list[str]) -> Step:
        names = [self._given(n.strip()) for n in operands[1].strip("{}").split(",")]
        size, place = _bits(parts[-1]) // 8, self._place(operands[0])

        def store(r: Registers) -> None:
            block, at = self._bytes(r, place(r), size * len(names))
            for k, given in enumerate(names):
                block[at + k * size : at + (k + 1) * size] = (given(r) & (1 << 8 * size) - 1).to_bytes(size, "little")

        return store

    def _atom(self, parts: list[str], operands: list[str]) -> Step:
        name, type_ = parts[-2:]
        size, place, take = _bits(type_) // 8, self._place(operands[1]), _taken(f"u{_bits(type_)}") if type_ in _FLOATS else _taken(type_)
        given = [self._given(text) for text in operands[2:]]
        add = _quick(type_, *_FLOAT_OPS["add"]) if type_ in _FLOATS else operator.add
        own = {"add": add, "exch": lambda old, x: x, "cas": lambda old, x, y: y if old == x else old}
        change: Callable[..., int] = own.get(name) or _INTEGER_OPS[name]

        def step(r: Registers) -> None:
            block, at = self._bytes(r, place(r), size)
            old = take(int.from_bytes(block[at : at + size], "little"))
            block[at : at + size] = (change(old, *[take(g(r)) for g in given]) & (1 << 8 * size) - 1).to_bytes(size, "little")
            r[operands[0]] = old & _WORD

        return step

    # ---- running

    def launch(self, block: bytes, slots: Sequence[int], grid: Sequence[int], workgroup: Sequence[int], shared_bytes: int) -> None:
        """Runs the kernel; `block` holds its parameters, each from one of `slots` on."""
        self._block, self._slots = block, slots
        groups = []
        for z, y, x in np.ndindex(*reversed(tuple(grid))):
            place: dict[str, Any] = {"%ctaid.x": x, "%ctaid.y": y, "%ctaid.z": z} | {f"%nctaid.{a}": n for a, n in zip("xyz", grid, strict=True)}
            place["%shared"] = bytearray(shared_bytes)
            groups.append([_Thread(self._run(place | {"%tid.x": i, "%tid.y": j, "%tid.z": k})) for k, j, i in np.ndindex(*reversed(tuple(workgroup)))])
        while groups := [group for group in map(_turn, groups) if group]:
            pass

    def _run(self, r: Registers) -> Iterator[str]:
        r |= {"%clock": 1, "%local": bytearray(self._local_bytes)}
        at, steps = 0, self._steps
        while True:
            found = steps[at](r)
            at += 1
            if found is None:
                continue
            if found == "end":
                return
            if isinstance(found, str):
                yield found
            else:
                at = found


@dataclass
class _Thread:
    """A thread on its way: what it waits for, "meet" at a barrier, and how often it has looked for a change."""

    run: Iterator[str]
    why: str = ""
    looks: int = 0


def _turn(group: list[_Thread]) -> list[_Thread]:
    """Runs the threads of a workgroup that don't wait at a barrier until they do, have looked or have ended; gives those that have not ended."""
    for thread in group:
        if thread.why != "meet":
            thread.why = next(thread.run, "end")
            thread.looks += thread.why == "look"
            assert thread.looks < _LOOKS, "a thread waits for ever"
    left = [thread for thread in group if thread.why != "end"]
    if all(thread.why == "meet" for thread in left):
        for thread in left:
            thread.why = ""
    return left


def run(kernel: Kernel, program: Program, options: CompileOptions, arguments: Mapping[str, Any], sizes: Mapping[str, int], shared_bytes: int = 0) -> None:
    """Runs the kernel of a Program that was made for PTX, writing arrays in place: `arguments` by name, as the interpreter takes them."""
    layout = lay_out(program, options)
    block = bytearray(layout.size_bytes)
    extents = [evaluate_dim(e, sizes) for e in program.grid.extents]
    grid = [-(-e // w) if program.grid.over else e for e, w in zip(extents, program.workgroup, strict=True)]
    for number, slot in enumerate(layout.slots):
        if slot.kind is SlotKind.BUFFER:
            kernel.memory[_ARRAYS + number] = memoryview(arguments[slot.name].reshape(-1).view(np.uint8))  # no copy of what is contiguous
            data = (_ARRAYS + number << _BLOCK).to_bytes(8, "little")
        elif slot.kind is SlotKind.PARAM:
            name, begin = (slot.name, 0) if slot.name in arguments else slot.source
            value = arguments[name]
            whole = np.asarray(value).tobytes() if isinstance(value, (np.generic, np.ndarray)) else encode_param(Param(name, slot.type), value)
            data = whole[begin : begin + slot.type.size_bytes]
        elif slot.kind in (SlotKind.ARRIVALS, SlotKind.CANCEL):
            kernel.memory[_ARRAYS + number] = bytearray(slot.size_bytes)
            data = (_ARRAYS + number << _BLOCK).to_bytes(8, "little")
        elif slot.kind is SlotKind.GROUPS:
            data = grid[slot.axis].to_bytes(4, "little")
        else:
            data = evaluate_dim(slot.expr, sizes).to_bytes(slot.size_bytes, "little")
        block[slot.offset_bytes : slot.offset_bytes + len(data)] = data
    kernel.launch(bytes(block), [slot.offset_bytes for slot in layout.slots], grid, program.workgroup, shared_bytes)
