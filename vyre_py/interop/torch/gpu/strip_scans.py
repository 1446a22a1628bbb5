"""Scans over strips: each element folded with all before it, within a strip, then strips within a subgroup, then subgroups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vyre_py.interop.torch.gpu.strips import SUBGROUP

__all__ = ["StripScan"]


class StripScan:
    """The lines of one scan: `begin` once, then `whole` for each element of the strip."""

    def __init__(
        self, let: Callable[[str, Any], str], write: Callable[[str], object], combined: Callable[[Sequence[str], Sequence[str]], list[str]],
        array: Callable[[Any, int], str], dtypes: Sequence[Any], lanes: int,
    ) -> None:  # fmt: skip
        """`let` names what a text computes, `write` writes a line, `combined` names what two states come to, and `array` declares an array of a dtype in
        workgroup memory. A state has a value of each of `dtypes`; a row has so many `lanes`."""
        self._let, self._write, self._combined, self._array, self._dtypes, self._lanes = let, write, combined, array, dtypes, lanes
        self._strip: list[Sequence[str]] = []
        self._before: list[str] = []  # all strips before
        self._later = ""  # whether there are any

    def _joined(self, before: Sequence[str], after: Sequence[str], where: str = "true") -> list[str]:
        """Both folded where something is true, the latter elsewhere."""
        both = self._combined(before, after)
        return both if where == "true" else [self._let(f"select({where}, {new}, {old})", None) for new, old in zip(both, after, strict=True)]

    def _over_subgroup(self, state: Sequence[str]) -> Sequence[str]:
        let, step = self._let, 1
        while step < SUBGROUP:
            state = self._joined([let(f"subgroup_shuffle_up({name}, {step})", None) for name in state], state, let(f"subgroup_lane >= {step}", None))
            step *= 2
        return state

    def begin(self, strip: Sequence[Sequence[str]]) -> None:
        """Folds each strip, given by the states of its elements, and the strips before it."""
        let, self._strip = self._let, list(strip)
        for number in range(1, len(self._strip)):
            self._strip[number] = self._joined(self._strip[number - 1], self._strip[number])
        state = self._over_subgroup(self._strip[-1])
        before, is_first = [let(f"subgroup_shuffle_up({name}, 1)", None) for name in state], let("subgroup_lane == 0", None)
        if (count := self._lanes // SUBGROUP) > 1:
            arrays = [self._array(dtype, count) for dtype in self._dtypes]
            stores = "".join(f"{array}[subgroup_id] = {name}\n" for array, name in zip(arrays, state, strict=True))
            self._write(f"if subgroup_lane == {SUBGROUP - 1} {{\n{stores}}}")
            self._write("barrier")
            all_of_them = self._over_subgroup([let(f"{array}[subgroup_lane]", None) for array in arrays])
            others = [let(f"subgroup_shuffle({name}, subgroup_id - 1)", None) for name in all_of_them]
            within = self._joined(others, before, let("subgroup_id > 0", None))
            before = [let(f"select({is_first}, {other}, {own})", None) for other, own in zip(others, within, strict=True)]
            is_first = let("local_index == 0", None)
        self._before, self._later = before, let(f"!{is_first}", None)

    def whole(self, number: int) -> list[str]:
        """What an element of the strip and all before it come to."""
        return self._joined(self._before, self._strip[number], self._later)
