"""Filetests of the functions of floats that WGSL and C have and simpler ops compute, against `exact_floats`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Final

from exact_floats import COMPUTED, FORMATS
from exact_samples import Number
from vir_scalars import Result, columns, edges, everyday, nans, oracle, result_of
from vir_text import NEEDS_F64, NO_SPECIALS, call, file_text, number

from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import Type, f64, i32, vector_of

__all__ = ["FILES"]

_OF_ONE: Final = ("saturate", "degrees", "radians", "modf_fraction", "frexp_fraction", "frexp_exponent", "quantize_f16")
_OF_TWO: Final = ("step", "copysign", "nextafter", "remainder")
_OF_THREE: Final = ("smoothstep", "mix")
# Of which WGSL's devices give the bits too: those that compare, choose and move them.
_BITS: Final = ("step", "saturate", "copysign", "nextafter", "frexp_fraction", "frexp_exponent", "quantize_f16")

_Rows = Sequence[tuple[Number, ...]]


def _case(t: Type, title: str, names: Sequence[str], rows: _Rows, lanes: int = 1, remarks: Sequence[str] = ()) -> str:
    """Ops over columns x, y, z of scalars, or of vectors whose components are the numbers of as many rows, from each row on."""
    elements = [_joined([rows[(at + k) % len(rows)] for k in range(lanes)]) for at in range(0, len(rows), lanes)] if lanes > 1 else rows
    inputs = {name: (vector_of(t, lanes), column) for name, column in zip("xyz", zip(*elements, strict=True), strict=False)}
    outputs: dict[str, Result] = {}
    for name in names:
        operands = list(inputs)[: len(OPS[name].operands)]
        outputs[name] = vector_of(result_of(t, name), lanes), call(name, *operands), partial(_lanewise, oracle(t, name)) if lanes > 1 else oracle(t, name)
    return columns(title, inputs, outputs, remarks)


def _joined(rows: _Rows) -> tuple[Number, ...]:
    """Of each column of some rows, the vector of its numbers."""
    return tuple(zip(*rows, strict=True))


def _lanewise(scalar: Callable[..., Number], *operands: tuple[Number, ...]) -> tuple[Number, ...]:
    return tuple(scalar(*row) for row in zip(*operands, strict=True))


def _neighbours(t: Type) -> list[tuple[Number, ...]]:
    """Pairs that are the same but for their signs, next to one another, and about a multiple and a half of one another."""
    f = FORMATS[t]
    near = [(x, x + d) for x in (f.one, (1 << f.fraction) - 1, 5) for d in (0, 1)]
    quotients = (("5", "2"), ("-7", "2"), ("2.5", "5"), ("7.5", "5"), ("-12.5", "5"), ("1", "3"), ("17", "-3"))
    halves = [tuple(number(t, text) for text in pair) for pair in quotients]
    large = [(f.infinity - 1, f.infinity - 2), (f.infinity - 1, f.sign | 1), (f.infinity - 2, f.infinity - 1), (3, 2), (f.sign | 1, 2), (1, f.infinity - 1)]
    return [*near, *[(x, f.sign | y) for x, y in near], *halves, *large]


def _steps(t: Type) -> list[tuple[Number, ...]]:
    """Two ends, and weights or numbers inside, at both ends, and outside of them; the ends the same, and the wrong way round."""
    ends = [tuple(number(t, text) for text in pair) for pair in (("0", "1"), ("-2", "6.5"), ("3", "-1"), ("0.1", "100.25"), ("2", "2"))]
    return [(*pair, number(t, text)) for pair in ends for text in ("0", "1", "0.5", "-1", "2.75", "0.3")]


def _exponents(t: Type) -> list[int]:
    """Small ones, and such as lead to the least numbers, the greatest, and past them."""
    f = FORMATS[t]
    return [0, 1, -1, f.bias, -f.bias, -f.bias - f.fraction, 1 - f.fraction // 2, 2 * f.bias + f.fraction, -2 * f.bias - f.fraction, i32.maximum, i32.minimum]


def _scaled(t: Type, numbers: Sequence[Number], exponents: Sequence[int], remarks: Sequence[str] = ()) -> str:
    """Each number by each power of two; and in vectors, by one power for all components and by one for each."""
    x, e = zip(*product(numbers, exponents), strict=True)
    scalars = columns("scaled", {"x": (t, x), "e": (i32, e)}, {"ldexp": (t, "ldexp(x, e)", oracle(t, "ldexp"))}, remarks)
    pairs = [(x[k : k + 2], e[k : k + 2]) for k in range(0, len(x) - 1, 2)]
    v, counts, one = vector_of(t, 2), vector_of(i32, 2), exponents[0]
    outputs: dict[str, Result] = {
        "each": (v, "ldexp(x, e)", partial(_lanewise, oracle(t, "ldexp"))),
        "one": (v, f"ldexp(x, {one})", lambda x: tuple(oracle(t, "ldexp")(a, one) for a in x)),
    }
    return scalars + "\n" + columns("scaled_vectors", {"x": (v, [a for a, _ in pairs]), "e": (counts, [b for _, b in pairs])}, outputs, remarks)


def _of_one(t: Type) -> list[str]:
    return [name for name in _OF_ONE if t in OPS[name].of]


def _special_file(t: Type) -> str:
    numbers = [*edges(t), *nans(t)]
    few = [0, FORMATS[t].sign, number(t, "-2.5"), FORMATS[t].infinity - 1, FORMATS[t].infinity, FORMATS[t].nan]
    cases = [
        _case(t, "of_one", _of_one(t), [(x,) for x in numbers]), _case(t, "of_two", _OF_TWO, [*product(edges(t), repeat=2), *_neighbours(t)]),
        _case(t, "of_three", _OF_THREE, [*_steps(t), *[row for k, row in enumerate(product(few, repeat=3)) if k % 3 == 0]]),
        _scaled(t, numbers, _exponents(t)),
    ]
    return file_text(f"Functions of {t} that simpler ops compute, with all special values; exact.", cases, [NO_SPECIALS])


def _finite_file(t: Type) -> str:
    numbers = everyday(t)
    near = f"// tolerance on wgpu: ulp {8 if t is f64 else 4} abs {0.01 if t.bits == 16 else 0.00001}"
    pairs = [*product(numbers[:5], repeat=2), *zip(numbers, [*numbers[3:], *numbers[:3]], strict=True)]

    def split(names: Sequence[str], rows: _Rows, title: str) -> list[str]:
        exact, rounded = [n for n in names if n in _BITS], [n for n in names if n not in _BITS]
        made = [_case(t, f"{title}_exact", exact, rows)] if exact else []
        return [*made, _case(t, title, rounded, rows, remarks=[near])]

    cases = [*split(_of_one(t), [(x,) for x in numbers], "of_one"), *split(_OF_TWO, pairs, "of_two"), *split(_OF_THREE, _steps(t)[:24], "of_three")]
    cases += [
        _case(t, f"of_{vector_of(t, lanes)}", names, rows, lanes, [near])
        for lanes, names, rows in ((2, _of_one(t), [(x,) for x in numbers]), (3, _OF_TWO, pairs), (4, _OF_THREE, _steps(t)[:24]))
    ]
    cases.append(_scaled(t, numbers, [0, 1, -1, 4, -3]))
    title = f"Functions of {t} that simpler ops compute, of everyday numbers, scalars and vectors; on wgpu within the bounds that WGSL gives."
    return file_text(title, cases, [NEEDS_F64] if t is f64 else [])


FILES: Final[Mapping[str, Callable[[], str]]] = {
    **{f"float_functions_{t}": partial(_special_file, t) for t in COMPUTED},
    **{f"float_functions_{t}_finite": partial(_finite_file, t) for t in COMPUTED},
}
