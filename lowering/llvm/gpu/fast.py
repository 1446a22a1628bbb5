"""What numerics "fast" makes of f32 on NVIDIA GPUs: the approximate instructions, as ops of this target's own.

`approximate` runs before anything else is expanded, so that it sees the ops that the Program asks for, and those alone: what `ir/math`
expands later, some of which lives by the error of a correctly rounded division or root, stays as it is. Each instruction is an op that no
other target and no Program can name; f16 and bf16 go through f32 as they always do. `accuracy` says how accurate the results are.

The flushing of subnormal numbers is not here: it is an attribute of the kernel (`simt.kernel.write_kernel`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from vyre_py.ir.language.nodes import Atom, Const, Let
from vyre_py.ir.language.op import Law, Op
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bf16, f16, f32
from vyre_py.ir.math import MathBuilder
from vyre_py.ir.math.builder import float_
from vyre_py.ir.math.words import with_sign_of
from vyre_py.ir.passes.lets import rewrite_lets
from vyre_py.lowering.llvm.conversions import cast
from vyre_py.lowering.llvm.gpu.architectures import generation
from vyre_py.lowering.llvm.idioms import Emitter
from vyre_py.lowering.llvm.ops import EMITTERS
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.target import Target

__all__ = ["INSTRUCTIONS", "NVPTX_EMITTERS", "approximate"]

# Op of this target -> the op of the language that it approximates, and LLVM's intrinsic, which becomes one instruction of PTX.
INSTRUCTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "div_full": ("div", "llvm.nvvm.div.full.ftz"),
    "rcp_approx": ("rsqrt", "llvm.nvvm.rcp.approx.ftz.f"),  # of one operand, as rsqrt is
    "sqrt_approx": ("sqrt", "llvm.nvvm.sqrt.approx.ftz.f"),
    "rsqrt_approx": ("rsqrt", "llvm.nvvm.rsqrt.approx.ftz.f"),
    "ex2_approx": ("exp2", "llvm.nvvm.ex2.approx.ftz.f"),
    "lg2_approx": ("log2", "llvm.nvvm.lg2.approx.ftz.f"),
    "sin_approx": ("sin", "llvm.nvvm.sin.approx.ftz.f"),
    "cos_approx": ("cos", "llvm.nvvm.cos.approx.ftz.f"),
    "tanh_approx": ("tanh", "llvm.nvvm.tanh.approx.f32"),
}
_TANH_SINCE: Final = 80  # sm_75 has the instruction too, but not in the version of PTX that LLVM writes for it


def _own(name: str, like: str) -> Op:
    """A row of this target's: no law holds of an approximation, and nothing folds it, since the host has no such instruction."""
    return replace(
        OPS[like], name=name, of=frozenset({f32}), evaluate=None, laws=Law.NONE, right_identity=None, infix=None, expands=frozenset(),
        doc=f"An approximation of {like}.",
    )  # fmt: skip


_OPS: Final[Mapping[str, Op]] = {name: _own(name, like) for name, (like, _) in INSTRUCTIONS.items()}


def _row(function: str, type_: str = "float") -> Emitter:
    def emit(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
        return w.call(type_, function, *[(type_, a) for a in args])

    return emit


# The op table of this target: LLVM's, a cast by its own conversions, the approximate instructions, and products of bytes (dp4a).
NVPTX_EMITTERS: Final[Mapping[str, Emitter]] = {
    **EMITTERS, "cast": cast(halves=True, saturates=True), **{name: _row(function) for name, (_, function) in INSTRUCTIONS.items()},
    "dot4_i8": _row("llvm.nvvm.idp4a.s.s", "i32"), "dot4_u8": _row("llvm.nvvm.idp4a.u.u", "i32"),
}  # fmt: skip

_Writing = Callable[..., Atom]

# What the functions are made of, rounded to f32; `accuracy` accounts for that.
_LOG2_E: Final = math.log2(math.e)
_LOG2_10: Final = math.log2(10.0)
_TURN_HIGH: Final = 6.283185005187988  # the f32 below 2 pi
_TURN_LOW: Final = 2.0 * math.pi - _TURN_HIGH
# A number below 2^22 and this are summed to a whole number of turns, whose zero is +0. Both parts of a turn being above zero, an x of -0 stays so.
_WHOLE: Final = 1.5 * 2.0**23


def _instruction(name: str) -> _Writing:
    op = _OPS[name]

    def write(m: MathBuilder, *args: Atom) -> Atom:
        return m.out.let(op, args)

    return write


_EX2, _LG2 = _instruction("ex2_approx"), _instruction("lg2_approx")


def _div(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    one = isinstance(x, Const) and x.value == 1.0
    return m.out.let(_OPS["rcp_approx"], (y,)) if one else m.out.let(_OPS["div_full"], (x, y))


def _power_of(log2_base: float) -> _Writing:
    """base^x = 2^(x log2(base))."""

    def write(m: MathBuilder, x: Atom) -> Atom:
        return _EX2(m, m("mul", x, float_(log2_base)))

    return write


def _log_to(log2_base: float) -> _Writing:
    """log2(x) / log2(base)."""

    def write(m: MathBuilder, x: Atom) -> Atom:
        return m("mul", _LG2(m, x), float_(1.0 / log2_base))

    return write


def _reduced(name: str) -> _Writing:
    """A function of x less whole turns. The instructions' own reduction loses some 2^-24 of x; this one is exact in its first step."""

    def write(m: MathBuilder, x: Atom) -> Atom:
        turns = m("sub", m("fma", x, float_(1.0 / (2.0 * math.pi)), float_(_WHOLE)), float_(_WHOLE))
        rest = m("fma", turns, float_(-_TURN_LOW), m("fma", turns, float_(-_TURN_HIGH), x))
        return m.out.let(_OPS[name], (rest,))

    return write


def _pow(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    """2^(y log2 |x|) with C's special values; those that depend on y alone are folded where y is a constant."""
    one, zero, size = float_(1.0), float_(0.0), m("abs", x)
    power = _EX2(m, m("mul", y, _LG2(m, size)))
    power = m("select", m("eq", size, one), one, power)  # also for an infinite y
    whole = m("eq", m("round", y), y)
    half = m("mul", y, float_(0.5))
    odd = m("logical_and", whole, m("ne", m("round", half), half))
    signed = m("select", odd, with_sign_of(m, power, x), power)
    root = m("logical_and", m("logical_and", m("lt", x, zero), m("is_finite", x)), m("logical_not", whole))
    result = m("select", root, float_(math.nan), signed)
    return m("select", m("eq", y, zero), one, result)


_WRITTEN: Final[Mapping[str, _Writing]] = {
    "div": _div, "sqrt": _instruction("sqrt_approx"), "rsqrt": _instruction("rsqrt_approx"),
    "exp": _power_of(_LOG2_E), "exp2": _EX2, "exp10": _power_of(_LOG2_10), "log": _log_to(_LOG2_E), "log2": _LG2, "log10": _log_to(_LOG2_10),
    "sin": _reduced("sin_approx"), "cos": _reduced("cos_approx"), "tanh": _instruction("tanh_approx"), "pow": _pow,
}  # fmt: skip

_NARROW: Final = (f16, bf16)


def approximate(program: Program, target: Target, *, asked: bool = False) -> Program:
    """The Program with ops replaced by their fast forms on a PTX target, those alone that it has `asked` for one by one (`fast_exp`) or all; the same object
    where no op has one. Takes scalars only."""
    lacking = {"tanh"} if generation(target.arch) < _TANH_SINCE else set()

    def wanted(let: Let) -> bool:
        name = let.op.approximates or ("" if asked else let.op.name)
        return name in _WRITTEN and name not in lacking and (let.bound.type is f32 or let.bound.type in _NARROW)

    def write(m: MathBuilder, let: Let, args: tuple[Atom, ...]) -> Atom:
        made = _WRITTEN[let.op.approximates or let.op.name]
        type_ = let.bound.type
        return made(m, *args) if type_ is f32 else m.cast(made(m, *[m.cast(a, f32) for a in args]), type_)

    return rewrite_lets(program, wanted, write)
