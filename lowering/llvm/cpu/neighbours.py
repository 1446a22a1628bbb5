"""Neighbouring workgroups along x, which run together, row by row, along which memory lies; and runs of chunks that all lie inside, of which nothing is
asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vyre_py.ir.language.nodes import For, Loop
from vyre_py.lowering.llvm.cpu.masks import Control, Frame
from vyre_py.lowering.llvm.cpu.memory import Memories
from vyre_py.lowering.llvm.cpu.plan.interior import Interior, find_interior, goes_along_rows
from vyre_py.lowering.llvm.cpu.plan.regions import BarrierFreeRegion

__all__ = ["Neighbours"]

# Chunks along a row run together so many lanes at most, in which indices grow by less than 2^31; no fewer workgroups, since where they begin and end is looked
# for first; and no more statements than these, which are written once more for it.
_LONGEST_RUN: Final = 1 << 17
_SHORTEST_RUN: Final = 4
_LONGEST_IN_RUNS: Final = 64


class Neighbours:
    """The neighbours of a kernel's workgroups. `alone` says that chunks at a border are left to a function of their own; `region` writes a loop over the chunks
    of a region, and `run` a call of the function that runs the chunks of all workgroups from one to before another, which lie inside."""

    def __init__(
        self, memories: Memories, control: Control, alone: bool, region: Callable[[BarrierFreeRegion, str, str], None], run: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self.memories, self.state, self.w, self.control = memories, memories.state, memories.w, control
        self.alone, self.region, self.run = alone, region, run

    def has_rows(self) -> bool:
        """Whether a workgroup has rows of whole chunks, and no order among them."""
        state, sizes = self.state, self.state.program.workgroup
        if len(state.plan.regions) != 1 or state.width == 1 or not self.alone or sizes[0] % state.width or not goes_along_rows(state.program):
            return False
        return sizes[1] * sizes[2] > 1 or self._may_run()

    def _may_run(self) -> bool:
        """Whether the body is short enough to be written once more, for runs, and has no loop, beside which tests of chunks cost nothing."""
        body = self.state.program.body
        return len(body) <= _LONGEST_IN_RUNS and not any(isinstance(s, (For, Loop)) for s in body)

    def rows(self, now: str) -> str:
        """Runs neighbouring workgroups from `now` on row by row, along which memory lies; gives how many."""
        w, state, first = self.w, self.state, self.state.groups["workgroup_id.x"]
        left = w.let(f"sub i32 %nx, {first}")
        left = w.call("i32", "llvm.umin.i32", ("i32", left), ("i32", str(_LONGEST_RUN // state.program.workgroup[0])))
        rest = w.call("i64", "llvm.umin.i64", ("i64", w.let(f"sub i64 %end, {now}")), ("i64", w.let(f"zext i32 {left} to i64")))
        many = w.let(f"trunc i64 {rest} to i32")
        self.control.frames.append(Frame(len(state.program.body), None, "", True, True))
        (region,) = state.plan.regions.values()
        row, place = w.local("i64"), w.local("i32")
        w.line(f"store i64 0, ptr {row}")
        rows, groups, ran = w.label("row"), w.label("groups"), w.label("rowran")
        w.block(rows)
        chunk = w.let(f"load i64, ptr {row}")
        end = w.let(f"add i64 {chunk}, {state.program.workgroup[0] // state.width}")
        state.row = self.row_places(chunk)
        low, high = self._run_of_row(region, chunk, first, many)
        begin = w.let(f"select i1 {w.let(f'icmp eq i32 {low}, 0')}, i32 {high}, i32 0")
        w.line(f"store i32 {begin}, ptr {place}")
        w.branch(w.let(f"icmp ult i32 {begin}, {many}"), groups, ran)
        w.block(groups)
        number = w.let(f"load i32, ptr {place}")
        state.groups["workgroup_id.x"] = w.let(f"add i32 {first}, {number}")
        self.region(region, chunk, end)
        more = w.let(f"add i32 {number}, 1")
        if low != high:
            more = w.let(f"select i1 {w.let(f'icmp eq i32 {more}, {low}')}, i32 {high}, i32 {more}")
        w.line(f"store i32 {more}, ptr {place}")
        w.end(f"br i1 {w.let(f'icmp ult i32 {more}, {many}')}, label %{groups}, label %{ran}, !llvm.loop !0")
        w.block(ran)
        w.line(f"store i64 {end}, ptr {row}")
        leave = w.label("rowsran")
        w.end(f"br i1 {w.let(f'icmp ult i64 {end}, {state.chunks}')}, label %{rows}, label %{leave}, !llvm.loop !0")
        w.block(leave)
        state.groups["workgroup_id.x"], state.row = first, None
        return many

    def at(self, region: BarrierFreeRegion, group: str, chunk: str) -> Interior | None:
        """Goes to a chunk of a workgroup along x; gives what holds there where it lies inside."""
        state, w = self.state, self.w
        state.groups["workgroup_id.x"], state.region, state.chunk = group, region, chunk
        state.base = w.let(f"mul i32 {w.let(f'trunc i64 {chunk} to i32')}, {state.width}")
        return find_interior(self.memories, region)

    def _run_of_row(self, region: BarrierFreeRegion, chunk: str, first: str, many: str) -> tuple[str, str]:
        """Runs workgroups of a row, from a chunk on, whose chunks all lie inside. Gives the first of them, 0 or 1, and the one behind them: 0 and 0 where
        a row is short, where not all in the middle lie inside, or where the first chunk and the last do not tell."""
        w, state = self.w, self.state
        if not self._may_run():
            return "0", "0"
        begin = self.at(region, first, chunk)
        if begin is None or begin.seldom or begin.ends is None:
            return "0", "0"
        places = [w.local("i32"), w.local("i32")]
        for place in places:
            w.line(f"store i32 0, ptr {place}")
        long, some, found = w.label("long"), w.label("some"), w.label("found")
        w.branch(w.let(f"icmp uge i32 {many}, {_SHORTEST_RUN}"), long, found)
        w.block(long)
        low, high, holds = self._ends_of_run(region, chunk, first, many)
        w.branch(holds, some, found)
        w.block(some)
        for place, end in zip(places, (low, high), strict=True):
            w.line(f"store i32 {end}, ptr {place}")
        state.groups["workgroup_id.x"], state.chunk = first, chunk
        self.run(low, high)
        w.block(found)
        low, high = [w.let(f"load i32, ptr {place}") for place in places]
        return low, high

    def _ends_of_run(self, region: BarrierFreeRegion, chunk: str, first: str, many: str) -> tuple[str, str, str]:
        """Leaves out the first and the last workgroup where they do not lie inside, and looks at the ends of the others; gives whether all inside are."""
        w, each = self.w, self.state.program.workgroup[0] // self.state.width
        last = w.let(f"add i64 {chunk}, {each - 1}")

        def at(number: str, place: str) -> Interior:
            found = self.at(region, w.let(f"add i32 {first}, {number}"), place)
            assert found is not None  # it is of the same statements
            return found

        low = w.let(f"select i1 {at('0', chunk).condition}, i32 0, i32 1")
        left_out = w.let(f"select i1 {at(w.let(f'sub i32 {many}, 1'), last).condition}, i32 0, i32 1")
        high = w.let(f"sub i32 {many}, {left_out}")
        begin, end = at(low, chunk), at(w.let(f"sub i32 {high}, 1"), last)
        assert begin.ends is not None and end.ends is not None
        holds = w.let(f"and i1 {begin.condition}, {end.condition}")
        for (one, signed), (other, _) in zip(begin.ends, end.ends, strict=True):
            order = "sge" if signed else "uge"
            holds = w.let(f"and i1 {holds}, {w.let(f'icmp {order} i32 {other}, {one}')}")
        return low, high, holds

    def row_places(self, chunk: str) -> tuple[str, str, str]:
        """Where a row begins that begins with a chunk: its local index, and its places along y and z."""
        w, (x, y, _) = self.w, self.state.program.workgroup
        first = w.let(f"mul i32 {w.let(f'trunc i64 {chunk} to i32')}, {self.state.width}")
        row = w.let(f"udiv i32 {first}, {x}")
        return first, w.let(f"urem i32 {row}, {y}"), w.let(f"udiv i32 {row}, {y}")
