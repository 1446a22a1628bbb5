"""One op in one Program: its element-wise application to buffers, for every signature that the op table accepts; and how results compare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from elements import random_array

from vyre_py.ir.check import check
from vyre_py.ir.interpret import HasProgram, interpret
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.nodes import Access, Atom, Const, Space
from vyre_py.ir.language.op import Op, Operand, Result
from vyre_py.ir.language.ops import OPS, swizzle_bits
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import TYPES, Type, u32, vector_of

__all__ = ["Signature", "arguments_of", "assert_same_results", "differing", "program_of", "run", "signatures"]

Array = np.ndarray[Any, np.dtype[Any]]
_PATTERNS = ("x", "y", "xx", "zyx", "wwzy", "yx", "xyzw", "zz")


@dataclass(frozen=True)
class Signature:
    """An op with the types of its operands, and the result's where it is written out; `pattern` is a swizzle's."""

    op: Op
    operands: tuple[Type, ...]
    given: Type | None = None
    pattern: str = ""

    @property
    def result(self) -> Type:
        """The result's type."""
        operands = (*self.operands, u32) if self.pattern else self.operands
        found = self.op.result_type(operands, self.given)
        assert found is not None
        return found

    def __str__(self) -> str:
        return f"{self.op.name}{self.pattern and '.' + self.pattern}({', '.join(map(str, self.operands))}){f' to {self.given}' if self.given else ''}"


def _given(op: Op) -> Iterator[Signature]:
    for source in TYPES.values():
        if op.name == "swizzle":
            for pattern in _PATTERNS:
                if max("xyzw".index(c) for c in pattern) < source.lanes:
                    yield Signature(op, (source,), vector_of(source.scalar, len(pattern)), pattern)
        else:
            yield from (Signature(op, (source,), t) for t in TYPES.values() if op.result_type((source,), t) is not None)


def _generic(op: Op) -> Iterator[Signature]:
    for scalar in sorted(op.of, key=str):
        for lanes in sorted(op.lanes):
            t = vector_of(scalar, lanes)
            yield Signature(op, tuple([o.beside(t) for o in op.operands]))
            if lanes > 1 and any(o.fixed for o in op.operands):
                yield Signature(op, tuple([vector_of(o.fixed, lanes) if o.fixed else o.beside(t) for o in op.operands]))


def signatures(op: Op) -> list[Signature]:
    """Every combination of types that the op accepts."""
    return list(_given(op) if op.result is Result.GIVEN else _generic(op))


def program_of(s: Signature) -> Program:
    """y[i] = op(x0[i], x1[i], ...)."""
    a = Assembler("one")
    n = a.dim("n")
    sources = [a.memory(f"x{k}", Space.BUFFER, t, (n,), Access.READ) for k, t in enumerate(s.operands)]
    y = a.memory("y", Space.BUFFER, s.result, (n,), Access.READ_WRITE)
    i = a.let(OPS["global_id.x"], ())
    args: list[Atom] = [a.load(m, (i,)) for m in sources]
    if s.pattern:
        args.append(Const(u32, swizzle_bits(s.pattern)))
    a.store(y, (i,), a.let(s.op, tuple(args), s.given, "result"))
    program = a.finish()
    check(program)
    return program


def arguments_of(s: Signature, rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Random operands, many of them at the edges; the operands of one element are at times the same, or near one another."""
    made: dict[str, Any] = {f"x{k}": random_array(rng, t, (count,)) for k, t in enumerate(s.operands)}
    if s.operands[1:2] == s.operands[:1]:
        made["x1"][: count // 8] = made["x0"][: count // 8]
    for k, t in enumerate(s.operands):
        if s.op.operands[k] is Operand.I32:
            made[f"x{k}"] = np.where(rng.integers(0, 8, made[f"x{k}"].shape) == 0, made[f"x{k}"], rng.integers(-300, 300, made[f"x{k}"].shape)).astype(t.dtype)
        if s.op.operands[k] is Operand.U32:
            made[f"x{k}"] = np.where(rng.integers(0, 4, made[f"x{k}"].shape) == 0, made[f"x{k}"], rng.integers(0, 66, made[f"x{k}"].shape)).astype(t.dtype)
    return made


def run(ready: HasProgram, s: Signature, arguments: dict[str, Any]) -> Array:
    """What a Program of the signature gives for these operands."""
    count = len(next(iter(arguments.values())))
    y = random_array(np.random.default_rng(1), s.result, (count,))
    interpret(ready, {**arguments, "y": y}, {"n": count})
    return y


def differing(a: Array, b: Array, type_: Type) -> Array:
    """Where two arrays of a type differ in a bit; NaNs are all the same."""
    word = f"u{max(type_.bits // 8, 1)}"
    differ: Array = a.view(word) != b.view(word)
    if type_.is_float:
        with np.errstate(invalid="ignore"):  # bf16 goes through f32, which minds signalling NaNs
            differ &= ~(np.isnan(a) & np.isnan(b))
    return differ


def assert_same_results(s: Signature, arguments: dict[str, Any], want: Array, got: Array) -> None:
    """That two runs agree to the bit."""
    wrong = differing(want, got, s.result)
    if wrong.any():
        at = int(np.argwhere(wrong)[0][0])
        operands = ", ".join(f"{x[at]!r}" for x in arguments.values())
        raise AssertionError(f"{s} of {operands}: {got[at]!r}, expected {want[at]!r}; {wrong.sum()} differ")
