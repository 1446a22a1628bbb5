"""A machine for plain PTX, over NumPy: integer code, accesses, and branches that all threads take or leave together, or that leave the kernel.

It runs the very text that the driver would be given, over memory of the host. Each access is looked at: it must be aligned, and lie within memory that
there is. `PtxDriver` is a stand-in for the driver whose launches run by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from fake_graphs import FakeGraphDriver

__all__ = ["PtxDriver", "run"]

_INSTRUCTION = re.compile(r"(?:@(!?)%(\w+)\s+)?([\w.:]+)(?:\s+(.*))?;")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_BITS = re.compile(r"[bus](\d+)$")

Array = np.ndarray[Any, Any]


def _number(value: int) -> Any:
    return np.uint64(value & ((1 << 64) - 1))


def _shifted(bits: int, value: Any, by: Any, how: Callable[[Any, Any], Any]) -> Any:
    return np.where(by < bits, how(value, np.minimum(by, _number(63))), _number(0))


# Op without its type -> what it gives, of so many bits, of operands in 64 bits.
_OPS: Mapping[str, Callable[..., Any]] = {
    "mov": lambda bits, a: a, "cvt.u64": lambda bits, a: a, "add": lambda bits, a, b: a + b, "sub": lambda bits, a, b: a - b,
    "and": lambda bits, a, b: a & b, "mul.lo": lambda bits, a, b: a * b, "mul.hi": lambda bits, a, b: (a * b) >> _number(bits),
    "mul.wide": lambda bits, a, b: a * b, "mad.lo": lambda bits, a, b, c: a * b + c, "shl": lambda bits, a, b: _shifted(bits, a, b, np.left_shift),
    "shr": lambda bits, a, b: _shifted(bits, a, b, np.right_shift),
}  # fmt: skip
_WIDE = ("cvt.u64", "mul.wide")  # give more bits than they take
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {"setp.ge": np.greater_equal, "setp.le": np.less_equal, "setp.lt": np.less}


class _Launch:
    """One launch: a register is an array with an element for each thread."""

    def __init__(self, text: str, parameter: bytes, grid: int, group: int, memory: Mapping[int, Any]) -> None:
        threads = np.arange(grid * group, dtype=np.uint64)
        self._parameter = parameter
        self._registers: dict[str, Any] = {
            "tid.x": threads % _number(group), "ctaid.x": threads // _number(group), "nctaid.x": np.full(threads.size, _number(grid)),
        }  # fmt: skip
        self._on = np.ones(threads.size, bool)
        self._begins = np.array(sorted(memory), np.uint64)
        self._blocks = [np.frombuffer(memory[int(at)], np.uint8) for at in self._begins]
        self._ends = self._begins + np.array([block.size for block in self._blocks], np.uint64)
        self._lines = [line.strip() for line in text[text.index("{") + 1 : text.rindex("}")].splitlines()]
        self._labels = {line[:-1]: number for number, line in enumerate(self._lines) if line.endswith(":")}

    def run(self) -> None:
        """Until no thread is left."""
        at = 0
        while self._on.any():
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
        elif op == "bra":
            return self._branch(operands[0], on, at)
        elif op.startswith(("ld.global", "st.global")):
            self._access(op, operands, on)
        else:
            assert guard is None, line
            self._registers[operands[0].removeprefix("%")] = self._value(op, operands[1:])
        return at

    def _branch(self, label: str, on: Array, at: int) -> int:
        if label == "end":
            self._on = self._on & ~on
            return at
        assert not on.any() or on[self._on].all(), f"threads part at a branch to {label}"
        return self._labels[label] if on.any() else at

    def _value(self, op: str, operands: list[str]) -> Any:
        name, _, type_ = op.rpartition(".")
        bits = _bits(type_)
        if name == "ld.param":
            offset = int(operands[0].strip("[]").split("+")[1])
            return np.full(self._on.size, int.from_bytes(self._parameter[offset : offset + bits // 8], "little"), np.uint64)
        values = [self._operand(operand) & _number((1 << bits) - 1) for operand in operands]
        if name in _COMPARISONS:
            return _COMPARISONS[name](*values)
        with np.errstate(over="ignore"):
            return _OPS[name](bits, *values) & _number((1 << (64 if name in _WIDE else bits)) - 1)

    def _operand(self, text: str) -> Any:
        return self._registers[text[1:]] if text.startswith("%") else np.full(self._on.size, _number(int(text)))

    def _access(self, op: str, operands: list[str], on: Array) -> None:
        kind, *_, type_ = op.split(".")
        size = _bits(type_) // 8
        words, address = operands if kind == "ld" else operands[::-1]
        names = [word.strip("{} %") for word in words.split(",")]
        at = self._registers[address.strip("[]%")][on]
        assert not (at % _number(size * len(names))).any(), f"{op} is not aligned"
        for number, name in enumerate(names):
            if kind == "ld":
                self._registers[name] = np.zeros(self._on.size, np.uint64)
            for k in range(size):
                value = self._registers[name][on]
                self._byte(at + _number(number * size + k), value, _number(8 * k), kind == "ld")
                if kind == "ld":
                    self._registers[name][on] = value

    def _byte(self, at: Array, value: Array, shift: Any, is_load: bool) -> None:
        """Reads a byte of each value, or writes it."""
        which = np.searchsorted(self._begins, at, "right") - 1
        assert (which >= 0).all() and (at < self._ends[which]).all(), "an access lies outside all memory"
        for number in np.unique(which):
            here = which == number
            block, index = self._blocks[number], at[here] - self._begins[number]
            if is_load:
                value[here] |= block[index].astype(np.uint64) << shift
            else:
                block[index] = (value[here] >> shift).astype(np.uint8)


def _bits(type_: str) -> int:
    found = _BITS.search(type_)
    assert found is not None, type_
    return int(found[1])


def run(text: str, parameter: bytes, grid: int, group: int, memory: Mapping[int, Any]) -> None:
    """Runs a module's one kernel, which takes one parameter, with `grid` workgroups of `group` threads; `memory` is writeable bytes by address."""
    _Launch(text, parameter, grid, group, memory).run()


class PtxDriver(FakeGraphDriver):
    """The stand-in, whose kernels are the PTX that it was given; `ran` lists the names of those that ran, `faults` what was wrong with them, which native
    code would keep to itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.images: list[str] = []
        self.texts: dict[int, str] = {}
        self.ran: list[str] = []
        self.faults: list[AssertionError] = []

    def cuModuleLoadDataEx(self, image: bytes, count: int, options: Any, values: Any) -> Any:
        self.images.append(image.rstrip(b"\0").decode())
        return super().cuModuleLoadDataEx(image, count, options, values)

    def cuModuleGetFunction(self, module: int, name: bytes) -> Any:
        status, function = super().cuModuleGetFunction(module, name)
        self.texts[function] = next(image for image in reversed(self.images) if f".entry {name.decode()}(" in image)
        return status, function

    def run_kernel(self, function: int, block: bytes) -> None:
        self.ran.append(self.functions[function])
        (grid, _, _), (group, _, _), *_ = self.shape
        try:
            run(self.texts[function], block, grid, group, self.blocks)
        except AssertionError as error:
            self.faults.append(error)

    def cuLaunchKernel(self, function: int, *rest: Any) -> Any:
        self.shape = (rest[:3], rest[3:6])
        return super().cuLaunchKernel(function, *rest)

    def run_graph(self, graph: Any) -> None:
        for node in graph.nodes:
            if node.kind == "kernel":
                self.shape = node.shape
                self.run_kernel(node.function, node.block)
            else:
                node.run(self)
