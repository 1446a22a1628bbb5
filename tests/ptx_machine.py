"""A machine for plain PTX, over NumPy: straight-line integer code, accesses, and branches that all threads take or leave together, or that leave the kernel.

It runs the very text that the driver would be given, over the memory of a `FakeDriver`. Each access is looked at: it is aligned and within one block
of memory that was allocated. `PtxDriver` is a `FakeDriver` whose launches run by it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from fake_cuda import OK, FakeDriver

__all__ = ["PtxDriver", "run"]

_INSTRUCTION = re.compile(r"(?:@(!?)%(\w+)\s+)?([\w.:]+)(?:\s+(.*))?;")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_BITS = re.compile(r"[busf](\d+)$")

Words = np.ndarray[Any, np.dtype[np.uint64]]


def _masked(value: Any, bits: int) -> Words:
    return np.asarray(value, np.uint64) & np.uint64((1 << bits) - 1)


# Op without its type -> what it gives of its operands, which are numbers of so many bits in 64.
_OPS: dict[str, Callable[..., Any]] = {
    "mov": lambda bits, a: a, "cvt": lambda bits, a: a, "add": lambda bits, a, b: a + b, "sub": lambda bits, a, b: a - b, "and": lambda bits, a, b: a & b,
    "shl": lambda bits, a, b: np.where(b < bits, a << np.minimum(b, np.uint64(63)), np.uint64(0)),
    "shr": lambda bits, a, b: np.where(b < bits, a >> np.minimum(b, np.uint64(63)), np.uint64(0)),
    "mul.lo": lambda bits, a, b: a * b, "mul.hi": lambda bits, a, b: (a * b) >> np.uint64(32), "mad.lo": lambda bits, a, b, c: a * b + c,
    "mul.wide": lambda bits, a, b: a * b,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {"ge": np.greater_equal, "le": np.less_equal, "lt": np.less}


class _Launch:
    """One launch: a register is an array with an element for each thread."""

    def __init__(self, text: str, parameter: bytes, grid: int, group: int, blocks: Iterable[tuple[int, Any]]) -> None:
        self._parameter = parameter
        threads = np.arange(grid * group, dtype=np.uint64)
        self._registers: dict[str, Any] = {
            "tid.x": threads % group, "ctaid.x": threads // group, "nctaid.x": np.full(threads.size, grid, np.uint64),
        }
        self._on = np.ones(threads.size, bool)
        self._memory = [(at, np.frombuffer(block, np.uint8)) for at, block in blocks]
        self._lines = [line.strip() for line in text[text.index("{") + 1 : text.rindex("}")].splitlines()]
        self._labels = {line[:-1]: number for number, line in enumerate(self._lines) if line.endswith(":")}

    def run(self) -> None:
        at = 0
        while at < len(self._lines) and self._on.any():
            line = self._lines[at]
            at += 1
            if line and not line.endswith(":") and not line.startswith(".reg"):
                at = self._step(line, at)

    def _step(self, line: str, at: int) -> int:
        found = _INSTRUCTION.fullmatch(line)
        assert found is not None, line
        negated, guard, op, rest = found.groups()
        on = self._on if guard is None else self._on & (self._registers[guard] ^ bool(negated))
        operands = _OPERAND.findall(rest or "")
        if op == "ret":
            self._on = self._on & ~on
        elif op.startswith("bra"):
            return self._branch(operands[0], on, at)
        elif op.startswith(("ld.global", "st.global")):
            self._access(op, operands, on)
        else:
            self._registers[operands[0][1:]] = self._value(op, operands[1:])
        return at

    def _branch(self, label: str, on: Any, at: int) -> int:
        if label == "end":
            self._on = self._on & ~on
            return at
        assert on.any() in (on[self._on].all(), False), f"threads part at a branch to {label}"
        return self._labels[label] if on.any() else at

    def _value(self, op: str, operands: list[str]) -> Any:
        name, _, type_ = op.rpartition(".")
        bits = int(_BITS.search(type_)[1])  # type: ignore[index]  # every op here ends in a type
        if name == "ld.param":
            offset = int(operands[0].strip("[]").split("+")[1])
            return np.full(self._on.size, int.from_bytes(self._parameter[offset : offset + bits // 8], "little"), np.uint64)
        if name == "cvt.u64":
            bits = 64
        values = [self._operand(operand) for operand in operands]
        if name.startswith("setp."):
            return _COMPARISONS[name[5:]](_masked(values[0], bits), _masked(values[1], bits))
        with np.errstate(over="ignore"):
            wide = name == "mul.wide"
            last = 1 if name in ("shl", "shr") else len(values)
            values = [_masked(value, bits) for value in values[:last]] + [_masked(value, 32) for value in values[last:]]
            return _masked(_OPS["cvt" if name == "cvt.u64" else name](bits, *values), 64 if wide else bits)

    def _operand(self, text: str) -> Any:
        if text.startswith("%"):
            return self._registers[text[1:]]
        return np.full(self._on.size, int(text) & ((1 << 64) - 1), np.uint64)

    def _access(self, op: str, operands: list[str], on: Any) -> None:
        parts = op.split(".")
        size = int(_BITS.search(parts[-1])[1]) // 8  # type: ignore[index]
        words, address = operands if parts[0] == "ld" else operands[::-1]
        names = [word.strip("{} %") for word in words.split(",")]
        at = self._registers[address.strip("[]%")][on]
        assert not (at % np.uint64(size * len(names))).any(), f"{op} is not aligned"
        for number, name in enumerate(names):
            places = [self._bytes(at + np.uint64(number * size + k)) for k in range(size)]
            if parts[0] == "ld":
                loaded = np.zeros(self._on.size, np.uint64)
                loaded[on] = sum(block[index].astype(np.uint64) << np.uint64(8 * k) for k, (block, index) in enumerate(places))
                self._registers[name] = loaded
            else:
                for k, (block, index) in enumerate(places):
                    block[index] = (self._registers[name][on] >> np.uint64(8 * k)).astype(np.uint8)

    def _bytes(self, at: Words) -> tuple[Any, Words]:
        if not at.size:
            return self._memory[0][1], at
        low, high = int(at.min()), int(at.max())
        for begin, block in self._memory:
            if begin <= low and high < begin + block.size:
                return block, at - np.uint64(begin)
        raise AssertionError(f"bytes {low} to {high} are not within one block")


def run(text: str, parameter: bytes, grid: int, group: int, blocks: Iterable[tuple[int, Any]]) -> None:
    """Runs a kernel with one parameter over `grid` workgroups of `group` threads; `blocks` are (address, writeable bytes) of all memory."""
    _Launch(text, parameter, grid, group, blocks).run()


class PtxDriver(FakeDriver):
    """Runs the PTX that it is given. Each module has a handle of its own; `texts` maps functions to what was loaded."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.texts: dict[int, str] = {}

    def cuModuleLoadDataEx(self, image: bytes, count: int, options: Any, values: Any) -> Any:
        handle = (1 << 20) + len(self.texts)
        self.texts[handle] = image.rstrip(b"\0").decode()
        return *OK, handle

    def cuModuleGetFunction(self, module: int, name: bytes) -> Any:
        assert f".entry {name.decode()}(" in self.texts[module]
        return *OK, module

    def cuLaunchKernel(self, function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, pointers: int, extra: int) -> Any:
        assert (gy, gz, by, bz, shared, pointers) == (1, 1, 1, 1, 0, 0)
        self.launches.append(((gx, gy, gz), (bx, by, bz), shared, stream))
        words = ctypes.cast(extra, ctypes.POINTER(ctypes.c_uint64))
        parameter = ctypes.string_at(words[1], ctypes.c_uint64.from_address(words[3]).value)
        run(self.texts[function], parameter, gx, bx, list(self.blocks.items()))
        return OK
