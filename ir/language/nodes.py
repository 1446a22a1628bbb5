"""Atoms, memories and statements: flat, typed, read-only nodes, compared by identity.

A body is one tuple of statements in program order. Control flow nests by markers, as in WebAssembly: `If ... Else ... End`,
`For ... End`, `Loop ... End`, `Region ... End`; so a statement's id is its index, every walk is a loop, and facts are arrays.
Every operand is an atom: a constant, a param, a dim expression, or the value that an earlier statement in scope bound.

A kind of statement is a class, and its class variables are its row: what text and bytes call it, whether it binds a value, what it holds beside
operands, whether it opens a block, and its effect. `STATEMENTS` lists the kinds.

One module because the kinds are one table, which is read as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeVar, dataclass_transform

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimExpr
from vyre_py.ir.language.effects import Effect
from vyre_py.ir.language.op import RELAXED, AtomicOp, Op, Scope, SubgroupOp
from vyre_py.ir.language.tiles.tile_op import TileOp
from vyre_py.ir.language.types import Type, decode, encode, u32

__all__ = [
    "ATOMIC_KINDS", "FENCES", "STATEMENTS", "Access", "ArrivalsExpect", "ArrivalsSet", "ArrivalsTell", "ArrivalsWait", "Assert", "Atom", "Atomic",
    "AtomicStore", "Barrier", "BoxCopy", "Break", "ClusterBarrier", "Const", "Continue", "CopyAsync",
    "CopyCommit", "CopyWait", "Else", "End", "Fence", "For", "Get", "GridBarrier", "GridScan", "If", "Let", "Load", "Loop", "MatrixLoad", "Memory",
    "MemoryStatement",
    "OrderedAtomic", "Pack", "PackedProduct", "Param", "Print", "REPORT_HEAD_WORDS", "REPORT_MAX_WORDS", "Region",
    "ReportStatement", "Return", "Set", "Space", "Statement", "Store", "StripCopy",
    "Subgroup",
    "TARGET_KINDS", "TILE_KINDS", "TensorCore", "Tile", "TileAtomicAdd", "TileLoad", "TileMemoryStatement", "TileStore", "UniformLoad", "Unpack",
    "Value", "Var", "Variable", "VariableStatement", "WarpgroupBarrier", "WarpgroupProduct", "WarpgroupRegisters", "WarpgroupSignal", "WarpgroupWait",
    "WorkgroupFence", "atomic_kind", "const",
]

_C = TypeVar("_C", bound=type)

if TYPE_CHECKING:

    @dataclass_transform(eq_default=False, frozen_default=True)
    def _node(cls: _C) -> _C: ...
else:
    # Read-only to the type checker; not at run time, where frozen dataclasses cost a microsecond a node to make.
    _node: Callable[[_C], _C] = dataclass(slots=True, eq=False)


# ---------------------------------------------------------------- atoms


@_node
class Value:
    """What a statement binds. Ids are dense, in program order."""

    id: int
    type: Type


@_node
class Const:
    """A constant, kept as the bit pattern of its type so that every NaN and zero survives."""

    type: Type
    bits: int

    @property
    def value(self) -> bool | int | float:
        """The Python number it stands for."""
        return decode(self.type, self.bits)


@_node
class Param:
    """An argument passed by value; the same for the whole grid.

    In a Program that was made for a target, `part` names the argument that this is a part of, and the byte of it where it begins: the
    components of a vector are params of their own there.
    """

    name: str
    type: Type
    part: tuple[str, int] | None = None


Atom = Value | Const | Param | DimExpr


def const(type_: Type, value: bool | int | float) -> Const:
    """The constant `value` of `type_`. Raises what `encode` raises."""
    return Const(type_, encode(type_, value))


# ---------------------------------------------------------------- memory


class Space(Enum):
    """Where a memory lives: an argument buffer, one per workgroup, one per invocation, or constant data."""

    BUFFER = "buffer"
    WORKGROUP = "workgroup"
    PRIVATE = "private"
    TABLE = "table"


class Access(Enum):
    """What a Program may do with a memory."""

    READ = "read"
    WRITE = "write"
    READ_WRITE = "read_write"

    @property
    def reads(self) -> bool:
        """Whether loads are allowed."""
        return self is not Access.WRITE

    @property
    def writes(self) -> bool:
        """Whether stores are allowed."""
        return self is not Access.READ


@_node
class Memory:
    """An array. `shape` holds dim expressions (constants for all but buffers), last axis contiguous; `data` is a table's
    elements, little-endian, row by row.

    In a Program that was made for a target, a `hidden` buffer is no argument: the driver binds memory of its own.
    """

    name: str
    space: Space
    type: Type
    shape: tuple[DimExpr, ...]
    access: Access
    data: bytes = b""
    hidden: bool = False

    @property
    def rank(self) -> int:
        """The number of axes, which is the number of indices an access takes."""
        return len(self.shape)


@_node
class Variable:
    """A mutable value of one invocation. Ids are dense, in program order of the declarations."""

    id: int
    type: Type


# ---------------------------------------------------------------- statements


@_node
class Statement:
    """One statement of a body: `result` is the value it binds, if any; `args` are its operands.

    A kind says its `effect`, or cannot be defined. `spelling` is its keyword in text and its name in bytes and JSON ("" where its op has the name),
    `code` its number in bytes (0 where the op has the number). `payload` names its fields beyond result and args, and their types.
    """

    result: Value | None
    args: tuple[Atom, ...]
    effect: ClassVar[Effect]
    spelling: ClassVar[str] = ""
    code: ClassVar[int] = 0
    binds: ClassVar[bool] = False
    payload: ClassVar[Mapping[str, type]] = {}
    opens: ClassVar[bool] = False  # begins a block that an Else or End closes
    nests: ClassVar[bool] = False  # opens, parts or closes a block: follows from the effect

    def __init_subclass__(cls) -> None:
        if "effect" not in vars(cls):
            raise TypeError(f"{cls.__name__} is a kind of statement without an effect")
        cls.nests = Effect.NESTS in cls.effect

    @property
    def bound(self) -> Value:
        """The result of a statement of a kind that binds one."""
        assert self.result is not None  # V101
        return self.result

    def rebuilt(self, result: Value | None, args: tuple[Atom, ...]) -> Self:
        """The same statement over another result and other operands."""
        return type(self)(result, args, *(getattr(self, name) for name in self.payload))


@_node
class Let(Statement):
    """result = op(args)."""

    op: Op
    effect = Effect.NONE
    binds = True
    payload = MappingProxyType({"op": Op})


@_node
class MemoryStatement(Statement):
    """Shared by the statements that touch a memory; none is of this kind itself."""

    memory: Memory
    effect = Effect.READS | Effect.WRITES
    payload = MappingProxyType({"memory": Memory})

    @property
    def indices(self) -> tuple[Atom, ...]:
        """One integer per axis."""
        return self.args[: self.memory.rank]

    @property
    def also_reads(self) -> tuple[Memory, ...]:
        """The memories that it reads beside its own."""
        return ()


@_node
class Load(MemoryStatement):
    """result = memory[args]; zero outside."""

    effect = Effect.READS
    spelling, code, binds = "load", 1, True


@_node
class Store(MemoryStatement):
    """memory[args[:-1]] = args[-1]; dropped outside."""

    effect = Effect.WRITES
    spelling, code = "store", 2

    @property
    def value(self) -> Atom:
        """What is stored."""
        return self.args[-1]


@_node
class CopyAsync(MemoryStatement):
    """memory[args[:-1]] = args[-1], of a workgroup array, at some time before the invocation has waited for it; dropped outside. Until then no
    invocation may access the element, not even the one that began the copy."""

    effect = Effect.WRITES | Effect.COPIES
    spelling, code = "copy_async", 22

    @property
    def value(self) -> Atom:
        """What is written."""
        return self.args[-1]


@_node
class CopyCommit(Statement):
    """The invocation's copies since its last commit become a group, of none if there are none."""

    effect = Effect.COPIES
    spelling, code = "copy_commit", 23


@_node
class CopyWait(Statement):
    """Waits for the copies of all the invocation's groups but its last args[0], a constant u32; for every copy, committed or not, where that is 0. What
    they wrote is written by the invocation then: others see it after a barrier."""

    effect = Effect.COPIES
    spelling, code = "copy_wait", 24

    @property
    def groups(self) -> int:
        """How many groups may still be in flight."""
        assert isinstance(self.args[0], Const)  # V213
        return self.args[0].bits


@_node
class UniformLoad(MemoryStatement):
    """A barrier, one load at workgroup-uniform indices for the whole workgroup, a barrier: the result is uniform over it, even if others write there."""

    effect = Effect.READS | Effect.SYNCHRONISES
    spelling, code, binds = "uniform_load", 3, True


@_node
class Atomic(MemoryStatement):
    """result = old value of memory[indices], which becomes op(old, operands); dropped outside, and then the result is zero. Its op is relaxed."""

    op: AtomicOp
    effect = Effect.READS | Effect.WRITES | Effect.CONTENDS
    binds = True
    payload = MappingProxyType({"memory": Memory, "op": AtomicOp})

    @property
    def operands(self) -> tuple[Atom, ...]:
        """The operands after the indices."""
        return self.args[self.memory.rank :]


@_node
class OrderedAtomic(Atomic):
    """An Atomic whose op has another order than relaxed, and an Atomic in every other respect."""

    effect = Effect.READS | Effect.WRITES | Effect.CONTENDS | Effect.ORDERS


@_node
class AtomicStore(Atomic):
    """memory[indices] = args[-1], as an atomic, which may release; dropped outside."""

    effect = Effect.WRITES | Effect.CONTENDS | Effect.ORDERS
    binds = False


def atomic_kind(op: AtomicOp) -> type[Atomic]:
    """The kind of statement that an atomic is."""
    if not op.reads:
        return AtomicStore
    return Atomic if op.order is RELAXED else OrderedAtomic


@_node
class TileMemoryStatement(MemoryStatement):
    """Shared by the statements that access a memory by tiles; none is of this kind itself. Operands are an offset for each axis of the memory, a u32
    constant for each, the extent along it, and then a value if there is one. An axis of extent 0 is none of the tile's: the tile lies at that one index."""

    effect = Effect.READS | Effect.WRITES

    @property
    def extents(self) -> tuple[int, ...]:
        """The extent along each axis of the memory, 0 for one that the tile has not."""
        given = self.args[self.memory.rank : 2 * self.memory.rank]
        return tuple([a.bits if isinstance(a, Const) else 0 for a in given])  # constants: V601

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tile."""
        return tuple([extent for extent in self.extents if extent])

    @property
    def value(self) -> Atom:
        """The tile that is written."""
        return self.args[-1]


@_node
class TileLoad(TileMemoryStatement):
    """result = the elements of memory from the offsets on; zero outside, each axis by itself."""

    effect = Effect.READS
    spelling, code, binds = "tile_load", 25, True


@_node
class TileStore(TileMemoryStatement):
    """The elements of memory from the offsets on become those of args[-1]; dropped outside, each axis by itself."""

    effect = Effect.WRITES
    spelling, code = "tile_store", 26


@_node
class TileAtomicAdd(TileMemoryStatement):
    """Adds the elements of args[-1] to those of memory from the offsets on, each as a relaxed atomic; dropped outside, each axis by itself."""

    effect = Effect.WRITES | Effect.CONTENDS
    spelling, code = "tile_atomic_add", 27


@_node
class Tile(Statement):
    """result = op(args), over tiles: values, and behind them the numbers that the op takes, as u32 constants."""

    op: TileOp
    effect = Effect.NONE
    binds = True
    payload = MappingProxyType({"op": TileOp})

    @property
    def values(self) -> tuple[Atom, ...]:
        """The operands that are no numbers."""
        return self.args[: self.op.operands]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers behind them."""
        return tuple([a.bits if isinstance(a, Const) else 0 for a in self.args[self.op.operands :]])  # constants: V601


@_node
class TensorCore(MemoryStatement):
    """Only in a Program that was made for a target: the 32 lanes of a subgroup multiply 16 x 4 n by 4 n x 8 elements, where n of a factor are 8 bytes, and add
    the product to four elements of a private array each, from args[0] on, a constant. Behind it stand what the lane has of the factors: 2 n elements of the
    first, n of the second.

    Lane 4 g + t has of the first, for j from 0 to n - 1, (g, n t + j) and then (g + 8, n t + j), of the second (n t + j, g), or of both another n of the 4 n
    along their common axis, and of the sum (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1). How the sum is rounded is the device's."""

    effect = Effect.READS | Effect.WRITES | Effect.CONVERGES

    @property
    def factors(self) -> tuple[tuple[Atom, ...], tuple[Atom, ...]]:
        """What the lane has of the two factors."""
        first = 1 + 2 * (len(self.args) - 1) // 3
        return self.args[1:first], self.args[first:]


@_node
class MatrixLoad(MemoryStatement):
    """Only in a Program that was made for a target: the 32 lanes of a subgroup load four matrices, each of 8 rows of 16 bytes, from a workgroup array
    `source`, in which args[0] of lane 8 q + r says at which group of 16 bytes row r of matrix q lies. They come to a private array, those of one matrix after
    those of another. Of each, lane 4 g + t gets the t-th 4 bytes of row g; where `turned` is not 0, of elements of 2 bytes, those in column g of rows 2 t and
    2 t + 1."""

    source: Memory
    turned: int
    effect = Effect.READS | Effect.WRITES | Effect.CONVERGES
    payload = MappingProxyType({"memory": Memory, "source": Memory, "turned": int})

    @property
    def indices(self) -> tuple[Atom, ...]:
        """The first element."""
        return (Const(u32, 0),)

    @property
    def also_reads(self) -> tuple[Memory, ...]:
        """Where the rows lie."""
        return (self.source,)


@_node
class StripCopy(MemoryStatement):
    """Only in a Program that was made for a target: the invocation begins to copy `count` groups of elements from `source` to a workgroup array, as `CopyAsync`
    does. The last axes of both are such groups. The first is at the indices args[1:] of the other axes of `source`, and goes to args[0]; each further one is
    `down` further along axis `axis`, and goes `further` groups further. Zeros are copied for what is outside."""

    source: Memory
    axis: int
    count: int
    down: int
    further: int
    effect = Effect.READS | Effect.WRITES | Effect.COPIES
    payload = MappingProxyType({"memory": Memory, "source": Memory, "axis": int, "count": int, "down": int, "further": int})

    @property
    def indices(self) -> tuple[Atom, ...]:
        """The first element."""
        return (Const(u32, 0),) * self.memory.rank

    @property
    def also_reads(self) -> tuple[Memory, ...]:
        """What is copied."""
        return (self.source,)


@_node
class WarpgroupProduct(MemoryStatement):
    """Only in a Program that was made for a target: 128 invocations, those of a warpgroup, begin to multiply 64 x `depth` elements, of `rows` that the first
    factor has, by `depth` x `width`, and add the product to elements of a private array, from its first on: those of 64 x 8 sums after those of the 64 x 8 to
    their left, as `TensorCore` has them for each 16 rows; where `adds` is 0 they are the product alone. The factors lie in the workgroup arrays `left` and
    `right`, from groups args[0] and args[1] of 16 bytes on, swizzled; `along_k` is not 0 where rows of the second go along k. If `left` is a private array, it
    has the lane's elements of the first, as it would have sums of 64 x `depth`. Factors may not change, nor may the sums
    be read, until it is done (`WarpgroupWait`)."""

    left: Memory
    right: Memory
    rows: int
    depth: int
    width: int
    along_k: int
    adds: int
    effect = Effect.READS | Effect.WRITES | Effect.CONVERGES
    payload = MappingProxyType({"memory": Memory, "left": Memory, "right": Memory, "rows": int, "depth": int, "width": int, "along_k": int, "adds": int})

    @property
    def indices(self) -> tuple[Atom, ...]:
        """The first element."""
        return (Const(u32, 0),)

    @property
    def also_reads(self) -> tuple[Memory, ...]:
        """The factors."""
        return (self.left, self.right)


@_node
class WarpgroupWait(MemoryStatement):
    """Only in a Program that was made for a target: waits for the warpgroup's products but the last args[0], a constant; where it `releases` them, the sums in
    a private array may be read. What else is among args, of 32 bits, is computed before, not meanwhile."""

    releases: int
    effect = Effect.READS | Effect.WRITES | Effect.CONVERGES | Effect.COPIES
    payload = MappingProxyType({"memory": Memory, "releases": int})

    @property
    def indices(self) -> tuple[Atom, ...]:
        """The first element."""
        return (Const(u32, 0),)


@_node
class WarpgroupSignal(Statement):
    """Only in a Program that was made for a target: the two warpgroups of a workgroup, args[0] of which is at hand, signal each other by several numbers; `who`
    does, which is 0, 1, or 2 for both. One that `waits` does so until the other has signalled that number; others go on. What one that `shows` wrote before
    is seen by products of the other from the next signal on. Neither may signal a number again before the other has waited for it."""

    number: int
    who: int
    waits: int
    shows: int
    effect = Effect.ORDERS | Effect.CONVERGES
    payload = MappingProxyType({"number": int, "who": int, "waits": int, "shows": int})


@_node
class WarpgroupBarrier(Statement):
    """Only in a Program that was made for a target: the first `count` invocations of the workgroup, whole warps, which alone get here, wait for one another;
    writes before it, to workgroup and storage memory, are seen after it."""

    count: int
    effect = Effect.SYNCHRONISES
    payload = MappingProxyType({"count": int})


@_node
class ClusterBarrier(Statement):
    """Only in a Program that was made for a target: waits for all workgroups of the cluster; what they wrote to workgroup memory is seen after it."""

    effect = Effect.SYNCHRONISES


@_node
class WarpgroupRegisters(Statement):
    """Only in a Program that was made for a target: each invocation of a warpgroup has `count` registers from here on, a multiple of 8; `more` says whether
    these are more than it has, and are waited for until others have fewer."""

    count: int
    more: int
    effect = Effect.ORDERS | Effect.CONVERGES
    payload = MappingProxyType({"count": int, "more": int})


@_node
class ArrivalsSet(MemoryStatement):
    """Only in a Program that was made for a target: one invocation of the workgroup makes ready the elements of a workgroup array of u64 to count turns, from
    turn 0 on, each of which ends once so many `arrivals` were told of, of each workgroup of the cluster where it is `shared`, and what boxes bring (`BoxCopy`)
    has come; where there are none, the array is memory like any other again. The others may touch it behind a barrier."""

    arrivals: int
    shared: int
    effect = Effect.READS | Effect.WRITES | Effect.CONVERGES | Effect.COPIES
    payload = MappingProxyType({"memory": Memory, "arrivals": int, "shared": int})

    @property
    def indices(self) -> tuple[Atom, ...]:
        """The first element."""
        return (Const(u32, 0),) * self.memory.rank


@_node
class ArrivalsExpect(MemoryStatement):
    """Only in a Program that was made for a target: invocation `by` of the workgroup says that so many more bytes, `expected`, are to come in the turn at hand
    of element args[0] of such an array; where it `closes` the turn, that these are all: it arrives."""

    by: int
    expected: int
    closes: int
    effect = Effect.READS | Effect.WRITES | Effect.CONVERGES | Effect.COPIES
    payload = MappingProxyType({"memory": Memory, "by": int, "expected": int, "closes": int})

    @property
    def indices(self) -> tuple[Atom, ...]:
        """The element."""
        return (*self.args[:1], *(Const(u32, 0),) * (self.memory.rank - 1))


@_node
class ArrivalsTell(MemoryStatement):
    """Only in a Program that was made for a target: each warpgroup arrives at element args[0] of such an array, in all workgroups of the cluster where it is
    `shared`, if args[1] is true: it has read all that it reads of what that stands for, in products that are done, too."""

    shared: int
    effect = Effect.READS | Effect.WRITES | Effect.CONVERGES | Effect.COPIES
    payload = MappingProxyType({"memory": Memory, "shared": int})

    @property
    def indices(self) -> tuple[Atom, ...]:
        """The element."""
        return (*self.args[:1], *(Const(u32, 0),) * (self.memory.rank - 1))


@_node
class ArrivalsWait(MemoryStatement):
    """Only in a Program that was made for a target: waits until turn args[1] of element args[0] of such an array has ended, at which nobody is more than one
    turn behind; the one before turn 0 has. What its boxes brought is there then, for the invocation that waited."""

    effect = Effect.READS | Effect.WRITES | Effect.CONVERGES | Effect.COPIES

    @property
    def indices(self) -> tuple[Atom, ...]:
        """The element."""
        return (*self.args[:1], *(Const(u32, 0),) * (self.memory.rank - 1))


@_node
class BoxCopy(MemoryStatement):
    """Only in a Program that was made for a target: invocation `by` of the workgroup begins to copy a box of a buffer that nothing writes, `source`: so many
    elements along each of its axes (`box`), from the indices args[2:] on, each an i32; zeros for what is outside, each axis by itself. Its rows along the
    last axis, of 32, 64 or 128 bytes, come to a workgroup array from group args[0] of 16 bytes on, swizzled, and are counted by element args[1] of
    `arrivals`. One that is `shared` comes to all workgroups of the cluster at the same place: the workgroup of that number begins it, modulo how many
    there are. Any other has -1 there."""

    source: Memory
    arrivals: Memory
    box: tuple[int, ...]
    by: int
    shared: int
    effect = Effect.READS | Effect.WRITES | Effect.CONVERGES | Effect.COPIES
    payload = MappingProxyType({"memory": Memory, "source": Memory, "arrivals": Memory, "box": tuple, "by": int, "shared": int})

    @property
    def indices(self) -> tuple[Atom, ...]:
        """The first element."""
        return (Const(u32, 0),) * self.memory.rank

    @property
    def also_reads(self) -> tuple[Memory, ...]:
        """The buffer, and what counts."""
        return (self.source, self.arrivals)


@_node
class Pack(MemoryStatement):
    """Only in a Program that was made for a target: the workgroup copies `rows` by `columns` elements of `source`, from the indices args on, to a workgroup
    array, whose type they are widened to; zeros for what is outside. Rows go along axis `down` of the source, columns along axis `across`, one of which is its
    last, the other indices are as they are. Element (r, c) comes to r `row` + c // `lanes` `strip` + c % `lanes`, and there is room for whole groups of `lanes`
    along c, and along r if it goes along the source's last axis. What lies behind along axis `ahead` may be fetched meanwhile. The workgroup waits before and
    behind."""

    source: Memory
    down: int
    across: int
    ahead: int
    rows: int
    columns: int
    row: int
    strip: int
    lanes: int
    effect = Effect.READS | Effect.WRITES | Effect.SYNCHRONISES | Effect.CONVERGES
    payload = MappingProxyType({
        "memory": Memory, "source": Memory, "down": int, "across": int, "ahead": int, "rows": int, "columns": int, "row": int, "strip": int,
        "lanes": int,
    })  # fmt: skip

    @property
    def indices(self) -> tuple[Atom, ...]:
        """The first element."""
        return (Const(u32, 0),)

    @property
    def also_reads(self) -> tuple[Memory, ...]:
        """What is copied."""
        return (self.source,)


@_node
class Unpack(MemoryStatement):
    """Only in a Program that was made for a target: the workgroup copies `rows` by `columns` elements of the workgroup array `source`, row by row, each of
    `pitch` elements, to a memory, from the indices args on; what is outside is dropped. Rows go along axis `down` of the memory, columns along its last, and
    the other indices are as they are. Vectors of `lanes` elements go at once. The workgroup waits before and behind."""

    source: Memory
    down: int
    rows: int
    columns: int
    pitch: int
    lanes: int
    effect = Effect.READS | Effect.WRITES | Effect.SYNCHRONISES | Effect.CONVERGES
    payload = MappingProxyType({"memory": Memory, "source": Memory, "down": int, "rows": int, "columns": int, "pitch": int, "lanes": int})

    @property
    def also_reads(self) -> tuple[Memory, ...]:
        """What is copied."""
        return (self.source,)


@_node
class PackedProduct(MemoryStatement):
    """Only in a Program that was made for a target: the workgroup multiplies `rows` by `depth` elements of the workgroup array `left` by `depth` by `columns`
    of `right`, and adds the product to those of a third array as `mma` does. Element (r, k) of the first factor lies at r `left_row` + k `left_column`, (k, c)
    of the second at k `right_row` + c // `lanes` `right_strip` + c % `lanes`, and sums lie row by row. There is room for whole groups of `lanes` along c. So
    many sums go through k together: of `down` rows, and of `across` groups. The workgroup waits before and behind."""

    left: Memory
    right: Memory
    rows: int
    depth: int
    columns: int
    left_row: int
    left_column: int
    right_row: int
    right_strip: int
    lanes: int
    down: int
    across: int
    effect = Effect.READS | Effect.WRITES | Effect.SYNCHRONISES | Effect.CONVERGES
    payload = MappingProxyType({
        "memory": Memory, "left": Memory, "right": Memory, "rows": int, "depth": int, "columns": int, "left_row": int, "left_column": int, "right_row": int,
        "right_strip": int, "lanes": int, "down": int, "across": int,
    })  # fmt: skip

    @property
    def indices(self) -> tuple[Atom, ...]:
        """The first element."""
        return (Const(u32, 0),)

    @property
    def also_reads(self) -> tuple[Memory, ...]:
        """The factors."""
        return (self.left, self.right)


@_node
class VariableStatement(Statement):
    """Shared by the statements about a variable; none is of this kind itself."""

    variable: Variable
    effect = Effect.DECLARES | Effect.GETS | Effect.SETS
    payload = MappingProxyType({"variable": Variable})


@_node
class Var(VariableStatement):
    """Declares a variable with the first value args[0]; in scope to the end of the block."""

    effect = Effect.DECLARES
    spelling, code = "var", 4


@_node
class Get(VariableStatement):
    """result = the variable's value now."""

    effect = Effect.GETS
    spelling, code, binds = "get", 5, True


@_node
class Set(VariableStatement):
    """The variable becomes args[0]."""

    effect = Effect.SETS
    spelling, code = "set", 6


@_node
class If(Statement):
    """Runs the block up to Else or End where args[0] is true, the block after Else where it is false."""

    effect = Effect.NESTS | Effect.BRANCHES
    spelling, code, opens = "if", 7, True


@_node
class Else(Statement):
    """Parts the two blocks of an If."""

    effect = Effect.NESTS | Effect.BRANCHES
    spelling, code = "else", 8


@_node
class End(Statement):
    """Closes the innermost open block."""

    effect = Effect.NESTS
    spelling, code = "end", 9


@_node
class For(Statement):
    """Runs its block for result = start, start + step, ... below stop (above it for a step that is a negative constant); args are start, stop
    and step, read once. A constant step is not 0; for one that is no constant and not above 0 the block does not run.

    Two hints are without meaning; 0 leaves each to the compiler. `unroll` is how many turns it is to write out one after the other. `pipeline`, in a Program of
    tiles, is for how many turns the tiles that the loop loads have room at a time: of the turn at hand, and of those for which it copies ahead."""

    unroll: int = 0
    pipeline: int = 0
    effect = Effect.NESTS | Effect.REPEATS
    spelling, code, binds, opens = "for", 10, True, True
    payload = MappingProxyType({"unroll": int, "pipeline": int})


@_node
class Loop(Statement):
    """Runs its block until a break or return; it may run forever."""

    effect = Effect.NESTS | Effect.REPEATS | Effect.ENDLESS
    spelling, code, opens = "loop", 11, True


@_node
class Region(Statement):
    """A named block, for people and profilers."""

    name: str
    effect = Effect.NESTS
    spelling, code, opens = "region", 12, True
    payload = MappingProxyType({"name": str})


@_node
class Break(Statement):
    """Leaves the innermost For or Loop."""

    effect = Effect.LEAVES
    spelling, code = "break", 13


@_node
class Continue(Statement):
    """Goes on with the next turn of the innermost For or Loop."""

    effect = Effect.LEAVES
    spelling, code = "continue", 14


@_node
class Return(Statement):
    """Ends the invocation."""

    effect = Effect.RETURNS
    spelling, code = "return", 15


@_node
class Barrier(Statement):
    """Waits for the whole workgroup; writes before it, to workgroup and storage memory, are seen after it."""

    effect = Effect.SYNCHRONISES
    spelling, code = "barrier", 16


@_node
class GridBarrier(Barrier):
    """Waits for all invocations of the grid; writes before it, to storage memory, are seen by every one of them after it, and those to
    workgroup memory by its workgroup. It is a Barrier in every other respect, so code that handles Barrier correctly handles this too."""

    effect = Effect.SYNCHRONISES | Effect.SYNCHRONISES_GRID
    spelling, code = "grid_barrier", 17


@_node
class GridScan(Statement):
    """result = the fold of args[0] over all workgroups with a smaller number, counted along x first; the identity of the fold in the first. Operand and
    result are the same for the whole workgroup, and it is a barrier of it. `fold` is a row of `ops.GRID_FOLDS`. It orders no memory between workgroups."""

    fold: str
    effect = Effect.SYNCHRONISES | Effect.SCANS_GRID
    spelling, code, binds = "grid_scan", 21, True
    payload = MappingProxyType({"fold": str})


@_node
class Fence(Statement):
    """A sequentially consistent fence. Accesses of the invocation before it are ordered before those after it, as seen by invocations in its scope that
    synchronize with it by a fence or an ordered atomic. All fences of a scope have one total order."""

    scope: ClassVar[Scope] = Scope.DEVICE
    effect = Effect.ORDERS
    spelling, code = "fence.device", 20


@_node
class WorkgroupFence(Fence):
    """A Fence for the invocations of the workgroup."""

    scope: ClassVar[Scope] = Scope.WORKGROUP
    effect = Effect.ORDERS
    spelling, code = "fence.workgroup", 48


@_node
class Subgroup(Statement):
    """result = what the op gives this lane of what all lanes of its subgroup hand in. It orders no memory."""

    op: SubgroupOp
    effect = Effect.CONVERGES
    binds = True
    payload = MappingProxyType({"op": SubgroupOp})


REPORT_HEAD_WORDS: Final = 4  # of the record of an assert or a print, before those of its values: which statement, and the invocation's global id
REPORT_MAX_WORDS: Final = 32  # of 32 bits that the values of one statement take


@_node
class ReportStatement(Statement):
    """Shared by the statements that tell the host something; none is of this kind itself. `message` holds a `{}` for each of the values
    (`ir.text.messages`)."""

    message: str
    effect = Effect.REPORTS
    payload = MappingProxyType({"message": str})

    @property
    def values(self) -> tuple[Atom, ...]:
        """What the message is about."""
        return self.args


@_node
class Assert(ReportStatement):
    """Where args[0] is false the host hears of it, and the invocation goes on. Nothing may be concluded from the condition."""

    effect = Effect.REPORTS
    spelling, code = "assert", 18

    @property
    def condition(self) -> Atom:
        """What should hold."""
        return self.args[0]

    @property
    def values(self) -> tuple[Atom, ...]:
        """What the message is about."""
        return self.args[1:]


@_node
class Print(ReportStatement):
    """The host gets the message, with the values in it."""

    effect = Effect.REPORTS
    spelling, code = "print", 19


ATOMIC_KINDS: Final[tuple[type[Atomic], ...]] = (Atomic, OrderedAtomic, AtomicStore)
# Kinds of statements of Programs that were made for a target, which the language has not.
TARGET_KINDS: Final[tuple[type[Statement], ...]] = (
    TensorCore, MatrixLoad, StripCopy, WarpgroupProduct, WarpgroupWait, WarpgroupSignal, WarpgroupBarrier, WarpgroupRegisters,
    ClusterBarrier, ArrivalsSet, ArrivalsExpect, ArrivalsTell, ArrivalsWait, BoxCopy, Pack, Unpack, PackedProduct,
)  # fmt: skip
# Kinds that only a Program of tiles has.
TILE_KINDS: Final[tuple[type[Statement], ...]] = (TileLoad, TileStore, TileAtomicAdd, Tile)
FENCES: Final[Mapping[Scope, type[Fence]]] = {kind.scope: kind for kind in (Fence, WorkgroupFence)}
# The kinds of statements. Every walk says for each what it does with it (`walks.Handlers`).
STATEMENTS: Final[tuple[type[Statement], ...]] = (
    Let, Load, Store, UniformLoad, Atomic, OrderedAtomic, AtomicStore, Var, Get, Set, If, Else, End, For, Loop, Region, Break, Continue, Return, Barrier,
    GridBarrier, Fence, WorkgroupFence, Subgroup, Assert, Print, GridScan, CopyAsync, CopyCommit, CopyWait,
    TileLoad, TileStore, TileAtomicAdd, Tile,
)
