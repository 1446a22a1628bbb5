"""What most rows of LLVM's op table are written with: choices, intrinsics, and instructions picked by the kind of type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vyre_py.ir.language.types import Type
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import bits_type, integer, llvm_type

__all__ = ["Emitter", "choose", "compare", "instruction", "intrinsic", "intrinsic_row", "suffix", "with_constant"]

# (writer, lanes, operand type T (that of the last operand), result type, operand names) -> result name
Emitter = Callable[[Writer, int, Type, Type, Sequence[str]], str]


def choose(w: Writer, width: int, type_: str, condition: str, yes: str, no: str) -> str:
    """`yes` in the lanes where the condition holds, `no` in the others; `type_` is the LLVM type of all lanes."""
    return w.let(f"select {bits_type(1, width)} {condition}, {type_} {yes}, {type_} {no}")


def suffix(type_: str) -> str:
    """An LLVM type as it stands in an intrinsic's name: "f32", "v8i64"."""
    plain = type_.replace("float", "f32").replace("double", "f64")
    if not type_.startswith("<"):
        return plain
    count, _, element = plain[1:-1].partition(" x ")
    return f"v{count}{element}"


def intrinsic(w: Writer, name: str, type_: str, *args: str, flag: str | None = None) -> str:
    """Calls an intrinsic over operands of one LLVM type, with an i1 flag after them for some."""
    operands = [(type_, a) for a in args] + ([("i1", flag)] if flag is not None else [])
    return w.call(type_, f"llvm.{name}.{suffix(type_)}", *operands)


def instruction(signed: str, unsigned: str, floating: str) -> Emitter:
    """A row: an instruction over two operands, by kind of T."""

    def emit(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
        name = floating if t.is_float else signed if t.is_signed else unsigned
        return w.let(f"{name} {llvm_type(t, width)} {args[0]}, {args[1]}")

    return emit


def with_constant(name: str, constant: int) -> Emitter:
    """A row: an integer or bool instruction over the operand and a constant."""

    def emit(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
        return w.let(f"{name} {llvm_type(t, width)} {args[0]}, {integer(constant, t.bits, width)}")

    return emit


def intrinsic_row(signed: str, unsigned: str = "", floating: str = "", flag: str | None = None) -> Emitter:
    """A row: an intrinsic over operands of T, by kind of T; the flag is for integers only."""

    def emit(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
        name = floating or signed if t.is_float else signed if t.is_signed or not unsigned else unsigned
        return intrinsic(w, name, llvm_type(t, width), *args, flag=None if t.is_float else flag)

    return emit


def compare(integers: str, floating: str) -> Emitter:
    """A row: a comparison; "s" in `integers` becomes "u" for unsigned types."""

    def emit(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
        predicate = f"fcmp {floating}" if t.is_float else "icmp " + (integers if t.is_signed else integers.replace("s", "u"))
        return w.let(f"{predicate} {llvm_type(t, width)} {args[0]}, {args[1]}")

    return emit
