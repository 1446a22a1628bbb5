"""Filetests of casts and bitcasts between all types, and of packing, against `exact_conversions`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, islice, pairwise, product
from typing import Final

from exact_conversions import cast_oracle, dot4, packed, stored, taken, unpacked
from exact_floats import FORMATS
from exact_samples import Number
from vir_scalars import Result, columns, edges, everyday, nans
from vir_text import NEEDS_F64, NO_SPECIALS, file_text, number

from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import SCALARS, TYPES, Kind, Type, bool_, f32, f64, i32, u32, vector_of

__all__ = ["FILES"]

_MOST_OUTPUTS: Final = 7  # with one input, the eight storage buffers that every WebGPU device has

# ---------------------------------------------------------------- casts

_INTEGERS: Final = tuple(t for t in SCALARS.values() if t.is_integer)
_FLOATS: Final = tuple(FORMATS)
_GROUPS: Final[Mapping[str, tuple[Type, ...]]] = {
    "signed": tuple(t for t in _INTEGERS if t.is_signed),
    "unsigned": (*[t for t in _INTEGERS if not t.is_signed], bool_),
    "floats": _FLOATS,
}
# Where narrower types end, and in the middle between two floats of each format.
_WHOLES: Final = (
    127, 128, 255, 256, 257, 259, 2049, 2051, 32768, 65519, 65520, 65536, (1 << 24) + 1, (1 << 24) + 3, (1 << 31) - 64, 1 << 31, (1 << 32) - 1, (1 << 32) + 255,
    (1 << 40) + (1 << 32) + 1, (1 << 53) + 1, (1 << 62) + (1 << 54) + 1,
)  # fmt: skip
_DECIMALS: Final = (
    "0.99", "-0.99", "1.5", "-1.5", "127.9", "-128.9", "255.5", "256", "300", "32768", "-32769", "65504", "65519.9", "65520", "-70000", "16777216",
    "2147483520", "2147483647", "2147483648", "-2147483648", "-2147483904", "4294967040", "4294967296", "9223371487098961920", "9223372036854775808",
    "-9223372036854775808", "-1e19", "18446742974197923840", "18446744073709551616", "1e30", "-1e30", "1.00390625093132", "1.0003662109375", "1.0009765625001",
    "1.00048828125091", "1.0000000596046450",
)  # fmt: skip


def _integers_to_cast(t: Type) -> list[Number]:
    return list(dict.fromkeys([*edges(t), *[s * w for w in _WHOLES for s in (1, -1) if t.minimum <= s * w <= t.maximum]]))


def _floats_to_cast(t: Type) -> list[Number]:
    f = FORMATS[t]
    return [b for b in dict.fromkeys([*everyday(t), *[number(t, text) for text in _DECIMALS]]) if f.is_finite(b)]


def _casts(source: Type, numbers: Sequence[Number], remarks: Sequence[str] = ()) -> Iterator[str]:
    """A Program for each group of targets."""
    for group, targets in _GROUPS.items():
        outputs: dict[str, Result] = {f"as_{t}": (t, f"cast(x, {t})", partial(cast_oracle, source, t)) for t in targets if t is not source}
        extra = ["// tolerance on wgpu: ulp 1"] if group == "floats" and NO_SPECIALS not in remarks else []
        need = [NEEDS_F64] if f64 in (source, *targets) else []
        yield columns(f"from_{source}_to_{group}", {"x": (source, numbers)}, outputs, [*remarks, *extra, *need])


def _casts_of_integers() -> str:
    programs = [text for t in _INTEGERS for text in _casts(t, _integers_to_cast(t))]
    programs += _casts(bool_, [False, True])
    return file_text("Casts of integers and bools to all other types: wrapping, rounding to nearest even, truth.", programs)


def _casts_of_floats() -> str:
    title = "Casts of floats to all other types: truncation, saturation, one rounding to nearest even."
    return file_text(title, [text for t in _FLOATS for text in _casts(t, _floats_to_cast(t))])


def _casts_of_special_floats() -> str:
    title = "Casts of zeros, subnormals, the largest numbers, infinities and NaN to all other types."
    return file_text(title, [text for t in _FLOATS for text in _casts(t, [*edges(t), *nans(t)])], [NO_SPECIALS])


# ---------------------------------------------------------------- bitcasts

# Halves that make normal numbers in every float format, wherever they stand; and halves that do not.
_NORMAL: Final = (0x3C00, 0xC248, 0x3555, 0x4489, 0xB8A7, 0x7BFF, 0x0400, 0x8901, 0x5A5A, 0x2211)
_SPECIAL: Final = (0x7C00, 0x7F80, 0xFF80, 0x0001, 0x8000, 0x7FC1, 0xFFFF, 0x7C01, 0x7FF0, 0x0000, 0xFFF8, 0x7FF4)
_ROWS: Final = 5
_BYTES: Final = (1, 0x80, 0xFF, 0x7F, 0x5A, 0, 0xC3)


def _patterns(bits: int, halves: Iterable[int]) -> list[int]:
    """Numbers of so many bits, joined from halves; from bytes where halves do not fit."""
    step, parts = (8, cycle(_BYTES)) if bits % 16 else (16, cycle(halves))
    return [sum(part << step * k for k, part in enumerate(islice(parts, bits // step))) for _ in range(_ROWS)]


def _value(t: Type, bits: int) -> Number | tuple[Number, ...]:
    parts = taken(t, bits)
    return parts if t.is_vector else parts[0]


def _bitcasts(source: Type, halves: Iterable[int], remarks: Sequence[str] = (), floats_only: bool = False) -> Iterator[str]:
    """Programs from a type to all others of its size, or to those where one of the two is a float."""
    patterns = _patterns(source.total_bits, halves)
    inputs = {"x": (source, [_value(source, p) for p in patterns])}

    def right(target: Type, x: Number) -> Number:
        return _value(target, stored(source, x if source.is_vector else (x,)))

    targets = [t for t in TYPES.values() if t.total_bits == source.total_bits and t is not source and t.kind is not Kind.BOOL]
    if floats_only:
        targets = [t for t in targets if source.is_float or t.is_float]
    for part, first in enumerate(range(0, len(targets), _MOST_OUTPUTS)):
        some = targets[first : first + _MOST_OUTPUTS]
        outputs: dict[str, Result] = {f"as_{t}": (t, f"bitcast(x, {t})", partial(right, t)) for t in some}
        need = [NEEDS_F64] if f64 in {t.scalar for t in (source, *some)} else []
        yield columns(f"{source}_{'abc'[part]}", inputs, outputs, [*remarks, *need])


def _bitcasts_file(title: str, sizes: Sequence[int]) -> str:
    sources = [t for t in TYPES.values() if t.total_bits in sizes and t.kind is not Kind.BOOL]
    return file_text(f"Bitcasts between the types of {title} bits, the little end first.", [text for t in sources for text in _bitcasts(t, _NORMAL)])


def _special_bitcasts_file() -> str:
    title = "Bitcasts of floats that are not normal numbers: of every NaN the canonical one; and of their bits."
    sources = [t for t in TYPES.values() if t.total_bits in (16, 32, 64) and t.kind is not Kind.BOOL]
    return file_text(title, [text for t in sources for text in _bitcasts(t, _SPECIAL, floats_only=True)], [NO_SPECIALS])


# ---------------------------------------------------------------- packing

_PARTS: Final = {"snorm": f32, "unorm": f32, "sint": i32, "uint": u32, "float": f32}
_NORMS: Final = ("0", "1", "-1", "0.5", "-0.5", "0.25", "0.75", "-0.999", "1.5", "-7", "0.003", "0.3", "100", "-0.01", "0.0625", "0.9999")
_WORDS: Final = (0, 0x01020304, 0x807F01FF, 0xFFFFFFFF, 0x7FFF8000, 0x80008001, 0x3C00C248, 0x7BFF0400)


def _forms(size: str) -> list[str]:
    return [name[4:] for name in OPS if name.startswith(f"pack{size}")]


def _rows(t: Type, numbers: Sequence[Number], lanes: int) -> list[tuple[Number, ...]]:
    """Vectors of these numbers, each in every place."""
    return [tuple(numbers[(k + j * 5) % len(numbers)] for j in range(lanes)) for k in range(len(numbers))]


def _packs(size: str, lanes: int, floats: Sequence[Number], remarks: Sequence[str] = ()) -> str:
    """All forms of one size; the first so many integers go with the floats."""
    columns_of = {"f": (f32, floats), "s": (i32, edges(i32)), "u": (u32, edges(u32))}
    count = len(floats)
    inputs = {name: (vector_of(t, lanes), list(islice(cycle(_rows(t, numbers, lanes)), count))) for name, (t, numbers) in columns_of.items()}
    names = {f32: "f", i32: "s", u32: "u"}
    outputs: dict[str, Result] = {
        f"pack{form}": (u32, f"pack{form}({names[_PARTS[form.partition('_')[2]]]})", partial(packed, form)) for form in _forms(size)
    }
    return columns(f"pack{size}_{'special' if remarks else 'numbers'}", inputs, outputs, remarks)


def _unpacks(size: str, lanes: int, words: Sequence[int], remarks: Sequence[str] = ()) -> str:
    outputs: dict[str, Result] = {
        f"unpack{form}": (vector_of(_PARTS[form.partition("_")[2]], lanes), f"unpack{form}(x)", partial(unpacked, form)) for form in _forms(size)
    }
    return columns(f"unpack{size}_{'special' if NO_SPECIALS in remarks else 'words'}", {"x": (u32, words)}, outputs, remarks)


def _packing_file() -> str:
    near = ["// tolerance on wgpu: ulp 3"]
    norms = [number(f32, text) for text in _NORMS]
    special = [*edges(f32), *nans(f32)]
    programs = [
        _packs("4x8", 4, norms), _packs("2x16", 2, norms), _unpacks("4x8", 4, _WORDS, near), _unpacks("2x16", 2, _WORDS, near),
        _packs("4x8", 4, special, [NO_SPECIALS]), _packs("2x16", 2, special, [NO_SPECIALS]),
        _unpacks("2x16", 2, [a | b << 16 for a, b in pairwise(_SPECIAL)], [NO_SPECIALS]),
    ]
    return file_text("Packing into a u32 and unpacking, in all forms: clamping, rounding to nearest even, wrapping, the first component lowest.", programs)


# ---------------------------------------------------------------- products of bytes

_FACTORS: Final = (0, 0x01020304, 0x807F01FF, 0xFFFFFFFF, 0x7F7F7F7F, 0x80808080, 0x00FF8001, 0xC3A5175E)


def _each(scalar: Callable[..., Number], *operands: tuple[Number, ...]) -> tuple[Number, ...]:
    return tuple(scalar(*row) for row in zip(*operands, strict=True))


def _dot4_file() -> str:
    """Each word with each, and sums that wrap; over vectors with one third operand for each component, and one for all."""
    programs = []
    for form, t in (("4x8_sint", i32), ("4x8_uint", u32)):
        name, right = f"dot4_{'iu'[t is u32]}8", partial(dot4, form, t)
        a, b = zip(*product(_FACTORS, repeat=2), strict=True)
        c = list(islice(cycle([0, 1, t.maximum, t.minimum, 100000]), len(a)))
        programs.append(columns(name, {"a": (u32, a), "b": (u32, b), "c": (t, c)}, {name: (t, f"{name}(a, b, c)", right)}))
        words, ends = vector_of(u32, 3), vector_of(t, 3)
        rows = [(a[k : k + 3], b[k : k + 3], tuple(c[k : k + 3])) for k in range(0, 24, 3)]
        inputs = {key: (kind, list(column)) for key, kind, column in zip("abc", (words, words, ends), zip(*rows, strict=True), strict=True)}
        outputs: dict[str, Result] = {"each": (ends, f"{name}(a, b, c)", partial(_each, right))}
        if t is i32:
            outputs["one"] = ends, f"{name}(a, b, 7)", lambda x, y, right=right: _each(right, x, y, (7,) * 3)
        programs.append(columns(f"{name}_of_vectors", inputs, outputs))
    return file_text("Products of four bytes with a sum that wraps.", programs)


FILES: Final[Mapping[str, Callable[[], str]]] = {
    "casts_of_integers": _casts_of_integers,
    "casts_of_floats": _casts_of_floats,
    "casts_of_special_floats": _casts_of_special_floats,
    "bitcasts_to_24": partial(_bitcasts_file, "8, 16 and 24", (8, 16, 24)),
    "bitcasts_32": partial(_bitcasts_file, "32", (32,)),
    "bitcasts_64": partial(_bitcasts_file, "48 and 64", (48, 64)),
    "bitcasts_from_96": partial(_bitcasts_file, "96 and more", (96, 128, 192, 256)),
    "bitcasts_special": _special_bitcasts_file,
    "packing": _packing_file,
    "dot4": _dot4_file,
}
