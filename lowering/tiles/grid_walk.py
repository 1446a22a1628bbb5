"""Where workgroups are in the grid: in bands of rows, and from place to place where fewer are launched than the grid has.

Those that walk are as many as run at once. Each computes the places whose numbers are its own, and those on by as many as are launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vyre_py.ir.language.nodes import Atom, Let, Value
from vyre_py.ir.language.ops import LAUNCHED
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.exchange import Exchanger

__all__ = ["GridWalk", "in_bands", "walks_grid"]

_BAND: Final = 8  # rows of the grid


def walks_grid(program: Program) -> bool:
    """Whether the Program was made for workgroups that walk through the grid by themselves."""
    return any(isinstance(s, Let) and s.op is LAUNCHED for s in program.body)


def in_bands(x: Exchanger, column: Atom, row: Atom) -> dict[str, Atom]:
    """The workgroup's place along x and y, by query, for the one that was launched at a column and row of the grid: in an order in which workgroups that run at
    once share more of what they load, down several rows of the grid, then on to the next column of these."""
    m = x.m
    first = m("and", row, 0xFFFFFFFF - (_BAND - 1))
    rows, within = m("min", m("sub", m("num_workgroups.y"), first), word(_BAND)), m("add", m("mul", m("and", row, _BAND - 1), m("num_workgroups.x")), column)
    across, down = x.var(u32, m("shr", within, _BAND.bit_length() - 1)), x.var(u32, m("and", within, _BAND - 1))
    x.if_(m("lt", rows, word(_BAND)))  # no other rows than the last ones take divisions
    x.set(across, m("div", within, rows))
    x.set(down, m("rem", within, rows))
    x.end()
    return {"workgroup_id.x": x.get(across), "workgroup_id.y": m("add", first, x.get(down))}


class GridWalk:
    """Writes walks of a Program of invocations that is being made, all from the same place by the same steps."""

    def __init__(self, x: Exchanger) -> None:
        self._x, m = x, x.m
        self._grid = [m(f"num_workgroups.{axis}") for axis in "xyz"]
        self._first, self._steps = self._digits(m("workgroup_id.x")), self._digits(x.let(LAUNCHED, ()))

    def _digits(self, number: Atom) -> list[Atom]:
        """A number of workgroups as steps along x, y and z of the grid: sums are made digit by digit, so that a step takes no division."""
        m, (across, down, _) = self._x.m, self._grid
        rows = m("div", number, across)
        return [m("rem", number, across), m("rem", rows, down), m("div", rows, down)]

    def begin(self) -> dict[str, Atom]:
        """Begins a walk; gives the place at hand, by query."""
        x, m = self._x, self._x.m
        self._at = [x.var(u32, digit) for digit in self._first]
        self._next: Sequence[Atom] = ()
        x.loop()
        self._here: Sequence[Atom] = [x.get(digit) for digit in self._at]
        x.if_(m("ge", self._here[2], self._grid[2]))
        x.break_()
        x.end()
        return self._place(self._here)

    def following(self) -> tuple[dict[str, Atom], Value]:
        """The next place, by query, and whether there is one."""
        self._next = self._onward()
        return self._place(self._next), self._x.m("lt", self._next[2], self._grid[2])

    def _place(self, digits: Sequence[Atom]) -> dict[str, Atom]:
        return {**in_bands(self._x, digits[0], digits[1]), "workgroup_id.z": digits[2]}

    def _onward(self) -> Sequence[Atom]:
        """The digits of the next place; past the last layer if there is none."""
        m, digits = self._x.m, list(self._here)
        carry: Atom = word(0)
        for axis in range(2):
            step: Atom = m("add", self._steps[axis], carry)
            room = m("sub", self._grid[axis], step)
            over = m("ge", digits[axis], room)
            digits[axis] = m("select", over, m("sub", digits[axis], room), m("add", digits[axis], step))
            carry = m("select", over, word(1), word(0))
        digits[2] = m("add", m("add", digits[2], self._steps[2]), carry)
        return digits

    def end(self) -> None:
        """Goes on to the next place, if there is one, and ends the walk otherwise."""
        x = self._x
        for variable, digit in zip(self._at, self._next or self._onward(), strict=True):
            x.set(variable, digit)
        x.end()
