"""Scans over the grid on NVIDIA GPUs: tickets and decoupled look-back (D. Merrill and M. Garland, "Single-pass parallel prefix scan with decoupled
look-back", NVIDIA technical report NVR-2016-002).

A workgroup's number is its ticket. Tickets are taken in the order in which workgroups start, so each waits only for workgroups that run. It publishes its
value, then goes back over those before it, a warp's width at a time, and folds what they have published: their values, up to one that has published its whole
prefix. Then it publishes its own.

The memory of a launch, words of 64 bits, begins as zeros, also where another launch had it before. The first holds the tickets that were taken, and above
them the number of the run, or epoch: whoever takes the last ticket adds one to the epoch and takes the tickets back. Columns of a word for each workgroup
follow. A scan of 32 bits has one, of {epoch, flag, value}: one relaxed access reads all of them, and words of earlier runs have another epoch, so nothing needs
a reset between runs. A scan of 64 bits has three: {epoch, flag}, the values, the prefixes. There fences order them, by the pattern of the PTX memory model
(fence, relaxed store; relaxed load, fence).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from vyre_py.ir.language.nodes import GridScan, const
from vyre_py.ir.language.ops import GRID_FOLDS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type
from vyre_py.lowering.llvm.gpu.fast import NVPTX_EMITTERS
from vyre_py.lowering.llvm.gpu.grid_barrier import DEVICE, registers
from vyre_py.lowering.llvm.gpu.persistent import split
from vyre_py.lowering.llvm.gpu.warps import WARP, joined, pieces
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import literal, llvm_type

__all__ = ["GridScans", "columns_of"]

_VALUE, _PREFIX = 1, 2  # what a workgroup has published
_FLAG_AT, _EPOCH_AT = 32, 34  # the bits from which on they stand in a word


def columns_of(program: Program) -> int:
    """How many words each workgroup has for the scans of a Program."""
    return sum([_columns(s) for s in program.body if isinstance(s, GridScan)])


def _columns(s: GridScan) -> int:
    return 1 if s.bound.type.bits <= _FLAG_AT else 3


class GridScans:
    """Writes the tickets and the scans of one kernel. `words` points to the launch's memory, `told` to 16 bytes of workgroup memory in which one invocation
    tells the others what it found: whoever does so next stands behind a barrier. `local_index` writes the number of the invocation in its workgroup, `barrier`
    a barrier of that, `pause` what is done each time that an invocation has looked in vain."""

    def __init__(
        self, w: Writer, program: Program, words: str, told: str, local_index: Callable[[], str], barrier: Callable[[], None], pause: Callable[[], None]
    ) -> None:
        self.w, self._words, self._told = w, words, told
        self._local_index, self._barrier, self._pause = local_index, barrier, pause
        self._window = WARP if prod(program.workgroup) >= WARP else 1
        scans = [s for s in program.body if isinstance(s, GridScan)]
        self._first = {s: sum(map(_columns, scans[:k])) for k, s in enumerate(scans)}
        self._groups = self._ticket = self._own = self._tag = ""

    # ---- tickets

    def begin(self) -> tuple[str, str, str]:
        """Takes the workgroup's ticket; gives its place along x, y and z. Nothing in front of it may end an invocation."""
        w = self.w
        take, last, tell, known, beyond, within = [w.label(name) for name in ("take", "last", "tell", "ticket", "beyond", "within")]
        groups = registers(w, "nctaid", "mul")
        self._groups = w.let(f"zext i32 {groups} to i64")
        w.branch(w.let(f"icmp eq i32 {self._local_index()}, 0"), take, known)
        w.block(take)
        found = self._add("1")
        w.branch(w.let(f"icmp eq i32 {w.let(f'add i32 {self._low(found)}, 1')}, {groups}"), last, tell)
        w.block(last)
        self._add(w.let(f"sub i64 {1 << _FLAG_AT}, {self._groups}"))
        w.block(tell)
        w.line(f"store i64 {found}, ptr addrspace(3) {self._told}, align 8")
        w.block(known)
        self._barrier()
        found = w.let(f"load i64, ptr addrspace(3) {self._told}, align 8")
        self._ticket = self._low(found)
        # Runs of one launch that overlap, which is forbidden, take more tickets than there are words.
        w.branch(w.let(f"icmp ult i32 {self._ticket}, {groups}"), within, beyond)
        w.block(beyond)
        w.end("ret void")
        w.block(within)
        self._own = w.let(f"zext i32 {self._ticket} to i64")
        self._tag = w.let(f"shl i64 {self._high(found)}, {_EPOCH_AT}")
        return split(w, self._ticket, [w.call("i32", f"llvm.nvvm.read.ptx.sreg.nctaid.{axis}") for axis in "xyz"])

    def _add(self, what: str) -> str:
        return self.w.let(f"atomicrmw add ptr addrspace(1) {self._words}, i64 {what} {DEVICE} monotonic, align 8")

    def _low(self, word: str) -> str:
        return self.w.let(f"trunc i64 {word} to i32")

    def _high(self, word: str) -> str:
        return self.w.let(f"lshr i64 {word}, {_FLAG_AT}")

    # ---- scans

    def scan(self, s: GridScan, x: str) -> str:
        """What the workgroups before this one come to, whose own value is `x`."""
        w, type_ = self.w, llvm_type(s.bound.type)
        search, found = w.label("search"), w.label("found")
        self._barrier()
        lane = self._local_index()
        w.branch(w.let(f"icmp ult i32 {lane}, {self._window}"), search, found)
        w.block(search)
        self._publish(s, lane, x, _VALUE)
        before = self._look_back(s, lane)
        self._publish(s, lane, _folded(w, s, before, x), _PREFIX)
        w.line(f"store {type_} {before}, ptr addrspace(3) {self._told}, align 8")  # all of them the same
        w.block(found)
        self._barrier()
        return w.let(f"freeze {type_} {w.let(f'load {type_}, ptr addrspace(3) {self._told}, align 8')}")

    def _place(self, column: int, number: str) -> str:
        """The typed pointer to a workgroup's word (i64 `number`) in a column."""
        w = self.w
        at = w.let(f"add i64 {w.let(f'mul i64 {self._groups}, {column}')}, {w.let(f'add i64 {number}, 1')}")
        return f"ptr addrspace(1) {w.let(f'getelementptr i64, ptr addrspace(1) {self._words}, i64 {at}')}"

    def _load(self, place: str) -> str:
        return self.w.let(f"load atomic i64, {place} {DEVICE} monotonic, align 8")

    def _store(self, word: str, place: str) -> None:
        self.w.line(f"store atomic i64 {word}, {place} {DEVICE} monotonic, align 8")

    def _publish(self, s: GridScan, lane: str, value: str, flag: int) -> None:
        """One lane says what the workgroup has."""
        w, column = self.w, self._first[s]
        publish, on = w.label("publish"), w.label("published")
        w.branch(w.let(f"icmp eq i32 {lane}, 0"), publish, on)
        w.block(publish)
        word, bits = w.let(f"or i64 {self._tag}, {flag << _FLAG_AT}"), _bits(w, s.bound.type, value)
        if _columns(s) > 1:
            self._store(bits, self._place(column + flag, self._own))
            w.line(f"fence {DEVICE} acq_rel")
        else:
            word = w.let(f"or i64 {word}, {w.let(f'zext i32 {bits} to i64')}")
        self._store(word, self._place(column, self._own))
        w.block(on)

    def _look_back(self, s: GridScan, lane: str) -> str:
        """The fold of all that is before the workgroup, by `_window` lanes: each looks at one workgroup at a time."""
        w, column, type_ = self.w, self._first[s], llvm_type(s.bound.type)
        identity = literal(const(s.bound.type, GRID_FOLDS[s.fold].identity(s.bound.type)))
        left, folded = w.local("i32"), w.local(type_)
        w.line(f"store i32 {self._ticket}, ptr {left}")
        w.line(f"store {type_} {identity}, ptr {folded}")
        look, again, vain, seen, further, done = [w.label(name) for name in ("look", "again", "vain", "seen", "further", "done")]
        w.block(look)
        behind = w.let(f"load i32, ptr {left}")
        outside = w.let(f"icmp ule i32 {behind}, {lane}")  # there are no more
        at = w.let(f"sub i32 {w.let(f'sub i32 {behind}, {lane}')}, 1")
        number = w.let(f"select i1 {outside}, i64 0, i64 {w.let(f'zext i32 {at} to i64')}")
        place = self._place(column, number)
        w.block(again)
        word = self._load(place)
        flag = self._low(self._high(w.let(f"xor i64 {word}, {self._tag}")))  # with bits above it where it is of an earlier launch
        there = w.let(f"icmp ult i32 {w.let(f'sub i32 {flag}, {_VALUE}')}, {_PREFIX}")
        w.branch(self._all(w.let(f"or i1 {outside}, {there}")), seen, vain)
        w.block(vain)
        self._pause()
        w.jump(again)
        w.block(seen)
        whole = w.let(f"or i1 {outside}, {w.let(f'icmp eq i32 {flag}, {_PREFIX}')}")
        value = self._value(s, column, number, word, whole)
        nearest, some = self._nearest(whole)
        counts = w.let(f"icmp ule i32 {lane}, {nearest}")
        counts = w.let(f"select i1 {outside}, i1 false, i1 {counts}")
        value = self._reduced(s, w.let(f"select i1 {counts}, {type_} {value}, {type_} {identity}"))
        w.line(f"store {type_} {_folded(w, s, value, w.let(f'load {type_}, ptr {folded}'))}, ptr {folded}")
        w.branch(some, done, further)
        w.block(further)
        w.line(f"store i32 {w.let(f'sub i32 {behind}, {self._window}')}, ptr {left}")
        w.jump(look)
        w.block(done)
        return w.let(f"load {type_}, ptr {folded}")

    def _value(self, s: GridScan, column: int, number: str, word: str, whole: str) -> str:
        """What a workgroup has published, as its word says."""
        w = self.w
        if _columns(s) == 1:
            return joined(w, s.bound.type, [self._low(word)])
        w.line(f"fence {DEVICE} acq_rel")
        value, prefix = [w.let(f"add i64 {number}, {w.let(f'mul i64 {self._groups}, {flag}')}") for flag in (_VALUE, _PREFIX)]
        bits = self._load(self._place(column, w.let(f"select i1 {whole}, i64 {prefix}, i64 {value}")))
        return joined(w, s.bound.type, [self._low(bits), self._low(self._high(bits))])

    # ---- what the lanes do together

    def _all(self, condition: str) -> str:
        return condition if self._window == 1 else self.w.call("i1", "llvm.nvvm.vote.all.sync", ("i32", "-1"), ("i1", condition))

    def _nearest(self, whole: str) -> tuple[str, str]:
        """The first lane for which that is true, above all lanes where it is for none; and whether it is for any."""
        w = self.w
        if self._window == 1:
            return "0", whole
        mask = w.call("i32", "llvm.nvvm.vote.ballot.sync", ("i32", "-1"), ("i1", whole))
        return w.call("i32", "llvm.cttz.i32", ("i32", mask), ("i1", "false")), w.let(f"icmp ne i32 {mask}, 0")

    def _reduced(self, s: GridScan, value: str) -> str:
        w, distance = self.w, self._window // 2
        while distance:
            moved = [
                w.call("i32", "llvm.nvvm.shfl.sync.bfly.i32", ("i32", "-1"), ("i32", piece), ("i32", str(distance)), ("i32", str(WARP - 1)))
                for piece in pieces(w, s.bound.type, value)
            ]
            value = _folded(w, s, value, joined(w, s.bound.type, moved))
            distance //= 2
        return value


def _folded(w: Writer, s: GridScan, a: str, b: str) -> str:
    type_ = s.bound.type
    return NVPTX_EMITTERS[GRID_FOLDS[s.fold].op.name](w, 1, type_, type_, [a, b])


def _bits(w: Writer, type_: Type, value: str) -> str:
    return w.let(f"bitcast {llvm_type(type_)} {value} to i{type_.bits}") if type_.is_float else value
