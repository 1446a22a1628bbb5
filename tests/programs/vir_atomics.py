"""Filetests of atomics on 64-bit integers and on floats, and of all in every order; results that hang on no order of the invocations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Final

from exact_floats import FLOAT_ORACLES, FORMATS
from exact_integers import INTEGER_ORACLES
from exact_samples import Number
from vir_scalars import literal
from vir_text import NO_SPECIALS, Column, case, file_text, number

from vyre_py.ir.language.op import RELAXED
from vyre_py.ir.language.ops import ATOMICS_BY_SPELLING
from vyre_py.ir.language.types import Type, f32, f64, i32, i64, u32, u64

__all__ = ["FILES"]

_GROUP: Final = 4
_BINS: Final = (0, 1, 0, 2, 1, 0, 1)
_BIN_COUNT: Final = 4  # the last is never met


def _apply(t: Type, op: str, old: Number, x: Number) -> Number:
    return FLOAT_ORACLES[op](FORMATS[t], old, x) if t.is_float else INTEGER_ORACLES[op](t, old, x)


def _binned(t: Type, op: str, first: Number, xs: Sequence[Number]) -> list[Number]:
    """What the bins hold when each number has gone into its own."""
    return [reduce(partial(_apply, t, op), [x for x, b in zip(xs, _BINS, strict=False) if b == k], first) for k in range(_BIN_COUNT)]


def _in_any_order(t: Type, title: str, firsts: Mapping[str, Number], xs: Sequence[Number], remarks: Sequence[str]) -> str:
    """Every op in a buffer, which all workgroups share, and in workgroup memory, of which the first workgroup's is looked at."""
    count = len(firsts)
    body = ["let i = global_id.x", "let l = local_index", *[f"w[{k}, l] = {literal(t, first)}" for k, first in enumerate(firsts.values())], "barrier"]
    body += ["if i < n {"]
    for k, op in enumerate(firsts):
        body += [f"  atomic_{op}(y[{k}, bin[i]], x[i])", f"  atomic_{op}(w[{k}, bin[i]], x[i])"]
    body += ["}", "barrier", f"if workgroup_id.x == 0 {{ for k in 0u32..{count} {{ z[k, l] = w[k, l] }} }}"]
    shape = f"{count}, {_BIN_COUNT}"
    given = [
        Column("x", t, "n", "read", list(xs)), Column("bin", u32, "n", "read", list(_BINS)),
        Column("y", t, shape, "read_write", [[first] * _BIN_COUNT for first in firsts.values()]),
        Column("z", t, shape, "read_write", [[0] * _BIN_COUNT for _ in firsts]),
    ]  # fmt: skip
    wanted = [
        Column("y", t, shape, "read_write", [_binned(t, op, first, xs) for op, first in firsts.items()]),
        Column("z", t, shape, "read_write", [_binned(t, op, first, xs[:_GROUP]) for op, first in firsts.items()]),
    ]  # fmt: skip
    return case(f"{title}_{t}(n) workgroup({_GROUP}) over(n)", body, given, wanted, remarks, [f"workgroup w: {t}[{count}, {_BIN_COUNT}]"])


def _in_order(t: Type, steps: Sequence[tuple[str, tuple[Number, ...]]], remarks: Sequence[str], title: str = "old_values") -> str:
    """One invocation: the old values, one after the other, of an element of each memory; and of one that is not there. A step may say its order."""
    body, olds, now = [], list[list[Number]](), 0
    for k, (spelled, operands) in enumerate(steps):
        op = spelled.partition(".")[0]
        made = [f"atomic_{spelled}({', '.join([place, *[literal(t, x) for x in operands]])})" for place in ("w[1]", "z[1]", "z[n]")]
        body += made if op == "store" else [f"y[{k}, {column}] = {text}" for column, text in enumerate(made)]
        olds.append([0, 0, 0] if op == "store" else [now, now, 0])
        if op == "load":
            pass
        elif op in ("exchange", "store"):
            now = operands[0]
        elif op == "compare_exchange":
            now = operands[1] if now == operands[0] else now
        else:
            now = _apply(t, op, now, operands[0])
    given = [Column("z", t, "n", "read_write", [0, 0])]
    wanted = [Column("y", t, f"{len(steps)}, 3", "write", olds), Column("z", t, "n", "read_write", [0, now])]
    return case(f"{title}_{t}(n) workgroup(1) over(1)", body, given, wanted, remarks, [f"workgroup w: {t}[2]"])


def _tickets(t: Type, remarks: Sequence[str]) -> str:
    """The old values of additions are all different: they add up the same in any order."""
    body = ["let i = global_id.x", "if i < n {", "  let ticket = atomic_add(counter[0], 4294967297)", "  atomic_add(seen[cast(ticket, u32)], 1)", "}"]
    given = [Column("counter", t, "1", "read_write", [0]), Column("seen", u32, "n", "read_write", [0] * 100)]
    wanted = [Column("counter", t, "1", "read_write", [100 * ((1 << 32) + 1)]), Column("seen", u32, "n", "read_write", [1] * 100)]
    return case(f"tickets_{t}(n) workgroup(32) over(n)", body, given, wanted, remarks)


# ---------------------------------------------------------------- files

_WIDE: Final = 0x0123456789ABCDEF


def _integers(t: Type) -> list[str]:
    most, least = t.maximum, t.minimum
    remarks = [f"// needs on wgpu: on {t}"]
    firsts = {"add": 100, "sub": 1 << 40, "min": 1 << 33, "max": 1 << 33, "and": -1 if t.is_signed else most, "or": 8, "xor": _WIDE}
    xs = [3, most, (1 << 33) + 5, 1, least if t.is_signed else most - 6, -7 if t.is_signed else 1 << 63, 1 << 32]
    steps: list[tuple[str, tuple[Number, ...]]] = [
        ("exchange", (5,)), ("exchange", (_WIDE,)), ("compare_exchange", (_WIDE, 1 << 35)), ("compare_exchange", (_WIDE, 11)),
        ("compare_exchange", ((1 << 36) + (1 << 35), 12)), ("add", (most,)), ("sub", (20,)), ("max", (1 << 34,)), ("min", ((1 << 33) - 1,)),
        ("load", ()), ("store", (_WIDE - 1,)), ("and", (0xFFFFFFFF0,)), ("or", (1 << 62,)), ("xor", (_WIDE,)), ("nand", (0xFF00FF00FF,)), ("add", (1,)),
    ]  # fmt: skip
    return [_in_any_order(t, "every_op", firsts, xs, remarks), _in_order(t, steps, remarks), _tickets(t, remarks)]


def _ordered(t: Type) -> str:
    """Every atomic in each of its orders, from an element that is something else each time."""
    steps = list[tuple[str, tuple[Number, ...]]]()
    rows = [row for row in ATOMICS_BY_SPELLING.values() if t in row.of and (row.order is not RELAXED or not row.writes)]
    for k, row in enumerate(rows):
        xs = tuple([number(t, str(x)) if t.is_float else x for x in (3 * k + 1, k + 2)])
        steps += [("store", xs[:1]), (row.spelling, xs[2 - row.operands :])]
    first = next(spelled for spelled, _ in steps if "." in spelled)
    return _in_order(t, steps, [f"// unsupported on wgpu: {f'on {t}' if t is f64 else f'atomic_{first}'}"], "every_order")


def _ordered_file() -> str:
    title = "Every atomic in each of its orders, in buffers and workgroup memory, which change no value that one invocation sees."
    return file_text(title, [_ordered(t) for t in (i32, u32, i64, f32, f64)])


def _integer_file() -> str:
    title = "Every atomic on i64 and u64, in buffers and workgroup memory; results that hang on no order."
    return file_text(title, [text for t in (i64, u64) for text in _integers(t)])


def _floats(t: Type, texts: Sequence[str]) -> list[Number]:
    return [FORMATS[t].nan if text == "nan" else _infinite(t, text) if text.endswith("inf") else number(t, text) for text in texts]


def _infinite(t: Type, text: str) -> Number:
    return FORMATS[t].infinity | (FORMATS[t].sign if text.startswith("-") else 0)


def _float_file() -> str:
    plain = ("0.5", "-2", "3", "1.25", "100", "-7.5", "0.25")
    special = ("-0", "nan", "0", "-0", "inf", "1", "-inf")
    in_order = (("add", "1.5"), ("max", "7"), ("add", "-2.5"), ("store", "2.5"), ("min", "-1"), ("add", "0"))
    steps: list[tuple[str, tuple[Number, ...]]] = [*[(op, (number(f32, x),)) for op, x in in_order], ("load", ())]
    one, four = number(f32, "1"), number(f32, "4")
    on_wgpu = ["// unsupported on wgpu: atomic add on f64"]
    programs = [
        _in_any_order(f32, "every_op", {"add": one, "min": four, "max": four}, _floats(f32, plain), []), _in_order(f32, steps, []),
        _in_any_order(f32, "special", {"min": 0, "max": FORMATS[f32].sign}, _floats(f32, special), [NO_SPECIALS]),
        _in_any_order(f32, "infinite", {"add": one}, _floats(f32, ("inf", "-inf", "1", "inf", "inf", "2", "2")), [NO_SPECIALS]),
        _in_any_order(f64, "every_op", {"add": number(f64, "1")}, _floats(f64, plain), on_wgpu),
        _in_order(f64, [*[("add", (number(f64, x),)) for x in ("0.1", "1e300", "-1e300")], ("store", (number(f64, "3.5"),)), ("load", ())], on_wgpu),
    ]
    return file_text("Atomics on floats, in buffers and workgroup memory: sums that are exact in any order, least and greatest.", programs)


FILES: Final[Mapping[str, Callable[[], str]]] = {"atomics_64": _integer_file, "atomics_ordered": _ordered_file, "atomics_floats": _float_file}
