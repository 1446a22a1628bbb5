"""Filetests of subgroups: what each lane gets, by plain loops over the lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from random import Random
from typing import Any, Final

from exact_floats import FLOAT_ORACLES, FORMATS
from exact_integers import INTEGER_ORACLES
from exact_samples import Number, drawn
from vir_text import NEEDS_F64, NO_SPECIALS, Column, case, file_text, number

from vyre_py.ir.language.types import TYPES, Type, bool_, f64, u8, u32, vector_of

__all__ = ["FILES"]

_Lanes = Sequence[Any]  # what a subgroup's lanes have; the components of vectors as tuples

# Type, workgroup, lanes of a subgroup, and whether WebGPU tries it, whose compiler in software takes long for each barrier.
_SHAPES: Final[tuple[tuple[str, tuple[int, ...], int, bool], ...]] = (
    ("u32", (16, 4), 32, True), ("i32", (6, 2), 4, True), ("f32", (64,), 32, False), ("f32", (8, 2, 4), 64, False), ("u32", (128,), 128, False),
    ("bool", (64,), 32, False), ("bool", (8,), 2, True), ("i8", (16,), 16, False), ("u8", (64,), 64, False), ("i16", (8, 4), 8, True),
    ("u16", (32,), 32, False), ("i64", (64,), 16, False), ("u64", (32,), 32, False), ("f16", (32,), 8, True), ("bf16", (32,), 32, False),
    ("f64", (32, 2), 32, False), ("f64", (8,), 8, False), ("u32", (3,), 1, True), ("f32x3", (32,), 16, False), ("u64x2", (16,), 4, True),
    ("boolx4", (64,), 64, False),
)  # fmt: skip
_MASK_BITS: Final = 32
_SLOW: Final = "// not on wgpu: other sizes and types show it, and each barrier costs llvmpipe much time"
_ALL_FOLDS: Final = ("add", "mul", "min", "max", "and", "or", "xor")


# ---------------------------------------------------------------- oracles


def _fold(t: Type, name: str, a: Any, b: Any) -> Any:
    if isinstance(a, tuple):
        return tuple(_fold(t, name, x, y) for x, y in zip(a, b, strict=True))
    if t is bool_:
        return {"and": a and b, "or": a or b, "xor": a != b}[name]
    return FLOAT_ORACLES[name](FORMATS[t], a, b) if t.is_float else INTEGER_ORACLES[name](t, a, b)


def _identity(t: Type, name: str) -> Number:
    if name in ("min", "max") and t.is_float:
        return FORMATS[t].infinity | (FORMATS[t].sign if name == "max" else 0)
    if name in ("min", "max"):
        return t.maximum if name == "min" else t.minimum
    if t is bool_:
        return name == "and"
    return {"add": 0, "mul": number(t, "1"), "and": -1 if t.is_signed else t.maximum, "or": 0, "xor": 0}[name]


def _reduce(t: Type, name: str, xs: _Lanes) -> _Lanes:
    d = len(xs) // 2
    while d:
        xs = [_fold(t, name, x, xs[k ^ d]) for k, x in enumerate(xs)]
        d //= 2
    return xs


def _inclusive(t: Type, name: str, xs: _Lanes) -> _Lanes:
    d = 1
    while d < len(xs):
        xs = [_fold(t, name, x, xs[k - d]) if k >= d else x for k, x in enumerate(xs)]
        d *= 2
    return xs


def _exclusive(t: Type, name: str, xs: _Lanes) -> _Lanes:
    first: Any = _identity(t, name)
    return [(first,) * len(xs[0]) if isinstance(xs[0], tuple) else first, *_inclusive(t, name, xs)[:-1]]


def _zero(x: Any) -> Any:
    return (_zero(x[0]),) * len(x) if isinstance(x, tuple) else type(x)(0)


def _moved(source: Callable[[int, int], int]) -> Callable[[_Lanes, Sequence[int]], _Lanes]:
    """What lanes get from those that `source` says, given the own lane and an operand."""

    def move(xs: _Lanes, operands: Sequence[int]) -> _Lanes:
        found = [source(k, operand) for k, operand in enumerate(operands)]
        return [xs[at] if 0 <= at < len(xs) else _zero(xs[0]) for at in found]

    return move


_MOVES: Final = {
    "shuffle": _moved(lambda k, i: i), "shuffle_xor": _moved(lambda k, m: k ^ m), "shuffle_up": _moved(lambda k, d: k - d),
    "shuffle_down": _moved(lambda k, d: k + d),
}  # fmt: skip


def _mask(on: Sequence[bool]) -> Any:
    words = tuple(sum(1 << k for k in range(32) if at + k < len(on) and on[at + k]) for at in range(0, len(on), 32))
    return words if len(words) > 1 else words[0]


def _equal(t: Type, a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return all(_equal(t, x, y) for x, y in zip(a, b, strict=True))
    if not t.is_float:
        return bool(a == b)
    f = FORMATS[t]
    return not (f.is_nan(a) or f.is_nan(b)) and (a == b or (a | b) & ~f.sign == 0)


def _by_subgroup(size: int, f: Callable[..., _Lanes], *columns: _Lanes) -> list[Any]:
    return [x for at in range(0, len(columns[0]), size) for x in f(*[column[at : at + size] for column in columns])]


# ---------------------------------------------------------------- Programs


def _numbers(t: Type, count: int, seed: int) -> list[Any]:
    if t.is_vector:
        parts = [_numbers(t.scalar, count, seed + k) for k in range(t.lanes)]
        return list(zip(*parts, strict=True))
    draw = Random(seed)
    if t.is_float:
        return [number(t, f"{draw.choice((-1, 1)) * draw.uniform(0.7, 1.5):.4f}") for _ in range(count)]
    return [draw.random() < 0.6 for _ in range(count)] if t is bool_ else drawn(t, count, seed)


def _head(title: str, t: Type, workgroup: tuple[int, ...], size: int) -> str:
    return f"{title}_{t}_{size}(n) workgroup({', '.join(map(str, workgroup))}) subgroup({size}) grid(2)"


def _needs(t: Type) -> list[str]:
    return [NEEDS_F64] if t.scalar is f64 else []


_OWN: Final = "let i = workgroup_id.x * {} + local_index"


def _folds(t: Type, workgroup: tuple[int, ...], size: int, seed: int, remarks: Sequence[str], each: bool = False) -> str:
    """A fold of all lanes, and two of those up to one and before one; or each of them."""
    names = _ALL_FOLDS[4:] if t.scalar is bool_ else _ALL_FOLDS[:4] if t.is_float else _ALL_FOLDS
    xs = _numbers(t, 2 * prod(workgroup), seed)
    body, rows = [_OWN.format(prod(workgroup)), "let v = x[i]"], []
    for turn, (kind, f) in enumerate((("reduce", _reduce), ("inclusive", _inclusive), ("exclusive", _exclusive))):
        for name in names if each else [names[(seed + turn) % len(names)]]:
            body.append(f"y[{len(rows)}, i] = subgroup_{kind}_{name}(v)")
            rows.append(_by_subgroup(size, lambda part, f=f, name=name: f(t.scalar, name, part), xs))
    given = [Column("x", t, "n", "read", xs)]
    return case(_head("folds", t, workgroup, size), body, given, [Column("y", t, f"{len(rows)}, n", "write", rows)], [*_needs(t), *remarks])


def _moves(t: Type, workgroup: tuple[int, ...], size: int, seed: int, remarks: Sequence[str], xs: Sequence[Any] = ()) -> str:
    """Every shuffle by operands that differ from lane to lane, some past all lanes, and by numbers; a broadcast by a number of the subgroup."""
    count, draw = 2 * prod(workgroup), Random(seed)
    xs = [xs[k % len(xs)] for k in range(count)] if xs else _numbers(t, count, seed)
    by = [draw.choice((draw.randrange(size), draw.randrange(2 * size + 1), 0xFFFFFFFF - draw.randrange(3))) for _ in range(count)]
    body, rows = [_OWN.format(prod(workgroup)), "let v = x[i]"], []
    for name, f in _MOVES.items():
        body += [f"y[{len(rows)}, i] = subgroup_{name}(v, by[i])", f"y[{len(rows) + 1}, i] = subgroup_{name}(v, 1)"]
        rows += [_by_subgroup(size, f, xs, by), _by_subgroup(size, f, xs, [1] * count)]
    groups = prod(workgroup) // size
    ids = [k // size % groups for k in range(count)]
    body += [f"y[{len(rows)}, i] = subgroup_broadcast(v, subgroup_id)"]
    rows.append(_by_subgroup(size, _MOVES["shuffle"], xs, ids))
    given = [Column("x", t, "n", "read", xs), Column("by", u32, "n", "read", by)]
    return case(_head("moves", t, workgroup, size), body, given, [Column("y", t, f"{len(rows)}, n", "write", rows)], [*_needs(t), *remarks])


def _masks(t: Type, workgroup: tuple[int, ...], size: int, seed: int, remarks: Sequence[str], xs: Sequence[Any] = ()) -> str:
    """Ballots, what all and any lanes say, which lanes match, and where the invocation is."""
    count, draw = 2 * prod(workgroup), Random(seed)
    few = list(xs) or _numbers(t, 3, seed)
    xs = [draw.choice(few) for _ in range(count)]
    mask = vector_of(u32, max(1, size // 32))
    on = [k % 7 < k // size % 8 for k in range(count)]  # none in the first subgroup, all in the last of many
    # Of more than 32 lanes a match is a loop of exchanges through workgroup memory, which takes long where each invocation is a thread.
    matched = "subgroup_match(x[i])" if size <= _MASK_BITS or t is u8 else "subgroup_ballot(!c)"
    body = [_OWN.format(prod(workgroup)), "let c = on[i]", f"m[0, i] = {matched}", "m[1, i] = subgroup_ballot(c)"]
    body += ["s[0, i] = subgroup_lane", "s[1, i] = subgroup_id", "b[0, i] = subgroup_all(c)", "b[1, i] = subgroup_any(c)"]
    masks = [
        _by_subgroup(size, lambda part: [_mask([_equal(t.scalar, x, other) for other in part]) for x in part], xs)
        if "match" in matched else _by_subgroup(size, lambda part: [_mask([not c for c in part])] * size, on),
        _by_subgroup(size, lambda part: [_mask(part)] * size, on),
    ]
    places = [[k % size for k in range(count)], [k // size % (prod(workgroup) // size) for k in range(count)]]
    bools = [_by_subgroup(size, lambda part, f=f: [f(part)] * size, on) for f in (all, any)]
    given = [Column("x", t, "n", "read", xs), Column("on", bool_, "n", "read", on)]
    wanted = [Column("m", mask, "2, n", "write", masks), Column("s", u32, "2, n", "write", places), Column("b", bool_, "2, n", "write", bools)]
    return case(_head("masks", t, workgroup, size), body, given, wanted, [*_needs(t), *remarks])


def _specials(t: Type) -> list[Number]:
    f = FORMATS[t]
    return [f.nan, f.nan | 1, f.sign | f.nan | 5, f.infinity, f.sign | f.infinity, 0, f.sign, 1, f.sign | 3, f.infinity - 1]


def _file(write: Callable[..., str], title: str) -> Callable[[], str]:
    return lambda: file_text(title, _shaped(write))


def _shaped(write: Callable[..., str]) -> list[str]:
    return [write(TYPES[t], workgroup, size, seed, [] if everywhere else [_SLOW]) for seed, (t, workgroup, size, everywhere) in enumerate(_SHAPES, 1)]


def _fold_file() -> str:
    each = [_folds(TYPES[t], (8,), 4, 3, [], each=True) for t in ("i32", "f32", "bool")]
    return file_text("Reductions and scans of subgroups, in their fixed order.", [*_shaped(_folds), *each])


def _special_file() -> str:
    cases = []
    for t, size in ((TYPES["f32"], 32), (TYPES["f64"], 8), (TYPES["f16"], 16), (TYPES["bf16"], 32)):
        cases += [write(t, (64,), size, 7, [NO_SPECIALS], _specials(t)) for write in (_moves, _masks)]
    return file_text("Shuffles keep the bits of NaNs; a NaN matches nothing, and the zeros match each other.", cases)


FILES: Final = {
    "subgroup_folds": _fold_file,
    "subgroup_moves": _file(_moves, "Shuffles and broadcasts in subgroups; zero from past all lanes."),
    "subgroup_masks": _file(_masks, "Ballots, votes and matches in subgroups, and the numbers of lanes and subgroups."),
    "subgroup_specials": _special_file,
}
