"""Inductor's elementwise ops as expressions of the language.

Each op computes in one dtype, to which its operands are brought, and makes a variable that knows its dtype: Inductor tells dtypes only to backends that it
knows by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import sympy
import torch
from torch._inductor.codegen.common import OpOverrides
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch._inductor.virtualized import OpsWrapper, V

from vyre_py.interop.torch.randomness import integer, normal, uniform
from vyre_py.interop.torch.terms import common_dtype, compute_dtype, literal, rounded, type_name, typed
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["OPS", "ElementwiseOps", "extreme"]

# Functions of floats that are spelled the same here and there; whole numbers are made floats first.
_FUNCTIONS: Final = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
    "acosh", "atanh", "erf", "erfc", "erfcx", "erfinv", "lgamma", "fma", "hypot", "atan2", "copysign", "nextafter",
)  # fmt: skip
_WHOLE: Final = ("floor", "ceil", "trunc", "round")  # what whole numbers stay as they are under
_DIVISIONS: Final = ("fmod", "mod", "truncdiv", "floordiv")  # which of whole numbers by zero PyTorch refuses
_WIDTHS: Final = {torch.uint8: 8, torch.int8: 8, torch.int16: 16, torch.uint16: 16, torch.int32: 32, torch.uint32: 32, torch.int64: 64, torch.uint64: 64}
_UNSIGNED: Final = {"i8": "u8", "i16": "u16", "i32": "u32", "i64": "u64"}
_VALUES_APART: Final = hasattr(DtypePropagationOpsHandler, "value_expr")  # before PyTorch 2.12 values are what it calls indices, too
Expression = Callable[..., tuple[str, Any]]  # the text, and its dtype


def _infix(mark: str) -> Expression:
    def made(a: Any, b: Any) -> tuple[str, Any]:
        dtype = common_dtype(a, b)
        return f"{typed(a, dtype)} {mark} {typed(b, dtype)}", dtype

    return made


def _arithmetic(mark: str) -> Expression:
    """A sum or product; of bools as of bytes, which are true where they are not zero."""

    def made(a: Any, b: Any) -> tuple[str, Any]:
        dtype = common_dtype(a, b)
        if dtype is torch.bool:
            return f"cast({typed(a, torch.uint8)} {mark} {typed(b, torch.uint8)}, bool)", dtype
        return f"{typed(a, dtype)} {mark} {typed(b, dtype)}", dtype

    return made


def _float_of(*values: Any) -> Any:
    dtype = common_dtype(*values)
    return dtype if dtype.is_floating_point else torch.float32


def _function(name: str) -> Expression:
    def made(*xs: Any) -> tuple[str, Any]:
        dtype = _float_of(*xs)
        return f"{name}({', '.join(typed(x, dtype) for x in xs)})", dtype

    return made


def _whole(name: str) -> Expression:
    return lambda x: (f"{name}({x})" if x.dtype.is_floating_point else str(x), x.dtype)


def _comparison(mark: str) -> Expression:
    def made(a: Any, b: Any) -> tuple[str, Any]:
        dtype = common_dtype(a, b)
        dtype = torch.uint8 if dtype is torch.bool else dtype
        return f"{typed(a, dtype)} {mark} {typed(b, dtype)}", torch.bool

    return made


def _logic(mark: str) -> Expression:
    return lambda a, b: (f"{typed(a, torch.bool)} {mark} {typed(b, torch.bool)}", torch.bool)


def _bits(mark: str, of_bools: str) -> Expression:
    return lambda a, b: (_logic(of_bools) if common_dtype(a, b) is torch.bool else _infix(mark))(a, b)


def extreme(mark: str, dtype: Any, a: str, b: str) -> str:
    """The greater (">") or lesser ("<") of two values; a NaN wins, as in PyTorch."""
    if dtype is torch.bool:
        return f"{a} {'||' if mark == '>' else '&&'} {b}"
    if dtype.is_floating_point:
        return f"select({a} {mark} {b} || is_nan({a}), {a}, {b})"
    return f"{'max' if mark == '>' else 'min'}({a}, {b})"


def _extreme(mark: str) -> Expression:
    def made(a: Any, b: Any) -> tuple[str, Any]:
        dtype = common_dtype(a, b)
        return extreme(mark, dtype, typed(a, dtype), typed(b, dtype)), dtype

    return made


def _shift(mark: str) -> Expression:
    """Counts from the width on shift everything out, where the language masks them; and so do negative ones."""

    def made(a: Any, b: Any) -> tuple[str, Any]:
        dtype = common_dtype(a, b)
        name, width = type_name(dtype), _WIDTHS[dtype]
        left, right = typed(a, dtype), typed(b, dtype)
        unsigned = _UNSIGNED.get(name)
        count = right if unsigned is None else f"cast({right}, {unsigned})"
        out = "0" if mark == "<<" or unsigned is None else f"{left} >> {width - 1}"
        return f"select({count} >= {width}, {out}, {left} {mark} {right})", dtype

    return made


def _divided(rounding: str) -> Expression:
    """A quotient rounded toward zero ("trunc") or down ("floor")."""

    def made(a: Any, b: Any) -> tuple[str, Any]:
        dtype = common_dtype(a, b)
        left, right = typed(a, dtype), typed(b, dtype)
        if dtype.is_floating_point:
            return f"{rounding}({left} / {right})", dtype
        if rounding == "trunc" or not dtype.is_signed:
            return f"{left} / {right}", dtype
        return f"{left} / {right} - select(({left} % {right} != 0) && ((({left} % {right}) < 0) != ({right} < 0)), 1, 0)", dtype

    return made


def _quotient(a: Any, b: Any) -> tuple[str, Any]:
    dtype = _float_of(a, b)
    return f"{typed(a, dtype)} / {typed(b, dtype)}", dtype


def _power(a: Any, b: Any) -> tuple[str, Any]:
    dtype = common_dtype(a, b)
    if not dtype.is_floating_point:
        raise Unsupported("the backend vyre", [Missing("powers of whole numbers in a kernel")])
    return f"pow({typed(a, dtype)}, {typed(b, dtype)})", dtype


def _magnitude(x: Any) -> tuple[str, Any]:
    return f"abs({x})" if x.dtype.is_signed else str(x), x.dtype


def _sign(x: Any) -> tuple[str, Any]:
    if x.dtype.is_floating_point:
        return f"select(is_nan({x}), 0.0, sign({x}))", x.dtype
    return str(x) if x.dtype is torch.bool else f"sign({x})", x.dtype


def _signbit(x: Any) -> tuple[str, Any]:
    if not x.dtype.is_floating_point:
        return f"{x} < 0" if x.dtype.is_signed else "false", torch.bool
    return f"bitcast({x}, {'i32' if x.dtype is torch.float32 else 'i64'}) < 0", torch.bool


def _test_of_floats(name: str) -> Expression:
    return lambda x: (f"{name}({x})" if x.dtype.is_floating_point else "false", torch.bool)


def _ldexp(x: Any, count: Any) -> tuple[str, Any]:
    dtype = _float_of(x)
    return f"ldexp({typed(x, dtype)}, {typed(count, torch.int32)})", dtype


def _where(condition: Any, a: Any, b: Any) -> tuple[str, Any]:
    dtype = common_dtype(a, b)
    return f"select({typed(condition, torch.bool)}, {typed(a, dtype)}, {typed(b, dtype)})", dtype


# Op of Inductor -> its expression.
OPS: Final[Mapping[str, Expression]] = {
    **{name: _function(name) for name in _FUNCTIONS},
    **{name: _whole(name) for name in _WHOLE},
    **dict(zip(("eq", "ne", "lt", "le", "gt", "ge"), map(_comparison, ("==", "!=", "<", "<=", ">", ">=")), strict=True)),
    "add": _arithmetic("+"), "mul": _arithmetic("*"), "mul_rn": _arithmetic("*"), "sub": _arithmetic("-"),
    "truediv": _quotient, "div_rn": _quotient, "int_truediv": _quotient,
    "fmod": _infix("%"), "mod": _infix("%"), "truncdiv": _divided("trunc"), "floordiv": _divided("floor"),
    "bitwise_and": _bits("&", "&&"), "bitwise_or": _bits("|", "||"), "bitwise_xor": _bits("^", "!="),
    "and_": _bits("&", "&&"), "or_": _bits("|", "||"), "xor": _bits("^", "!="),
    "logical_and": _logic("&&"), "logical_or": _logic("||"), "logical_xor": _logic("!="),
    "bitwise_left_shift": _shift("<<"), "bitwise_right_shift": _shift(">>"), "lshift": _shift("<<"), "rshift": _shift(">>"),
    "maximum": _extreme(">"), "minimum": _extreme("<"), "pow": _power, "ldexp": _ldexp, "where": _where,
    "abs": _magnitude, "sign": _sign, "signbit": _signbit, "isnan": _test_of_floats("is_nan"), "isinf": _test_of_floats("is_inf"),
    "neg": lambda x: (f"-{x}", x.dtype),
    "logical_not": lambda x: (f"!{typed(x, torch.bool)}", torch.bool),
    "bitwise_not": lambda x: (f"!{x}" if x.dtype is torch.bool else f"~{x}", x.dtype),
}  # fmt: skip


class ElementwiseOps(OpOverrides):  # type: ignore[misc]  # PyTorch has no types for this checker
    """The handler that Inductor calls; the ops of the table are its methods, too."""

    @staticmethod
    def constant(value: Any, dtype: Any) -> Any:
        """A number. Two that round to the same one stay apart by a comment, since Inductor knows different bounds of them."""
        wanted, text = compute_dtype(dtype), literal(value, compute_dtype(dtype))
        apart = wanted is torch.float32 and math.isfinite(value) and rounded(value) != value
        made = V.kernel.let(f"{text} // {value!r}" if apart else text, wanted)
        if value:
            V.kernel.never_zero.add(made)
        return made

    @staticmethod
    def to_dtype(x: Any, dtype: Any, src_dtype: Any = None, use_compute_types: bool = True) -> Any:
        """A conversion. To half precision it rounds, and is computed with in f32 from there on."""
        del src_dtype, use_compute_types
        wanted = compute_dtype(dtype)
        text = typed(x, dtype)
        return V.kernel.let(text if wanted is dtype else f"cast({text}, {type_name(wanted)})", wanted)

    @staticmethod
    def to_dtype_bitcast(x: Any, dtype: Any, src_dtype: Any) -> Any:
        """The bits of a value as another dtype."""
        wanted = compute_dtype(dtype)
        bits = f"bitcast({typed(x, src_dtype)}, {type_name(dtype)})" if src_dtype != dtype else typed(x, dtype)
        return V.kernel.let(bits if wanted is dtype else f"cast({bits}, {type_name(wanted)})", wanted)

    @staticmethod
    def index_expr(expr: Any, dtype: Any) -> Any:
        """An index that indices and conditions are made of: of whole numbers, in the type in which it is computed."""
        return V.kernel.index_as(expr, None if _VALUES_APART and dtype in (torch.int32, torch.int64) else compute_dtype(dtype))

    @staticmethod
    def value_expr(expr: Any, dtype: Any) -> Any:
        """An index as a value of a dtype."""
        return V.kernel.index_as(expr, compute_dtype(dtype))

    @staticmethod
    def load_seed(name: str, offset: Any) -> Any:
        """The seed of this number in a buffer of seeds."""
        return V.kernel.load(name, sympy.Integer(offset))

    @staticmethod
    def rand(seed: Any, offset: Any) -> Any:
        """An f32 from 0 up to 1."""
        return V.kernel.let(uniform(f"{V.kernel.random_words(seed, offset)}.x", gpu=V.kernel.on_gpu), torch.float32)

    @staticmethod
    def randn(seed: Any, offset: Any) -> Any:
        """A normal f32."""
        return V.kernel.let(normal(str(V.kernel.random_words(seed, offset)), gpu=V.kernel.on_gpu), torch.float32)

    @staticmethod
    def randint64(seed: Any, offset: Any, low: Any, high: Any) -> Any:
        """An i64 from `low` up to `high`."""
        bounds = [typed(bound, torch.int64) for bound in (low, high)]
        return V.kernel.let(integer(str(V.kernel.random_words(seed, offset)), *bounds), torch.int64)

    @staticmethod
    def frexp(x: Any) -> Any:
        """Fraction and exponent."""
        return V.kernel.let(f"frexp_fraction({x})", x.dtype), V.kernel.let(f"frexp_exponent({x})", torch.int32)

    @staticmethod
    def masked(mask: Any, body: Callable[[], Any], other: Any) -> Any:
        """What the body gives where the mask is true, else `other`. The body may run anywhere: loads from outside are zero."""
        with V.kernel.mask_loads(mask, other) as known:
            found = OpsWrapper._unwrap(body())
        if isinstance(found, (bool, int, float)):
            found = V.kernel.let(literal(found, compute_dtype(common_dtype(found, other))), common_dtype(found, other))
        return V.kernel.let(f"select({known}, {found}, {typed(other, found.dtype)})", found.dtype)


def _method(name: str, expression: Expression) -> Callable[..., Any]:
    def made(*operands: Any) -> Any:
        values = [*map(OpsWrapper._unwrap, operands)]
        text, dtype = expression(*values)
        if name in _DIVISIONS and not (dtype.is_floating_point or dtype is torch.bool):
            V.kernel.check_divisor(values[1], dtype)
        return V.kernel.let(text, dtype)

    made.__name__ = name
    return made


for _name, _expression in OPS.items():
    setattr(ElementwiseOps, _name, staticmethod(_method(_name, _expression)))
