"""Additions by index that need no atomics: where the elements along a loop's last axis lie in columns of their own, whatever an index says.

An invocation then owns a column, and goes through the rows one after the other: in order, so that sums have the same bits in every run. On a GPU there are
seldom columns enough to keep it busy, and atomics are quick: there additions by index come in any order, as PyTorch's own do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import sympy
from torch._inductor.loop_body import MemoryUsageType

__all__ = ["rows_and_columns"]

_FEW: Final = 8  # columns: fewer leave cores and lanes idle


def _columns(index: Any, last: Any, count: Any) -> bool:
    """Whether two places of an index are apart wherever the last of its axes differs: all else in it moves by whole rows."""
    index = sympy.expand(index)
    stride = index.coeff(last)
    rest = index - stride * last
    if not (isinstance(stride, sympy.Integer) and stride > 0) or last in rest.free_symbols:
        return False
    moves = [term.as_coeff_Mul()[0] for term in sympy.Add.make_args(rest) if not term.is_number]
    return all(move.is_integer and move % (stride * count) == 0 for move in moves)


def rows_and_columns(nodes: Iterable[Any]) -> Sequence[Any]:
    """How many rows and columns the loops have, if all of their additions by index own columns; nothing where they do not, or there are none."""
    found: set[tuple[Any, Any]] = set()
    for node in nodes:
        if node.get_device().type != "cpu":
            return ()
        body = node._body
        for entry in body.memory_usage[MemoryUsageType.STORE]:
            if entry.mode != "atomic_add":
                continue
            *rows, last = body.iter_vars or [None]
            count = body.var_ranges.get(last)
            if not rows or not isinstance(count, sympy.Integer) or count < _FEW or not _columns(body.indexing_exprs[entry.index_name], last, count):
                return ()
            found.add((sympy.Mul(*[body.var_ranges[row] for row in rows]), count))
    return found.pop() if len(found) == 1 else ()
