"""Filetests of complex numbers, against mpmath with 400 bits; on everyday numbers also on WebGPU, within what its own functions are off by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, Final

import mpmath
from exact_floats import COMPUTED, FORMATS
from exact_samples import Number
from vir_math import rounded
from vir_scalars import Result, columns
from vir_text import NEEDS_F64, NO_SPECIALS, file_text, number

from vyre_py.ir.language.types import Type, f32, f64, vector_of

__all__ = ["FILES"]

_BITS: Final = 400
_Complex = tuple[Number, ...]

_EXACT: Final[Mapping[str, Callable[..., Any]]] = {
    "complex_mul": lambda a, b: a * b, "complex_div": lambda a, b: a / b, "complex_abs": abs, "complex_exp": mpmath.exp,
}  # fmt: skip
# What the module says; f16 and bf16 are rounded once more.
_ULP: Final = {"complex_mul": 2, "complex_div": 5, "complex_abs": 1, "complex_exp": 8}

_NUMBERS: Final = (
    ("1", "0"), ("0", "1"), ("-2.5", "0.75"), ("3", "4"), ("0.1", "-0.3333333333333333"), ("-7", "-0.001"), ("1.5", "1.4999"), ("0.7", "0.7000001"),
)  # fmt: skip
# Whose squares overflow or underflow, but not their products and quotients with one another; and exponents near overflow.
_WIDE: Final = (("2e30", "-3e30"), ("1e-30", "4e-31"), ("-1.5e20", "1e20"), ("2e-25", "3e-25"))
_EXPONENTS: Final = (("88.5", "1.3"), ("89", "1.55"), ("-80", "2"), ("3", "0"), ("-0.5", "-0"), ("10", "-3"), ("0", "3.1"))


def _number(f: Type, z: _Complex) -> Any:
    return mpmath.mpc(*[FORMATS[f].value(part) for part in z])


def _right(t: Type, name: str, *operands: _Complex) -> Number | _Complex:
    with mpmath.workprec(_BITS):
        exact = _EXACT[name](*[_number(t, z) for z in operands])
        if name == "complex_abs":
            return rounded(FORMATS[t], exact)
        # The sign of a zero is that of the imaginary part itself, where exp has one.
        sign = operands[0][1] & FORMATS[t].sign if name == "complex_exp" else 0
        return rounded(FORMATS[t], exact.real), rounded(FORMATS[t], exact.imag, sign)


def _case(t: Type, title: str, name: str, rows: Sequence[tuple[tuple[str, str], ...]], remarks: Sequence[str]) -> str:
    v = vector_of(t, 2)
    numbers = [[tuple(number(t, part) for part in z) for z in row] for row in rows]
    inputs = {key: (v, list(column)) for key, column in zip("ab", zip(*numbers, strict=True), strict=False)}
    outputs: dict[str, Result] = {"out": (t if name == "complex_abs" else v, f"{name}({', '.join(inputs)})", partial(_right, t, name))}
    return columns(title, inputs, outputs, remarks)


def _rows(name: str, numbers: Sequence[tuple[str, str]]) -> list[tuple[tuple[str, str], ...]]:
    return list(product(numbers, repeat=2 if name in ("complex_mul", "complex_div") else 1))


def _everyday_file() -> str:
    programs = []
    for t, name in product(COMPUTED, _EXACT):
        wgpu = "ulp 4096 abs 1e-13" if t is f64 else f"ulp 64 abs {0.0005 if t is f32 else 0.05}"
        remarks = [f"// tolerance: ulp {_ULP[name] if t in (f32, f64) else 1}", f"// tolerance on wgpu: {wgpu}", *([NEEDS_F64] if t is f64 else [])]
        programs.append(_case(t, f"{name}_of_{t}", name, _rows(name, _NUMBERS), remarks))
    return file_text("Complex numbers, of every type.", programs)


def _wide_file() -> str:
    programs = []
    for t, (name, numbers) in product((f32, f64), (("complex_div", _WIDE), ("complex_abs", _WIDE), ("complex_exp", _EXPONENTS))):
        programs.append(_case(t, f"{name}_of_{t}", name, _rows(name, numbers), [f"// tolerance: ulp {_ULP[name]}"]))
    return file_text("Quotients and magnitudes of large and small complex numbers, and exponentials near overflow.", programs, [NO_SPECIALS])


FILES: Final[Mapping[str, Callable[[], str]]] = {"complex": _everyday_file, "complex_wide": _wide_file}
