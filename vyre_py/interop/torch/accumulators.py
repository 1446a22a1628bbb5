"""Reductions of Inductor: the state that one holds, how an element is taken into it, and how two states become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch._inductor import ir

from vyre_py.interop.torch.elementwise import extreme
from vyre_py.interop.torch.terms import literal
from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.errors import Unsupported

__all__ = ["Fold", "fold_of"]

Let = Callable[[str, Any], str]  # makes a named value of an expression and its dtype
State = Sequence[str]
Combine = Callable[[Let, State, State], list[str]]
_LAST: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Fold:
    """A reduction. `take` takes an element, `combine` another state; `gather` makes a state of several elements, where that is less work than to take them
    one by one; `subgroup` is the language's own reduction of a subgroup, where it means the same."""

    dtypes: Sequence[Any]
    starts: Sequence[str]
    take: Combine
    combine: Combine
    subgroup: str = ""
    gather: Callable[[Let, Sequence[State]], list[str]] | None = None


def _plain(kind: str, dtype: Any) -> Combine:
    marks = {"sum": "+", "prod": "*", "xor_sum": "^", "any": "||"}

    def combine(_: Let, a: State, b: State) -> list[str]:
        if kind in marks:
            return [f"{a[0]} {marks[kind]} {b[0]}"]
        return [extreme(">" if kind == "max" else "<", dtype, a[0], b[0])]

    return combine


def _place(mark: str, dtype: Any) -> Combine:
    """The greatest or least value and where it is: the first of equal ones, a NaN before all numbers."""

    def combine(let: Let, a: State, b: State) -> list[str]:
        if dtype.is_floating_point:
            better = f"{b[0]} {mark} {a[0]} || (is_nan({b[0]}) && !is_nan({a[0]}))"
            same = f"{b[0]} == {a[0]} || (is_nan({b[0]}) && is_nan({a[0]}))"
        elif dtype is torch.bool:
            better = f"{b[0]} && !{a[0]}" if mark == ">" else f"!{b[0]} && {a[0]}"
            same = f"{b[0]} == {a[0]}"
        else:
            better, same = f"{b[0]} {mark} {a[0]}", f"{b[0]} == {a[0]}"
        chosen = let(f"{better} || (({same}) && {b[1]} < {a[1]})", torch.bool)
        return [f"select({chosen}, {new}, {old})" for new, old in zip(b, a, strict=True)]

    return combine


def _welford_take(dtype: Any) -> Combine:
    """B. P. Welford's update of mean, sum of squared differences and count (1962)."""

    def take(let: Let, state: State, element: State) -> list[str]:
        mean, squares, count = state
        more = let(f"{count} + {literal(1, dtype)}", dtype)
        before = let(f"{element[0]} - {mean}", dtype)
        new = let(f"{mean} + {before} / {more}", dtype)
        return [new, f"{squares} + {before} * ({element[0]} - {new})", more]

    return take


def _welford_combine(dtype: Any) -> Combine:
    """T. F. Chan, G. H. Golub and R. J. LeVeque's sum of two such states (1979)."""

    def combine(let: Let, a: State, b: State) -> list[str]:
        count = let(f"{a[2]} + {b[2]}", dtype)
        share = let(f"select({count} == {literal(0, dtype)}, {literal(0, dtype)}, {b[2]} / {count})", dtype)
        apart = let(f"{b[0]} - {a[0]}", dtype)
        return [f"{a[0]} + {apart} * {share}", f"{a[1]} + {b[1]} + {apart} * {apart} * {a[2]} * {share}", count]

    return combine


def _welford_gather(dtype: Any) -> Callable[[Let, Sequence[State]], list[str]]:
    """Their mean, and the sum of squares of what they differ from it by."""

    def gather(let: Let, elements: Sequence[State]) -> list[str]:
        count = literal(len(elements), dtype)
        mean = let(f"({total(let, [element[0] for element in elements])}) / {count}", dtype)
        apart = [let(f"{element[0]} - {mean}", dtype) for element in elements]
        return [mean, total(let, [let(f"{part} * {part}", dtype) for part in apart]), count]

    def total(let: Let, terms: Sequence[str]) -> str:
        while len(terms) > 1:
            terms = [let(f"{a} + {b}", dtype) for a, b in zip(terms[::2], terms[1::2], strict=False)] + list(terms[len(terms) - len(terms) % 2 :])
        return terms[0]

    return gather


_SUBGROUP: Final = {"sum": "add", "prod": "mul", "xor_sum": "xor", "any": "or"}


def fold_of(kind: str, dtype: Any) -> Fold:
    """The reduction of a kind, of values of a dtype. Raises Unsupported for a kind that is none of these."""
    if kind in ("argmax", "argmin"):
        start = ir.Reduction.default_accumulator(kind, dtype)
        combine = _place(">" if kind == "argmax" else "<", dtype)
        return Fold((dtype, torch.int64), (literal(start, dtype), literal(_LAST, torch.int64)), combine, combine)
    if kind in ("welford_reduce", "welford_combine"):
        combine = _welford_combine(dtype)
        if kind == "welford_combine":
            return Fold((dtype,) * 3, (literal(0, dtype),) * 3, combine, combine)
        return Fold((dtype,) * 3, (literal(0, dtype),) * 3, _welford_take(dtype), combine, gather=_welford_gather(dtype))
    if kind not in ("sum", "prod", "xor_sum", "any", "max", "min"):
        raise Unsupported("the backend vyre", [f"the reduction {kind}"])
    combine = _plain(kind, dtype)
    subgroup = _SUBGROUP.get(kind, kind if not dtype.is_floating_point and dtype is not torch.bool else "")
    return Fold((dtype,), (literal(ir.Reduction.default_accumulator(kind, dtype), dtype),), combine, combine, subgroup)
