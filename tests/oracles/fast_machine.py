"""What tests of numerics "fast" share: results held against `lowering.llvm.gpu.accuracy`, and NVIDIA's approximate instructions on the interpreter.

`emulate` makes a Program that was prepared for PTX runnable there: each approximate instruction gives the exact result rounded to f32, off by as
much as its manual allows, at random, and f32 computes without subnormal numbers. What is made of the instructions can so be
tested against its bound where there is no GPU, and at its worst.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from math_harness import REFERENCES, around, samples, widened

from vyre_py.ir.language.nodes import Let, Statement
from vyre_py.ir.language.op import Op
from vyre_py.ir.language.ops import OPS, TRANSCENDENTAL
from vyre_py.ir.language.types import Array, Type, f16, f32
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.llvm.gpu.accuracy import Bound
from vyre_py.lowering.llvm.gpu.fast import INSTRUCTIONS

__all__ = ["arguments", "emulate", "flushed", "outside"]

LEAST_NORMAL: Final = 2.0**-126

# In f64 these are exact for arguments of f32, or off by far less than f32 shows.
_EXACT: Final[Mapping[str, Callable[..., Array]]] = {
    **REFERENCES, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt, "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "fma": lambda a, b, c: a * b + c,
}  # fmt: skip


def flushed(x: Array) -> Array:
    """Zeros of their sign in place of subnormal f32, in arrays of f32 or f64."""
    return np.where(np.abs(x) < LEAST_NORMAL, np.copysign(np.zeros_like(x), x), x)


def arguments(op: str, count: int) -> tuple[Array, ...]:
    """About `count` f32 arguments for each operand: where functions bend, all exponents alike, borders, and special numbers."""
    if op in TRANSCENDENTAL:
        return samples(op, count)
    draw = np.random.default_rng([count, *op.encode()])
    operands = len(OPS[op].operands)
    wide = draw.integers(0, 1 << 32, (operands, count // 2), dtype=np.uint32).view(np.float32)
    near = (draw.uniform(-4.0, 4.0, (operands, count // 2)) * 2.0 ** draw.integers(-8, 9, (operands, count // 2))).astype(np.float32)
    powers = 2.0 ** np.arange(-149, 128)
    edge = around([*powers, *-powers, 0.0, np.finfo(np.float32).max])
    edges = np.concatenate([edge, np.array([-0.0, np.inf, -np.inf, np.nan], np.float32)])
    return tuple(np.concatenate([wide[k], near[k], draw.permutation(edges)]) for k in range(operands))


# ---------------------------------------------------------------- bounds

# Bits of the significand, and the exponent of the least normal number.
_FORMATS: Final = {f32: (24, -126), f16: (11, -14)}


def _unit(x: Array, type_: Type) -> Array:
    """The ULP of numbers in f64 in a narrower type."""
    precision, least = _FORMATS.get(type_, (8, -126))
    return np.asarray(np.exp2(np.maximum(np.frexp(x)[1] - 1, least) - (precision - 1)))


def outside(bound: Bound, got: Array, *args: Array, type_: Type = f32, anywhere: bool = False) -> Array:
    """Where results of a type miss a bound of f32, to which half a ULP comes for a narrower type, in its domain or `anywhere`. A result may be
    that of the arguments as they are or flushed; NaN, infinities at poles, and the sign of zero must be those of one of the two."""
    zeroed = [flushed(widened(a)) for a in args]
    plain = [widened(a) for a in args]
    inside = bound.covers(*plain) | bound.covers(*zeroed) | anywhere
    return np.asarray(inside & _missed(bound, got, zeroed, type_) & _missed(bound, got, plain, type_))


def _missed(bound: Bound, got: Array, args: list[Array], type_: Type) -> Array:
    result = widened(got)
    top = 2.0**16 if type_ is f16 else 2.0**128
    with np.errstate(all="ignore"):
        right = _EXACT[bound.op](*args)
        near, found = np.clip(right, -top, top), np.clip(result, -top, top)
        wider = np.nan_to_num(np.maximum(np.abs(near), np.abs(found)))
        allowed = bound.allowed(_unit(wider, f32), near, *args)
        allowed += 0.5 * _unit(wider, type_) if type_ is not f32 else 0.0
        allowed = np.nan_to_num(allowed, nan=0.0, posinf=np.inf)
        error = np.abs(found - near)
        flushes = (np.abs(near) - allowed < LEAST_NORMAL) & (np.abs(found) <= np.abs(near) + allowed)
        wrong = error > allowed + np.where(flushes, LEAST_NORMAL, 0.0)
        wrong |= np.isinf(right) & (result != right)
        wrong |= (right == 0.0) & (result == 0.0) & (np.signbit(right) != np.signbit(result))
    return np.asarray(np.where(np.isnan(right) | np.isnan(result), np.isnan(right) != np.isnan(result), wrong))


# ---------------------------------------------------------------- the instructions, at their worst

# Instruction -> how far it may be off: in ULP of the correctly rounded result, relative to it, and absolutely.
_OFF: Final[Mapping[str, Callable[[Array], Array]]] = {
    "div_full": lambda r: 1.5 * _unit(r, f32),
    "rcp_approx": lambda r: 0.5 * _unit(r, f32),
    "sqrt_approx": lambda r: 2.0**-24 * np.abs(r),
    "rsqrt_approx": lambda r: (2.0**-22.9 - 2.0**-24) * np.abs(r),
    "ex2_approx": lambda r: 2.0 * _unit(r, f32),
    "lg2_approx": lambda r: (2.0**-22 - 2.0**-24) * np.maximum(1.0, np.abs(r)),
    "sin_approx": lambda r: np.full(r.shape, 2.0**-20.5 - 2.0**-25),
    "cos_approx": lambda r: np.full(r.shape, 2.0**-20.5 - 2.0**-25),
    "tanh_approx": lambda r: 2.0**-11 * np.abs(r),
}
_MEANT: Final = {"rcp_approx": lambda x: 1.0 / x}
_MOVES: Final = frozenset({"select", "bitcast", "swizzle"})

Evaluate = Callable[..., Any]


def _instruction(name: str, draw: np.random.Generator) -> Evaluate:
    meant = _MEANT.get(name, _EXACT[INSTRUCTIONS[name][0]])

    def evaluate(result: Type, *args: Array) -> Array:
        with np.errstate(all="ignore"):
            right = meant(*[flushed(a).astype(np.float64) for a in args])
            off = _OFF[name](np.nan_to_num(right)) * draw.choice([-1.0, 0.0, 1.0], right.shape)
            # Zeros and poles are what they are.
            return flushed(np.where((right == 0.0) | ~np.isfinite(right), right, right + off).astype(np.float32))

    return evaluate


def _without_subnormals(evaluate: Evaluate) -> Evaluate:
    def flush(a: Array) -> Array:
        return flushed(a) if a.dtype == np.float32 else a

    return lambda result, *args: flush(evaluate(result, *map(flush, args)))


def emulate(optimised: Optimised, seed: int = 1) -> Optimised:
    """The Program with the meaning that a GPU gives it, instructions off by up to what they may be."""
    draw = np.random.default_rng(seed)
    ops: dict[Op, Op] = {}

    def meant(op: Op) -> Op:
        if op not in ops:
            evaluate = _instruction(op.name, draw) if op.name in INSTRUCTIONS else op.evaluate
            ops[op] = op if evaluate is None or op.name in _MOVES else replace(op, evaluate=_without_subnormals(evaluate))
        return ops[op]

    def made(s: Statement) -> Statement:
        return Let(s.result, s.args, meant(s.op)) if isinstance(s, Let) else s

    return replace(optimised, program=replace(optimised.program, body=tuple(map(made, optimised.program.body))))
