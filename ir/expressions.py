"""What a builder hands out: expressions with Python's operators, and sizes.

Every operation is emitted at once through the builder that made the operands, so a mistake is reported at the user's own line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from vyre_py.ir.dims import DimConst, DimExpr, dim_op, is_size
from vyre_py.ir.errors import ValidationError, shown
from vyre_py.ir.hints import number_hint
from vyre_py.ir.nodes import Atom, Const
from vyre_py.ir.rules import finding
from vyre_py.ir.types import Scalar, bool_, encode, u32
from vyre_py.ir.where import user_place

if TYPE_CHECKING:
    from vyre_py.ir.builder import ProgramBuilder

__all__ = [
    "Expr", "Index", "Number", "Operand", "Size", "apply", "as_size", "const", "fail", "number", "require_type",
    "size_op",
]

Number = bool | int | float | np.generic

_NO_FLOAT = "compute inside the Program: vp.sqrt, vp.exp, vp.floor and their like; vp.cast(x, vp.f32) converts"
_NO_INDEX = "use `with b.for_(start, stop) as k:`; a value picks from a buffer, b.table or b.private; vp.cast(x, vp.i32) converts"


def fail(code: str, message: str, help: str | None = None) -> NoReturn:
    """Raises the finding at the user's own line."""
    raise ValidationError(finding(code, message, user_place(), help))


class Expr:
    """A value of the Program being built. Python's operators emit ops; anything that would need the value now is refused."""

    __slots__ = ("_atom", "builder")

    def __init__(self, builder: ProgramBuilder | None, atom: Atom) -> None:
        self.builder = builder
        self._atom = atom

    @property
    def atom(self) -> Atom:
        """The operand this stands for."""
        return self._atom

    @property
    def type(self) -> Scalar:
        """The type of the value."""
        return self._atom.type

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type}>"

    def cast(self, type_: Scalar) -> Expr:
        """The value in another type; itself when the type is the same."""
        require_type(type_)
        return self if self.type is type_ else apply("cast", self, given=type_)

    def bitcast(self, type_: Scalar) -> Expr:
        """The bits as another type of the same width; itself when the type is the same."""
        require_type(type_)
        return self if self.type is type_ else apply("bitcast", self, given=type_)

    # ---- operators

    def __add__(self, other: Operand) -> Expr:
        return apply("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return apply("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return apply("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return apply("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return apply("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return apply("mul", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        _divides_floats(self)
        return apply("div", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        _divides_floats(self)
        return apply("div", other, self)

    def __floordiv__(self, other: Operand) -> Expr:
        _divides_integers(self)
        return apply("div", self, other)

    def __rfloordiv__(self, other: Operand) -> Expr:
        _divides_integers(self)
        return apply("div", other, self)

    def __pow__(self, other: Operand) -> Expr:
        fail("B108", "`**` is not an op", "write x * x; for other powers of x > 0, vp.exp(vp.log(x) * y)")

    __rpow__ = __pow__

    def __mod__(self, other: Operand) -> Expr:
        return apply("rem", self, other)

    def __rmod__(self, other: Operand) -> Expr:
        return apply("rem", other, self)

    def __and__(self, other: Operand) -> Expr:
        return apply(_logic("and", self), self, other)

    def __rand__(self, other: Operand) -> Expr:
        return apply(_logic("and", self), other, self)

    def __or__(self, other: Operand) -> Expr:
        return apply(_logic("or", self), self, other)

    def __ror__(self, other: Operand) -> Expr:
        return apply(_logic("or", self), other, self)

    def __xor__(self, other: Operand) -> Expr:
        return apply("ne" if self.type is bool_ else "xor", self, other)

    def __rxor__(self, other: Operand) -> Expr:
        return apply("ne" if self.type is bool_ else "xor", other, self)

    def __lshift__(self, other: Operand) -> Expr:
        return apply("shl", self, other)

    def __rlshift__(self, other: Operand) -> Expr:
        return apply("shl", other, self)

    def __rshift__(self, other: Operand) -> Expr:
        return apply("shr", self, other)

    def __rrshift__(self, other: Operand) -> Expr:
        return apply("shr", other, self)

    def __neg__(self) -> Expr:
        return apply("neg", self)

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return apply("abs", self)

    def __invert__(self) -> Expr:
        return apply("logical_not" if self.type is bool_ else "not", self)

    def __eq__(self, other: Operand) -> Expr:  # type: ignore[override]  # comparisons build ops, as in NumPy
        return apply("eq", self, other)

    def __ne__(self, other: Operand) -> Expr:  # type: ignore[override]  # comparisons build ops, as in NumPy
        return apply("ne", self, other)

    def __lt__(self, other: Operand) -> Expr:
        return apply("lt", self, other)

    def __le__(self, other: Operand) -> Expr:
        return apply("le", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return apply("gt", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return apply("ge", self, other)

    # Comparisons give an Expr, so an Expr cannot be a dictionary key.
    __hash__ = None  # type: ignore[assignment]  # the way Python spells "unhashable"

    # ---- what Python would need to know now

    def __bool__(self) -> bool:
        fail("B101", f"a {self.type} value of the Program was used where Python needs true or false now")

    def __int__(self) -> int:
        fail("B102", f"a {self.type} value of the Program was converted to a Python int")

    def __float__(self) -> float:
        fail("B102", f"a {self.type} value of the Program was converted to a Python float", _NO_FLOAT)

    def __index__(self) -> int:
        fail("B102", f"a {self.type} value of the Program was used as a Python index, or in range()", _NO_INDEX)

    # NumPy's numbers and arrays leave an operator to the value on its other side.
    __array_priority__ = 1000

    def __array__(self, *rest: Any, **named: Any) -> NoReturn:
        fail("B102", f"a {self.type} value of the Program was handed to NumPy", _NO_FLOAT)

    def __iter__(self) -> NoReturn:
        fail("B101", "a value of the Program was iterated over", "use `with b.for_(start, stop) as k:`")

    def __contains__(self, item: object) -> bool:
        fail("B101", "`in` needs the values now")

    def __len__(self) -> int:
        fail("B102", "a value has no length", "sizes are dims: b.dim(name)")

    def __round__(self, digits: int | None = None) -> Expr:
        if digits is not None:
            fail("B108", "round(x, digits) is not an op", "round(x) rounds to the nearest whole number, ties to even")
        return apply("round", self)


Operand = Expr | Number
Index = Operand | tuple[Operand, ...]


def _logic(name: str, a: Expr) -> str:
    return f"logical_{name}" if a.type is bool_ else name


def _divides_floats(x: Expr) -> None:
    if not x.type.is_float:
        fail("B108", "`/` divides floats", "integers divide with `//`, toward zero")


def _divides_integers(x: Expr) -> None:
    if x.type.is_float:
        fail("B108", "`//` divides integers", "floats divide with `/`; vp.floor(x / y) rounds down")


class Size(Expr):
    """A dim, or an exact expression of dims: a size in shapes, and a u32 where it meets values."""

    __slots__ = ("expr",)

    def __init__(self, builder: ProgramBuilder | None, expr: DimExpr) -> None:
        super().__init__(builder, expr if not isinstance(expr, DimConst) else Const(u32, expr.value))
        self.expr = expr

    def __add__(self, other: Operand) -> Expr:
        made = size_op("add", self, other)
        return super().__add__(other) if made is None else made

    def __radd__(self, other: Operand) -> Expr:
        made = size_op("add", other, self)
        return super().__radd__(other) if made is None else made

    def __sub__(self, other: Operand) -> Expr:
        made = size_op("sub", self, other)
        return super().__sub__(other) if made is None else made

    def __rsub__(self, other: Operand) -> Expr:
        made = size_op("sub", other, self)
        return super().__rsub__(other) if made is None else made

    def __mul__(self, other: Operand) -> Expr:
        made = size_op("mul", self, other)
        return super().__mul__(other) if made is None else made

    def __rmul__(self, other: Operand) -> Expr:
        made = size_op("mul", other, self)
        return super().__rmul__(other) if made is None else made


def as_size(operand: Operand) -> DimExpr | None:
    """The dim expression of a size or a whole number, or None."""
    if isinstance(operand, Size):
        return operand.expr
    return DimConst(int(operand)) if is_size(operand) else None


def size_op(name: str, a: Operand, b: Operand) -> Size | None:
    """The exact operation on two sizes, or None when one of them is none."""
    left, right = as_size(a), as_size(b)
    if left is None or right is None:
        return None
    try:
        made = dim_op(name, left, right)
    except (OverflowError, ZeroDivisionError) as error:
        fail("B106", str(error), "compute the size in the Program, or bind it as a dim of its own")
    builder = next((o.builder for o in (a, b) if isinstance(o, Size) and o.builder is not None), None)
    return Size(builder, made)


def require_type(type_: object) -> None:
    """Raises ValidationError B108 for anything but a type of the language."""
    if not isinstance(type_, Scalar):
        fail("B108", f"a type of the language is needed, got {shown(type_)}", "vp.f32, vp.i32, vp.u32, vp.u8, vp.bool_")


def const(value: Number, type_: Scalar) -> Expr:
    """A constant of a given type. Raises ValidationError: B106 when the number does not fit, B108 when one of the two is none."""
    require_type(type_)
    return Expr(None, number(value, type_))


def number(value: object, type_: Scalar) -> Const:
    """A Python or NumPy number as a constant of a type, exactly for integers, rounded once for floats."""
    if isinstance(value, np.generic):
        value = value.item()
    from vyre_py.ir.handles import ArrayHandle  # made of the expressions here

    if isinstance(value, ArrayHandle):
        fail("B108", f"the array {value.memory.name!r} was used as a {type_} value", f"take an element: {value.memory.name}[i]")
    if not isinstance(value, (bool, int, float)):
        fail("B108", f"a value or number of type {type_} is needed, got {type(value).__name__}", "pass an expression of this builder, or a number")
    try:
        return Const(type_, encode(type_, value))
    except (TypeError, OverflowError) as error:
        fail("B106", f"{shown(value)} does not become {type_}: {error}", number_hint(value, type_))


def apply(name: str, *operands: Operand, given: Scalar | None = None) -> Expr:
    """Emits an op over expressions and numbers; a number takes the type of the first expression that the row marks T."""
    owner = next((o.builder for o in operands if isinstance(o, Expr) and o.builder is not None), None)
    if owner is None:
        fail("B108", f"{name} of numbers and constants alone belongs to no Program", "compute it in Python, or give one operand from the builder")
    return owner.emit_op(name, operands, given)
