"""What a builder hands out for what it declares: mutable variables, and arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from vyre_py.ir.builder.expressions import Expr, Index, NotValue, Operand
from vyre_py.ir.builder.sizes import Size
from vyre_py.ir.builder.where import fail
from vyre_py.ir.language.nodes import Atom, Const, Memory, Variable
from vyre_py.ir.language.types import Type, u32
from vyre_py.ir.public import public
from vyre_py.ir.travel import Stationary

if TYPE_CHECKING:
    from vyre_py.ir.builder.emission import Emitter

__all__ = ["ArrayHandle", "NamedArray", "VariableHandle"]


@public
class VariableHandle(Expr):
    """A mutable value of one invocation. Using it reads it; `set`, `+=` and their like write it, a vector always whole."""

    __slots__ = ("variable",)

    def __init__(self, builder: Emitter, variable: Variable) -> None:
        super().__init__(builder, Const(u32, 0))  # replaced by a fresh Get at every use
        self.variable = variable

    @property
    def atom(self) -> Atom:
        """The value now: emits a get."""
        return self._owner().emit_get(self.variable)

    @property
    def type(self) -> Type:
        """The variable's type."""
        return self.variable.type

    def _owner(self) -> Emitter:
        assert self.builder is not None  # given to __init__
        return self.builder

    def get(self) -> Expr:
        """The value now, which later writes do not change."""
        return Expr(self.builder, self.atom)

    def set(self, value: Operand) -> None:
        """Writes the variable."""
        self._owner().emit_set(self.variable, value)

    def __iadd__(self, other: Operand) -> VariableHandle:
        self.set(self + other)
        return self

    def __isub__(self, other: Operand) -> VariableHandle:
        self.set(self - other)
        return self

    def __imul__(self, other: Operand) -> VariableHandle:
        self.set(self * other)
        return self

    def __itruediv__(self, other: Operand) -> VariableHandle:
        self.set(self / other)
        return self

    def __ifloordiv__(self, other: Operand) -> VariableHandle:
        self.set(self // other)
        return self

    def __imod__(self, other: Operand) -> VariableHandle:
        self.set(self % other)
        return self

    def __ipow__(self, other: Operand) -> VariableHandle:
        self.set(self**other)
        return self

    def __iand__(self, other: Operand) -> VariableHandle:
        self.set(self & other)
        return self

    def __ior__(self, other: Operand) -> VariableHandle:
        self.set(self | other)
        return self

    def __ixor__(self, other: Operand) -> VariableHandle:
        self.set(self ^ other)
        return self

    def __ilshift__(self, other: Operand) -> VariableHandle:
        self.set(self << other)
        return self

    def __irshift__(self, other: Operand) -> VariableHandle:
        self.set(self >> other)
        return self


class NamedArray(NotValue, Stationary):
    """What all arrays of a Program have in common, those of invocations and those of tiles."""

    belongs_to = "a Program that is built in this process"
    travels_as = "send the Program, once it is built"

    __slots__ = ("builder", "memory")

    def __init__(self, builder: Emitter, memory: Memory) -> None:
        self.builder = builder
        self.memory = memory

    def _instead(self) -> tuple[str, str]:
        return f"the array {self.memory.name!r}", f"take an element: {self.memory.name}[i]"

    @property
    def type(self) -> Type:
        """The element type."""
        return self.memory.type

    @property
    def shape(self) -> tuple[Size, ...]:
        """The sizes of the axes."""
        return tuple(Size(self.builder, s) for s in self.memory.shape)

    def __repr__(self) -> str:
        return f"<{self.memory.space.value} {self.memory.name!r} {self.memory.type}>"

    def __getitem__(self, index: Index) -> Expr:
        return self.builder.emit_load(self.memory, index)

    def __setitem__(self, index: Index, value: Operand) -> None:
        self.builder.emit_store(self.memory, index, value)

    def _whole(self, *others: object) -> NoReturn:
        fail("B108", f"{self.memory.name!r} is an array, and operators work on values", f"take an element: {self.memory.name}[i]")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _whole
    __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _whole
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __neg__ = __invert__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _whole
    # Otherwise x == y would be Python's own False: a condition that silently never holds.
    __eq__ = __ne__ = _whole
    __hash__ = object.__hash__
    __array_priority__ = 1000

    def __iter__(self) -> NoReturn:
        fail("B101", f"{self.memory.name!r} was iterated over", "use `with b.for_(0, n) as k:`")

    def __contains__(self, item: object) -> bool:
        fail("B101", f"`in {self.memory.name}` needs the values now")

    def __bool__(self) -> bool:
        fail("B101", f"{self.memory.name!r} was used where Python needs true or false now")

    def __len__(self) -> int:
        fail("B102", f"{self.memory.name!r} has no length yet", "sizes are dims: b.dim(name)")


@public
class ArrayHandle(NamedArray):
    """An array of the Program: `a[i, j]` loads an element, `a[i, j] = v` stores one; past the ends a load is zero and a store is dropped.

    The elements of an array of vectors are whole vectors: `a[i].x` is a component. Atomics give the old value; which types each takes
    stands in `ir/OPS.md`. The `order` of one, "relaxed", "acquire", "release" or "acq_rel", says how it orders other memory, and `scope` for whom: the
    "device" or the "workgroup".
    """

    __slots__ = ()

    def uniform_load(self, index: Index) -> Expr:
        """A barrier, one load for the whole workgroup, a barrier: all its invocations get the same element, even if others write there."""
        return self.builder.emit_load(self.memory, index, uniform=True)

    def atomic_load(self, index: Index, *, order: str = "relaxed", scope: str = "device") -> Expr:
        """The element, as an atomic; its order is relaxed or acquire."""
        return self.builder.emit_atomic("load", self.memory, index, order=order, scope=scope)

    def atomic_store(self, index: Index, value: Operand, *, order: str = "relaxed", scope: str = "device") -> None:
        """Stores the operand, as an atomic; its order is relaxed or release."""
        self.builder.emit_atomic_store(self.memory, index, value, order, scope)

    def atomic_add(self, index: Index, value: Operand, *, order: str = "relaxed", scope: str = "device") -> Expr:
        """Adds; gives the old value."""
        return self.builder.emit_atomic("add", self.memory, index, value, order=order, scope=scope)

    def atomic_sub(self, index: Index, value: Operand, *, order: str = "relaxed", scope: str = "device") -> Expr:
        """Subtracts; gives the old value."""
        return self.builder.emit_atomic("sub", self.memory, index, value, order=order, scope=scope)

    def atomic_min(self, index: Index, value: Operand, *, order: str = "relaxed", scope: str = "device") -> Expr:
        """Keeps the lesser; gives the old value."""
        return self.builder.emit_atomic("min", self.memory, index, value, order=order, scope=scope)

    def atomic_max(self, index: Index, value: Operand, *, order: str = "relaxed", scope: str = "device") -> Expr:
        """Keeps the greater; gives the old value."""
        return self.builder.emit_atomic("max", self.memory, index, value, order=order, scope=scope)

    def atomic_and(self, index: Index, value: Operand, *, order: str = "relaxed", scope: str = "device") -> Expr:
        """Bitwise and; gives the old value."""
        return self.builder.emit_atomic("and", self.memory, index, value, order=order, scope=scope)

    def atomic_or(self, index: Index, value: Operand, *, order: str = "relaxed", scope: str = "device") -> Expr:
        """Bitwise or; gives the old value."""
        return self.builder.emit_atomic("or", self.memory, index, value, order=order, scope=scope)

    def atomic_xor(self, index: Index, value: Operand, *, order: str = "relaxed", scope: str = "device") -> Expr:
        """Bitwise exclusive or; gives the old value."""
        return self.builder.emit_atomic("xor", self.memory, index, value, order=order, scope=scope)

    def atomic_nand(self, index: Index, value: Operand, *, order: str = "relaxed", scope: str = "device") -> Expr:
        """Bitwise and, of which every bit is flipped; gives the old value."""
        return self.builder.emit_atomic("nand", self.memory, index, value, order=order, scope=scope)

    def atomic_exchange(self, index: Index, value: Operand, *, order: str = "relaxed", scope: str = "device") -> Expr:
        """Stores the operand; gives the old value."""
        return self.builder.emit_atomic("exchange", self.memory, index, value, order=order, scope=scope)

    def atomic_compare_exchange(self, index: Index, expected: Operand, desired: Operand, *, order: str = "relaxed", scope: str = "device") -> Expr:
        """Stores `desired` where the old value equals `expected`; gives the old value."""
        return self.builder.emit_atomic("compare_exchange", self.memory, index, expected, desired, order=order, scope=scope)
