"""Persistent kernels: as many workgroups as the device holds at once, each of which walks through workgroups of the grid that was asked for.

The kernel of a workgroup becomes a function of its place, inlined into the walk. The body gets the grid from hidden arguments, since the launched grid is
one row of workgroups. Where it is to be read from memory when the launch begins, one invocation of each of those that walk reads it, and tells the others:
so their turns are as many whatever writes there meanwhile, and barriers are met by all. A grid that no launch may have has no workgroups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from vyre_py.ir.language.dims import WORD_LIMIT
from vyre_py.lowering.llvm.gpu.async_copies import wait
from vyre_py.lowering.llvm.gpu.dependent import let_next_begin, wait_for_earlier
from vyre_py.lowering.llvm.gpu.interrupt.checks import ACCOUNT, STRIP, Watch
from vyre_py.lowering.llvm.text import ModuleText, Writer

__all__ = ["GROUPS", "PLACES", "ReadGrid", "body_parameters", "split", "write_walk"]

# The names of the workgroup's place along x, y, z in the body's function, whose last parameters they are.
PLACES: Final = ("%group.x", "%group.y", "%group.z")

# The names of the grid's size in a body that gets it from the walk; they come before the place.
GROUPS: Final = ("%groups.x", "%groups.y", "%groups.z")

# The most workgroups along x, y, z of a launch on any GPU.
_MOST_GROUPS: Final = (2**31 - 1, 65535, 65535)

# What a place counts for in the account, however little is done there.
_TURN: Final = STRIP >> 6

_Places = tuple[str, str, str]


class ReadGrid(NamedTuple):
    """A grid that is read from memory: the `address` of three u32, where in workgroup memory they are `told`, and the size of a workgroup."""

    address: str
    told: str
    workgroup: tuple[int, int, int]

    def begin(self, w: Writer) -> list[str]:
        """Reads the grid, and ends where there is nothing to run; gives its size along x, y, z, the same for all invocations of a workgroup."""
        groups = self._read(w)
        some, none = w.label("some"), w.label("none")
        w.branch(self._is_some(w, groups), some, none)
        w.block(none)
        w.end("ret void")
        w.block(some)
        return groups

    def _read(self, w: Writer) -> list[str]:
        tell, told = w.label("tell"), w.label("told")
        place = w.call("i32", "llvm.nvvm.read.ptx.sreg.tid.x")
        for axis in "yz":
            place = w.let(f"or i32 {place}, {w.call('i32', f'llvm.nvvm.read.ptx.sreg.tid.{axis}')}")
        rooms = [w.let(f"getelementptr i32, ptr addrspace(3) {self.told}, i64 {axis}") for axis in range(3)]
        w.branch(w.let(f"icmp eq i32 {place}, 0"), tell, told)
        w.block(tell)
        for number, room in enumerate(rooms):
            word = w.let(f"getelementptr i32, ptr addrspace(1) {self.address}, i64 {number}")
            w.line(f"store i32 {w.let(f'load i32, ptr addrspace(1) {word}, align 4')}, ptr addrspace(3) {room}, align 4")
        w.jump(told)
        w.block(told)
        w.run("llvm.nvvm.barrier0")
        return [w.let(f"freeze i32 {w.let(f'load i32, ptr addrspace(3) {room}, align 4')}") for room in rooms]

    def _is_some(self, w: Writer, groups: Sequence[str]) -> str:
        """Whether a launch may have such a grid, and there is something to run."""
        found = ""
        for count, most, size in zip(groups, _MOST_GROUPS, self.workgroup, strict=True):
            before = w.let(f"sub i32 {count}, 1")
            fits = w.let(f"icmp ult i32 {before}, {min(most, (WORD_LIMIT - 1) // size)}")
            found = w.let(f"and i1 {found}, {fits}") if found else fits
        return found


def split(w: Writer, number: str, groups: Sequence[str]) -> _Places:
    """A number of workgroups as steps along x, y and z of the grid: its digits, where an axis is the base of its digit."""
    rows = w.let(f"udiv i32 {number}, {groups[0]}")
    return w.let(f"urem i32 {number}, {groups[0]}"), w.let(f"urem i32 {rows}, {groups[1]}"), w.let(f"udiv i32 {rows}, {groups[1]}")


def _add(w: Writer, place: str, step: str, size: str) -> tuple[str, str]:
    """The digit `place + step` in base `size`, and whether there is a carry. Nothing wraps: `place` is below `size`, `step` no more than that."""
    room = w.let(f"sub i32 {size}, {step}")
    carry = w.let(f"icmp uge i32 {place}, {room}")
    over, plain = w.let(f"sub i32 {place}, {room}"), w.let(f"add i32 {place}, {step}")
    return w.let(f"select i1 {carry}, i32 {over}, i32 {plain}"), carry


def body_parameters(arguments: Sequence[tuple[str, str]], flag: str, *, read: bool = False) -> str:
    """The parameters of the body's function: the kernel's own (type, name) `arguments`, its account where it looks at a `flag`, the grid's size where that is
    `read`, the place."""
    hidden = [*[("ptr", name) for name in ACCOUNT if flag], *[("i32", name) for name in (*(GROUPS if read else ()), *PLACES)]]
    return ", ".join(f"{type_} {name}" for type_, name in [*arguments, *hidden])


def write_walk(
    module: ModuleText, body: str, arguments: Sequence[tuple[str, str]], grid: Sequence[str] | ReadGrid, *, flag: str, clears: bool, copies: bool,
    dependent: bool,
) -> Writer:  # fmt: skip
    """Writes a kernel that calls the function `body` with the (type, name) `arguments` and the place, for every place that is this workgroup's;
    gives the writer, to be finished. `grid` names the grid's size along x, y, z, none of it zero, or reads it.

    A body that `clears` workgroup memory finds that all invocations have done with the place before, and so have the `copies` that they began. Sums of
    places are made digit by digit, so that a step takes no division, and a grid may have more than 2^32 workgroups.
    """
    w = Writer(module)
    if dependent:
        let_next_begin(w)
        wait_for_earlier(w)
    watch = Watch(w, flag) if flag else None
    if watch is not None:
        watch.begin()
        watch.hear(watch.ask())
    visit, following, done = w.label("visit"), w.label("following"), w.label("done")
    told = grid.begin(w) if isinstance(grid, ReadGrid) else []
    groups = grid if not isinstance(grid, ReadGrid) else told
    first = split(w, w.call("i32", "llvm.nvvm.read.ptx.sreg.ctaid.x"), groups)
    steps = split(w, w.call("i32", "llvm.nvvm.read.ptx.sreg.nctaid.x"), groups)
    places = [w.local("i32") for _ in PLACES]
    for place, start in zip(places, first, strict=True):
        w.line(f"store i32 {start}, ptr {place}")
    w.branch(w.let(f"icmp ult i32 {first[2]}, {groups[2]}"), visit, done)
    w.block(visit)
    x, y, z = [w.let(f"load i32, ptr {place}") for place in places]
    account = [("ptr", name) for name in watch.account] if watch is not None else []
    given = [*arguments, *account, *[("i32", place) for place in (*told, x, y, z)]]
    w.line(f"call void @{body}({', '.join(f'{type_} {name}' for type_, name in given)})")
    if copies:
        wait(w, 0)
    if watch is not None:
        watch.spend(str(_TURN))
        watch.check()
    (x, y, z), more = _step(w, (x, y, z), steps, groups)
    w.branch(more, following, done)
    w.block(following)
    for place, value in zip(places, (x, y, z), strict=True):
        w.line(f"store i32 {value}, ptr {place}")
    if clears:
        w.run("llvm.nvvm.barrier0")
    w.jump(visit)
    w.block(done)
    w.end("ret void")
    return w


def _step(w: Writer, place: _Places, steps: _Places, groups: Sequence[str]) -> tuple[_Places, str]:
    """The next place, and whether there is one."""
    x, carry = _add(w, place[0], steps[0], groups[0])
    rows = w.let(f"add i32 {steps[1]}, {w.let(f'zext i1 {carry} to i32')}")
    y, carry = _add(w, place[1], rows, groups[1])
    layers = w.let(f"add i32 {steps[2]}, {w.let(f'zext i1 {carry} to i32')}")
    left = w.let(f"sub i32 {groups[2]}, {place[2]}")
    return (x, y, w.let(f"add i32 {place[2]}, {layers}")), w.let(f"icmp ult i32 {layers}, {left}")
