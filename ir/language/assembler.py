"""The assembler: it alone builds Programs, statement by statement, with dense ids.

Builder, parser, decoders and passes all write through it. It keeps blocks balanced and ids dense, and computes result types.
It does not check the rules: `ir.check` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vyre_py.ir.builder.where import user_place
from vyre_py.ir.language.dims import DEFAULT_WORKGROUP, OF_TILES, Dim, DimExpr, Grid
from vyre_py.ir.language.errors import Place, ValidationError
from vyre_py.ir.language.grids import NO_GRID, default_grid
from vyre_py.ir.language.nodes import (
    FENCES,
    Access,
    Assert,
    Atom,
    AtomicStore,
    Barrier,
    Break,
    Const,
    Continue,
    CopyAsync,
    CopyCommit,
    CopyWait,
    Else,
    End,
    For,
    Get,
    GridBarrier,
    GridScan,
    If,
    Let,
    Load,
    Loop,
    Memory,
    Param,
    Print,
    Region,
    Return,
    Set,
    Space,
    Statement,
    Store,
    Subgroup,
    Tile,
    TileAtomicAdd,
    TileLoad,
    TileStore,
    UniformLoad,
    Value,
    Var,
    Variable,
    atomic_kind,
)
from vyre_py.ir.language.op import AtomicOp, GridFold, Op, Scope, SubgroupOp
from vyre_py.ir.language.ops import GRID_FOLDS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.tiles.tile_op import TileOp
from vyre_py.ir.language.types import Type, tile_of, u32

if TYPE_CHECKING:
    from vyre_py.ir.functions.function import Function

__all__ = ["Assembler", "OperandTypeError"]


class OperandTypeError(Exception):
    """An op does not accept these operand types; callers turn it into a diagnostic with a place."""

    def __init__(self, op: Op | SubgroupOp | TileOp | GridFold, operands: tuple[Type, ...], given: Type | None = None) -> None:
        name = op.op.name if isinstance(op, GridFold) else op.name
        super().__init__(f"{name} does not accept ({', '.join(map(str, operands))})" + (f" to {given}" if given else ""))
        self.op, self.operands, self.given = op, operands, given


class Assembler:
    """Collects declarations and statements; `finish` gives the Program.

    `place` is recorded with every statement made while it is set: a Place, None, or what `finish` is given Places for.
    """

    def __init__(self, name: str, workgroup: tuple[int, int, int] = DEFAULT_WORKGROUP, subgroup: int = 0) -> None:
        self.name = name
        self.workgroup = workgroup
        self.subgroup = subgroup
        self.grid: Grid | None = None
        self.doc = ""
        self.dims: list[Dim] = []
        self.params: list[Param] = []
        self.memories: list[Memory] = []
        self.functions: list[Function] = []
        self.body: list[Statement] = []
        self._match: dict[int, int] = {}  # of the statements that open, part or close a block
        self.open: list[int] = []
        self._else: dict[int, int] = {}  # open If -> its Else
        self.value_names: dict[int, str] = {}
        self.variable_names: dict[int, str] = {}
        self.places: list[Any] = []
        self.place: Any = None
        self.declared: dict[str | None, Place] = {}
        self._values = 0
        self._variables = 0

    # ---- declarations

    def note(self, name: str | None) -> None:
        """Records the place at hand for a declaration; None is the Program itself."""
        if self.place is not None:
            self.declared[name] = self.place

    def dim(self, name: str) -> Dim:
        """Declares a dim."""
        self.note(name)
        self.dims.append(Dim(name))
        return self.dims[-1]

    def param(self, name: str, type_: Type) -> Param:
        """Declares a param."""
        self.note(name)
        self.params.append(Param(name, type_))
        return self.params[-1]

    def memory(self, name: str, space: Space, type_: Type, shape: tuple[DimExpr, ...], access: Access, data: bytes = b"") -> Memory:
        """Declares a memory."""
        self.note(name)
        self.memories.append(Memory(name, space, type_, shape, access, data))
        return self.memories[-1]

    # ---- statements

    @property
    def value_count(self) -> int:
        """How many values there are."""
        return self._values

    def value(self, type_: Type, name: str | None = None) -> Value:
        """The next value. The caller emits the statement that binds it next."""
        made = Value(self._values, type_)
        self._values += 1
        if name is not None:
            self.value_names[made.id] = name
        return made

    def value_like(self, given: Value, name: str | None = None) -> Value:
        """The next value, with the type of another Program's: that itself, where it has the same number."""
        if given.id != self._values:
            return self.value(given.type, name)
        self._values += 1
        if name is not None:
            self.value_names[given.id] = name
        return given

    def emit(self, statement: Statement) -> None:
        """Appends a statement. Raises ValidationError (B107) for an Else or End where no block is open."""
        if statement.nests:
            self._nest(statement)
        self.body.append(statement)
        self.places.append(self.place)

    def _nest(self, statement: Statement) -> None:
        """Takes note of the next statement, which opens, parts or closes a block."""
        index, kind = len(self.body), type(statement)
        if kind.opens:
            self.open.append(index)
        elif not self.open:
            message = f"this {kind.spelling} closes no block: none is open"
            raise ValidationError(finding("B107", message, self.place or user_place(), "call end() once for each if_, for_, loop and region"))
        elif kind is Else:
            self._match[self.open[-1]] = index
            self._else[self.open[-1]] = index
        else:
            opener = self.open.pop()
            self._match[index] = opener
            self._match[self._else.pop(opener, opener)] = index

    def can_reopen(self) -> bool:
        """Whether the last statement closed an If that has no Else yet."""
        if not self.body or not isinstance(self.body[-1], End):
            return False
        last = len(self.body) - 1
        opener = self._match[last]
        return self._match[opener] == last and isinstance(self.body[opener], If)

    def reopen(self) -> None:
        """Takes back the End just emitted, so that an Else may follow."""
        self.body.pop()
        self.places.pop()
        opener = self._match.pop(len(self.body))
        del self._match[opener]
        self.open.append(opener)

    def let(self, op: Op, args: tuple[Atom, ...], given: Type | None = None, name: str | None = None) -> Value:
        """result = op(args). Raises OperandTypeError."""
        operands = tuple([a.type for a in args])
        type_ = op.result_type(operands, given)
        if type_ is None:
            raise OperandTypeError(op, operands, given)
        return self.let_of(type_, op, args, name)

    def let_of(self, type_: Type, op: Op, args: tuple[Atom, ...], name: str | None = None) -> Value:
        """result = op(args), of the type that the op has for them."""
        result = self.value(type_, name)
        self.emit(Let(result, args, op))
        return result

    def load(self, memory: Memory, indices: tuple[Atom, ...], name: str | None = None) -> Value:
        """result = memory[indices]."""
        result = self.value(memory.type, name)
        self.emit(Load(result, indices, memory))
        return result

    def uniform_load(self, memory: Memory, indices: tuple[Atom, ...], name: str | None = None) -> Value:
        """Barrier, result = memory[indices], barrier."""
        result = self.value(memory.type, name)
        self.emit(UniformLoad(result, indices, memory))
        return result

    def store(self, memory: Memory, indices: tuple[Atom, ...], value: Atom) -> None:
        """memory[indices] = value."""
        self.emit(Store(None, (*indices, value), memory))

    def copy_async(self, memory: Memory, indices: tuple[Atom, ...], value: Atom) -> None:
        """memory[indices] = value, until a copy_wait."""
        self.emit(CopyAsync(None, (*indices, value), memory))

    def copy_commit(self) -> None:
        """Makes a group of the copies since the last one."""
        self.emit(CopyCommit(None, ()))

    def copy_wait(self, groups: int) -> None:
        """Waits for the copies of all groups but the last ones."""
        self.emit(CopyWait(None, (Const(u32, groups),)))

    def atomic(self, op: AtomicOp, memory: Memory, indices: tuple[Atom, ...], operands: tuple[Atom, ...], name: str | None = None) -> Value:
        """result = the old memory[indices], which becomes op(old, operands), by an op that reads."""
        result = self.value(memory.type, name)
        self.emit(atomic_kind(op)(result, (*indices, *operands), memory, op))
        return result

    def atomic_store(self, op: AtomicOp, memory: Memory, indices: tuple[Atom, ...], value: Atom) -> None:
        """memory[indices] = value, by an op that does not read."""
        self.emit(AtomicStore(None, (*indices, value), memory, op))

    def together(self, op: SubgroupOp, args: tuple[Atom, ...], name: str | None = None) -> Value:
        """result = op(args), by all lanes of the subgroup. Raises OperandTypeError."""
        operands = tuple([a.type for a in args])
        type_ = op.result_type(operands, self.subgroup)
        if type_ is None:
            raise OperandTypeError(op, operands)
        result = self.value(type_, name)
        self.emit(Subgroup(result, args, op))
        return result

    def tile(self, op: TileOp, values: tuple[Atom, ...], numbers: Sequence[int] = (), name: str | None = None) -> Value:
        """result = op(values), over tiles. Raises OperandTypeError."""
        operands = tuple([a.type for a in values])
        type_ = op.result_type(operands, tuple(numbers))
        if type_ is None:
            raise OperandTypeError(op, operands)
        result = self.value(type_, name)
        self.emit(Tile(result, (*values, *[Const(u32, n) for n in numbers]), op))
        return result

    def tile_load(self, memory: Memory, offsets: tuple[Atom, ...], extents: Sequence[int], name: str | None = None) -> Value:
        """result = the tile of these extents, 0 for an axis that it has not, from the offsets on."""
        result = self.value(tile_of(memory.type.scalar, [n for n in extents if n]), name)
        self.emit(TileLoad(result, (*offsets, *[Const(u32, n) for n in extents]), memory))
        return result

    def tile_store(self, memory: Memory, offsets: tuple[Atom, ...], extents: Sequence[int], value: Atom) -> None:
        """Writes a tile from the offsets on."""
        self.emit(TileStore(None, (*offsets, *[Const(u32, n) for n in extents], value), memory))

    def tile_atomic_add(self, memory: Memory, offsets: tuple[Atom, ...], extents: Sequence[int], value: Atom) -> None:
        """Adds a tile to what lies from the offsets on."""
        self.emit(TileAtomicAdd(None, (*offsets, *[Const(u32, n) for n in extents], value), memory))

    def var(self, type_: Type, first: Atom, name: str | None = None) -> Variable:
        """Declares a variable."""
        made = Variable(self._variables, type_)
        self._variables += 1
        if name is not None:
            self.variable_names[made.id] = name
        self.emit(Var(None, (first,), made))
        return made

    def get(self, variable: Variable, name: str | None = None) -> Value:
        """result = the variable's value."""
        result = self.value(variable.type, name)
        self.emit(Get(result, (), variable))
        return result

    def set(self, variable: Variable, value: Atom) -> None:
        """variable = value."""
        self.emit(Set(None, (value,), variable))

    def if_(self, condition: Atom) -> None:
        """Opens an If."""
        self.emit(If(None, (condition,)))

    def else_(self) -> None:
        """Goes from an If's first block to its second."""
        self.emit(Else(None, ()))

    def end(self) -> None:
        """Closes the innermost open block."""
        self.emit(End(None, ()))

    def for_(self, start: Atom, stop: Atom, step: Atom, name: str | None = None, unroll: int = 0, pipeline: int = 0) -> Value:
        """Opens a For; gives its variable's value."""
        result = self.value(start.type, name)
        self.emit(For(result, (start, stop, step), unroll, pipeline))
        return result

    def loop(self) -> None:
        """Opens a Loop."""
        self.emit(Loop(None, ()))

    def region(self, name: str) -> None:
        """Opens a Region."""
        self.emit(Region(None, (), name))

    def break_(self) -> None:
        """Leaves the innermost loop."""
        self.emit(Break(None, ()))

    def continue_(self) -> None:
        """Goes on with the innermost loop's next turn."""
        self.emit(Continue(None, ()))

    def return_(self) -> None:
        """Ends the invocation."""
        self.emit(Return(None, ()))

    def barrier(self) -> None:
        """Waits for the workgroup."""
        self.emit(Barrier(None, ()))

    def grid_barrier(self) -> None:
        """Waits for the whole grid."""
        self.emit(GridBarrier(None, ()))

    def grid_scan(self, fold: str, x: Atom, name: str | None = None) -> Value:
        """result = x of all workgroups with a smaller number, folded by a row of `GRID_FOLDS`. Raises OperandTypeError."""
        row = GRID_FOLDS[fold]
        if not row.accepts((x.type,)):
            raise OperandTypeError(row, (x.type,))
        result = self.value(x.type, name)
        self.emit(GridScan(result, (x,), fold))
        return result

    def fence(self, scope: Scope) -> None:
        """Orders memory accesses before it with those after it."""
        self.emit(FENCES[scope](None, ()))

    def assert_(self, condition: Atom, message: str, values: tuple[Atom, ...] = ()) -> None:
        """Tells the host where the condition is false."""
        self.emit(Assert(None, (condition, *values), message))

    def print_(self, message: str, values: tuple[Atom, ...] = ()) -> None:
        """Gives the host a message with values in it."""
        self.emit(Print(None, values, message))

    def finish(self, places: Sequence[Place | None] | None = None) -> Program:
        """The Program, with the places of its statements where they are not those recorded; a grid that was not given is what `ir.language.grids` makes of
        the stores. Raises ValidationError (B107) that names every block that is
        still open."""
        if self.open:
            help, here = "call end() before finish()", user_place()
            raise ValidationError([
                finding("B107", f"this {self.body[index].spelling} block is left open", self.places[index] or here, help) for index in self.open
            ])  # fmt: skip
        memories = tuple(self.memories)
        grid = self.grid or (NO_GRID if self.workgroup == OF_TILES else default_grid(memories, self.body))
        match = [-1] * len(self.body)
        for index, other in self._match.items():
            match[index] = other
        return Program(
            self.name, tuple(self.dims), tuple(self.params), memories, self.workgroup, grid, tuple(self.body), tuple(match),
            self._values, self._variables, self.value_names, self.variable_names, tuple(self.places) if places is None else places, self.doc, self.declared,
            self.subgroup, tuple(self.functions),
        )
