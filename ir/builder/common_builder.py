"""What every builder of Programs has: declarations, blocks, variables, messages, and the end, where the Program is finished."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from vyre_py.ir.builder.blocks import Block, Ended
from vyre_py.ir.builder.emission import Emitter
from vyre_py.ir.builder.expressions import Expr, Operand, number, require_type
from vyre_py.ir.builder.handles import NamedArray, VariableHandle
from vyre_py.ir.builder.sizes import Size, as_size
from vyre_py.ir.builder.table_data import table_data
from vyre_py.ir.builder.where import ITEM, fail, user_place, warn
from vyre_py.ir.check.comparisons import decided_comparisons
from vyre_py.ir.check.limits import MAX_PIPELINE, MAX_UNROLL
from vyre_py.ir.functions.function import Function
from vyre_py.ir.imports import deferred, importing
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import OF_TILES, DimConst, DimExpr, Grid
from vyre_py.ir.language.errors import ValidationError, shown
from vyre_py.ir.language.nodes import Access, Atom, Memory, Space, Value
from vyre_py.ir.language.ops import ANY_ORDER, GRID_FOLDS, GRID_OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.types import Kind, Type, bool_, i32, u32
from vyre_py.ir.text.messages import format_fault, formats
from vyre_py.ir.travel import Stationary

if TYPE_CHECKING:
    from vyre_py.ir.builder.traced import Traced

if TYPE_CHECKING:
    from vyre_py.ir.builder import hints, refusals
else:
    hints, refusals = deferred("vyre_py.ir.builder", "hints", "refusals")

__all__ = ["CommonBuilder", "watched"]

_SIZES: Final = "sizes are b.dim(name), and + - *, vp.min, vp.max and vp.ceil_div(n, 2) of them; params and values are not sizes"

# Who is told of each Program that is built.
_watcher: ContextVar[Callable[[Program], None] | None] = ContextVar("watcher", default=None)

H = TypeVar("H", bound=NamedArray)  # what the builder hands out for an array


@contextmanager
def watched(told: Callable[[Program], None]) -> Iterator[None]:
    """A block in which `told` gets every Program that a builder finishes, in this thread."""
    token = _watcher.set(told)
    try:
        yield
    finally:
        _watcher.reset(token)


class CommonBuilder(Emitter, Stationary, Generic[H]):
    """The part of a builder that is the same whether the Program has invocations or tiles."""

    belongs_to = "the process that builds its Program"
    travels_as = "send its program, once it is built"

    def __init__(self, assembler: Assembler, doc: str) -> None:
        self._a = assembler
        self._a.doc = doc
        self._a.place = user_place()
        self._a.note(None)
        self._names: set[str] = set()
        self._ended = Ended()
        self._program: Program | None = None
        self._functions: dict[Traced, Function | None] = {}  # None: it is being traced
        self.unopened: list[Block[Any]] = []
        self.inside = []

    @abstractmethod
    def _array(self, memory: Memory) -> H:
        """What is handed out for an array."""

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._finished = True
        if kind is not None:
            return
        wrong = [finding("B107", f"{block.name} was called without `with`", block.place) for block in self.unopened]
        help = "end it before: leave `with`, or close the generator that holds it; after an exception in a block build the Program anew"
        wrong += [finding("B107", f"this {block.name} block has not ended, and the builder has", block.place, help) for block in self.inside]
        if wrong:
            raise ValidationError(wrong)
        self._program = self._a.finish()
        for index, message in decided_comparisons(self._program):
            warn(finding("V471", message, self._program.place(index)))
        if (told := _watcher.get()) is not None:
            told(self._program)

    @property
    def program(self) -> Program:
        """The finished Program."""
        if self._program is None:
            fail("B107", "the Program is not finished", "read b.program after the builder's `with` block has ended without an error")
        return self._program

    # ---- declarations

    def _declare(self, name: str) -> Assembler:
        self._require_open()
        if not isinstance(name, str) or not name:
            fail("B108", f"a name is a non-empty string, got {name!r}", "give every argument a name")
        if name in self._names:
            fail("B104", f"{name!r} is declared twice")
        self._names.add(name)
        return self._here()

    def dim(self, name: str) -> Size:
        """A symbolic size of 0 to 2^48 - 1, solved from the arguments' shapes when the Program is bound, or given there by name.

        A u32 where it meets values, and then below 2^32; `vp.cast(n, vp.u64)` takes it whole. `+`, `-`, `*`, `vp.min`, `vp.max` and
        `vp.ceil_div` of sizes are sizes. Sizes of an array are below 2^32 unless the Program indexes it with i64 or u64.
        """
        return Size(self, self._declare(name).dim(name))

    def param(self, name: str, type_: Type) -> Expr:
        """An argument passed by value: a Python or NumPy number that `type_` holds; for a vector a sequence of as many as it has components."""
        self._require_declared(type_)
        return Expr(self, self._declare(name).param(name, type_))

    def read(self, name: str, type_: Type, *shape: int | Expr) -> H:
        """An argument array that is only read: one size per axis, the last axis contiguous; a NumPy array of `type_.dtype` when bound.

        The array of a vector type has one axis more, its components: `b.read("p", vp.f32x3, n)` takes one of shape (n, 3).
        """
        return self._memory(name, Space.BUFFER, type_, shape, Access.READ)

    def write(self, name: str, type_: Type, *shape: int | Expr) -> H:
        """An argument array that is only written; `dispatch` makes it of zeros when it is left out."""
        return self._memory(name, Space.BUFFER, type_, shape, Access.WRITE)

    def read_write(self, name: str, type_: Type, *shape: int | Expr) -> H:
        """An argument array that is read and written."""
        return self._memory(name, Space.BUFFER, type_, shape, Access.READ_WRITE)

    def table(self, name: str, data: Any, type_: Type | None = None) -> H:
        """A constant array with the elements and shape of `data`, whose type is the array's own unless given.

        Numbers become elements as in `vp.const`: exactly for integers, rounded once for floats. For a vector type, the last axis of
        `data` holds the components.
        """
        element, shape, stored = table_data(name, data, type_)
        return self._memory(name, Space.TABLE, element, shape, Access.READ, stored)

    def _memory(self, name: str, space: Space, type_: Type, shape: Sequence[int | Expr], access: Access, data: bytes = b"") -> H:
        self._require_declared(type_)
        axes = tuple(self._axis(repr(name), axis) for axis in shape)
        if not axes:
            fail("B108", f"{name!r} needs at least one axis", hints.axes_hint(space, access, name, type_))
        if space is not Space.BUFFER and not all(isinstance(a, DimConst) for a in axes):
            fail("B108", f"the axes of {space.value} array {name!r} must be whole numbers", "only argument buffers have symbolic sizes")
        return self._array(self._declare(name).memory(name, space, type_, axes, access, data))

    @staticmethod
    def _require_declared(type_: Type) -> None:
        require_type(type_)
        if type_.is_tile:
            fail("B108", f"arguments and arrays have scalars or vectors, and no {type_}", hints.element_hint(type_))

    def _axis(self, what: str, axis: int | Expr) -> DimExpr:
        if isinstance(axis, Size) and axis.builder not in (self, None):
            fail("B105", f"an axis of {what} is a size of another builder")
        expr = as_size(axis)
        if expr is None:
            hint = "write one size per axis: n, m rather than (n, m)" if isinstance(axis, (tuple, list)) else _SIZES
            fail("B108", f"an axis of {what} must be a whole number or a size, got {shown(axis)}", hint)
        return expr

    def grid(self, *workgroups: int | Expr) -> None:
        """Runs this many workgroups along x, y, z."""
        self._grid(False, workgroups)

    def _grid(self, over: bool, extents: Sequence[int | Expr]) -> None:
        self._require_open()
        if not 1 <= len(extents) <= 3:
            fail("B108", f"a grid has 1 to 3 axes, got {len(extents)}", "b.over(width, height)" if over else "b.grid(vp.ceil_div(n, 256))")
        axes: list[DimExpr] = [self._axis("the grid", e) for e in extents]
        x, y, z = [*axes, DimConst(1), DimConst(1)][:3]
        self._a.grid = Grid(over, (x, y, z))

    # ---- functions

    def function_of(self, traced: Traced) -> Function:
        """The Program's function of a Python function, traced where it is first called."""
        known = self._functions.get(traced)
        if known is None:
            if traced in self._functions:
                fail("B108", f"{traced.name} calls itself: a function has no recursion", "write a loop, by a first parameter b without a type")
            self._functions[traced] = None
            try:
                known = traced.trace(self, {function.name for function in self._functions.values() if function is not None})
            finally:
                del self._functions[traced]
            self._functions[traced] = known
        return known

    def _called(self, function: Function, atoms: tuple[Atom, ...]) -> Atom:
        a = self._here()
        if function not in a.functions:
            a.functions.append(function)
        return a.let(function, atoms)

    def workgroup_id(self, axis: int = 0) -> Expr:
        """The workgroup's place in the grid along an axis."""
        return self._query("workgroup_id", axis)

    def num_workgroups(self, axis: int = 0) -> Expr:
        """The number of workgroups along an axis."""
        return self._query("num_workgroups", axis)

    def _query(self, name: str, axis: int) -> Expr:
        if axis not in (0, 1, 2):
            fail("B108", f"axis {axis!r} is not 0, 1 or 2", "axis 0 is x")
        return self.emit_op(f"{name}.{'xyz'[axis]}", (), None)

    # ---- statements

    def let(self, name: str, value: Operand) -> Expr:
        """Gives a value a name, for reading; the value itself."""
        if not isinstance(name, str) or not isinstance(value, Expr):
            hint = "b.let('i', b.global_id(0)); vp.const(1, vp.u32) makes a constant, b.var a variable"
            fail("B108", f"let takes a name and an expression, got {shown(name)} and {shown(value)}", hint)
        atom = self._own(value)
        if isinstance(atom, Value):
            self._a.value_names.setdefault(atom.id, name)
        return Expr(self, atom)

    def var(self, name: str, type_: Type, first: Operand = 0) -> VariableHandle:
        """A mutable value of one invocation, `first` at the start. `v.set(x)` and `v += x` write it; using `v` reads it now."""
        if not isinstance(name, str):
            fail("B108", f"a variable's name is a string, got {shown(name)}", "b.var('total', vp.f32)")
        require_type(type_)
        # A 0 that was left out, too, is false.
        start = False if type_.kind is Kind.BOOL and not isinstance(first, Expr) and first == 0 else first
        value = self._typed(start, type_, f"variable {name!r}")
        return VariableHandle(self, self._here().var(type_, value, name))

    def if_(self, condition: Operand) -> Block[None]:
        """The block runs where the condition, one bool, is true."""
        return Block(self, "b.if_", lambda: self._begin_if(condition))

    def _begin_if(self, condition: Operand) -> None:
        self._here().if_(self._typed(condition, bool_, "a condition"))

    def else_(self) -> Block[None]:
        """The block runs where the condition of the `if_` block just before is false."""
        return Block(self, "b.else_", self._begin_else)

    def _begin_else(self) -> None:
        a = self._here()
        if not a.can_reopen():
            fail("B107", "else_ does not follow an if_ block", "write `with b.else_():` directly after the `with b.if_(...)` block")
        a.reopen()
        a.else_()

    def for_(
        self, start: Operand, stop: Operand, step: Operand = 1, *, type_: Type | None = None, name: str | None = None, unroll: int = 0, pipeline: int = 0
    ) -> Block[Expr]:
        """The block runs for start, start + step, ... below stop (above it for a step that is a negative number); u32 unless an operand or `type_` says.
        A step that is computed counts up: the block does not run where it is not above 0.

        `with b.for_(0, n) as k:` gives the number of the turn, of the bounds' type. `unroll` is a hint to compilers, without meaning: how many turns, up to
        256, to write out one behind the other; 1 for none, 0 leaves it to them. `pipeline` is one, too, in a Program of tiles: for how many turns, up to 32,
        the tiles that are loaded have room at a time, so that those of later turns are copied ahead; 1 copies nothing ahead, 0 leaves it to compilers.
        """
        return Block(self, "b.for_", lambda: self._begin_for(start, stop, step, type_, name, unroll, pipeline))

    def _begin_for(self, start: Operand, stop: Operand, step: Operand, type_: Type | None, name: str | None, unroll: int, pipeline: int) -> Expr:
        if type_ is not None:
            require_type(type_)
        if not isinstance(name, str | None):
            fail("B108", f"a loop's name is a string, got {shown(name)}", "b.for_(0, n, name='k')")
        for hint, given, code, most in (("unroll", unroll, "V214", MAX_UNROLL), ("pipeline", pipeline, "V216", MAX_PIPELINE)):
            if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= most:
                fail(code, f"a loop's {hint} is a whole number up to {most}, got {shown(given)}", f"b.for_(0, n, {hint}=4)")
        if pipeline and self._here().workgroup != OF_TILES:
            fail("V606", f"pipeline={pipeline} is given in a Program of invocations", "leave it out; vp.TileBuilder makes Programs whose loops take it")
        wanted = type_ or next((o.type for o in (start, stop, step) if isinstance(o, Expr)), u32)
        if wanted not in (i32, u32):
            help = "convert the bounds: vp.cast(x, vp.u32); or use b.loop() with a variable"
            fail("B108", f"a loop counts in i32 or u32, got {wanted}", ITEM if wanted.is_tile else help)
        first, last = self._typed(start, wanted, "a loop's start"), self._typed(stop, wanted, "a loop's stop")
        if isinstance(step, Expr):
            return Expr(self, self._here().for_(first, last, self._typed(step, wanted, "a loop's step"), name, unroll, pipeline))
        if not isinstance(step, int) or step == 0:
            fail("B108", f"a loop's step is a whole number other than 0, or an expression, got {shown(step)}", "use b.loop() for other steps")
        return Expr(self, self._here().for_(first, last, number(step, wanted), name, unroll, pipeline))

    def loop(self) -> Block[None]:
        """The block runs until a break or return."""
        return Block(self, "b.loop", lambda: self._here().loop())

    def region(self, name: str) -> Block[None]:
        """A named block, for people and profilers."""
        if not isinstance(name, str):
            fail("B108", f"a region's name is a string, got {shown(name)}", "b.region('blur rows')")
        return Block(self, "b.region", lambda: self._here().region(name))

    def assert_(self, condition: Operand, message: str = "", *values: Operand) -> None:
        """Where the condition, one bool, is false, the next wait for the launch raises KernelAssertion, with the message, in which each `{}` stands for a
        value, and where that was. The invocation goes on: what must not run then stands under an `if_`."""
        decided = self._typed(condition, bool_, "a condition")
        atoms = self._reported("assert_", message, values)
        self._here().assert_(decided, message, atoms)

    def trap(self, message: str = "trap", *values: Operand) -> None:
        """An assertion that always fails, wherever an invocation gets here."""
        self.assert_(False, message, *values)

    def print(self, message: str, *values: Operand) -> None:
        """Prints a line on the host once the launch is waited for: the message, in which each `{}` stands for a value; `{{` and `}}` are braces.

        `{:.3f}` and `{:08x}` are formats as Python has them, of each component of a vector: for integers of the types b, d, o, x and X, for floats e, E, f, F,
        g, G and %, for bools an alignment and a width alone. Raises ValidationError V212 for another number of values, V215 for a format that is not for its
        value.
        """
        atoms = self._reported("print", message, values)
        self._here().print_(message, atoms)

    def _reported(self, call: str, message: str, values: Sequence[Operand]) -> tuple[Atom, ...]:
        """The values of a message. One that does not fit them is refused."""
        example = f"b.{call}({'x < n, ' * (call == 'assert_')}'x is {{}} of {{}}', x, n)"
        specs = formats(message) if isinstance(message, str) else None
        if specs is None:
            fail("V212", f"a message is a string in which braces are {{}}, {{:.3f}}, {{{{ or }}}}, got {shown(message)}", example)
        if len(specs) != len(values):
            fail("V212", f"the message {shown(message)} takes {len(specs)} value{'s' * (len(specs) != 1)}, got {len(values)}", example)
        for spec, value in zip(specs, values, strict=True):
            if not isinstance(value, Expr):
                fail("B106", f"nothing says what type {shown(value)} has in a message", "vp.const(value, type) gives it one; or write it into the message")
            if value.type.is_tile:
                fail("V215", f"a message has scalars and vectors, and no {value.type}", ITEM)
            if fault := format_fault(spec, value.type):
                fail("V215", f"{fault}, in the message {shown(message)}", example)
        return tuple([self._own(value) for value in values if isinstance(value, Expr)])

    @property
    def bound(self) -> int:
        """How many values there are."""
        return self._a.value_count

    def end_block(self, block: Block[Any]) -> None:
        """Ends a block, which must be the innermost one."""
        if not self.inside or self.inside[-1] is not block:
            fail("B107", f"the {block.name} block at {block.place} ends where another one is open, or none")
        self._here().end()
        self.inside.pop()
        self._ended.add(block.first, self.bound, block)

    def break_(self) -> None:
        """Leaves the innermost loop."""
        self._here().break_()

    def break_if(self, condition: Operand) -> None:
        """Leaves the innermost loop where the condition is true."""
        with self.if_(condition):
            self.break_()

    def continue_(self) -> None:
        """Goes on with the innermost loop's next turn."""
        self._here().continue_()

    def return_(self) -> None:
        """Ends the invocation, or the workgroup in a Program of tiles."""
        self._here().return_()

    def grid_scan(self, op: str, x: Expr, *, any_order: bool = False) -> Expr:
        """x of all workgroups with a smaller number, folded by "add", "mul", "min", "max", "and", "or" or "xor"; in the first the identity of the op, as 0
        of a sum. Numbers count along x first. x is a scalar of 32 or 64 bits, the same for the whole workgroup (V409), which comes to this once (V408).

        Sums and products of floats need `any_order`: the order, and so their last bits, may change from run to run. All else is exact.
        It is a barrier of the workgroup, and orders no memory between workgroups. Raises ValidationError at the caller's line.
        """
        if not isinstance(x, Expr):
            fail("B106", f"nothing says what type {shown(x)} has in a grid_scan", "vp.const(value, type) gives it one")
        if not isinstance(op, str) or op not in GRID_OPS:
            fail("V201", f"grid_scan does not fold with {shown(op)}", f"one of {', '.join(GRID_OPS)}")
        fold, atom = f"{op} {ANY_ORDER}" if any_order else op, self._own(x)
        if fold not in GRID_FOLDS or not GRID_FOLDS[fold].accepts((x.type,)):
            with importing:
                from vyre_py.ir.language.describe import PYTHON

            fail("V201", *refusals.refusal_grid(fold, x.type, PYTHON))
        return Expr(self, self._here().grid_scan(fold, atom))
