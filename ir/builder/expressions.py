"""The expressions of a builder, with Python's operators, and sizes.

Every operation is emitted at once through the builder that made the operands, so a mistake is reported at the user's own line.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from vyre_py.ir.builder.tiles.tile_values import TileValue
from vyre_py.ir.builder.where import ITEM, NoSuchName, fail, missing, user_place
from vyre_py.ir.imports import importing
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Atom, Const
from vyre_py.ir.language.ops import swizzle_bits
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.types import Kind, Type, encode, u32, vector_of
from vyre_py.ir.public import public
from vyre_py.ir.travel import Stationary

if TYPE_CHECKING:
    from vyre_py.ir.builder.emission import Emitter

__all__ = [
    "Expr", "Index", "NotValue", "Number", "Operand", "apply", "apply_tile", "const", "number", "require_type",
]

Number = bool | int | float | np.generic

_NO_FLOAT = "compute inside the Program: vp.sqrt, vp.exp, vp.floor and their like; vp.cast(x, vp.f32) converts"
_NO_INDEX = "use `with b.for_(start, stop) as k:`; a value picks from a buffer, b.table or b.private; vp.cast(x, vp.i32) converts"


def _rebinding(plain: Callable[[Expr, Operand], Expr]) -> Callable[[Expr, Operand], Expr]:
    """`+=` and its like, by the operator alone; warns in a loop."""

    def assign(self: Expr, other: Operand) -> Expr:
        builder = self.builder or (other.builder if isinstance(other, Expr) else None)
        if builder is not None and type(self) is Expr:  # sizes are known before anything runs
            builder.look_at_rebinding(self)
        return plain(self, other)

    return assign


@public
class Expr(TileValue, Stationary):
    """A value of the Program being built. Python's operators emit ops; anything that would need the value now is refused.

    Where a vector meets a number, or a scalar of its component type, that stands for all components. `v.x` is one component of a
    vector, `v.zyx` a vector of one to four of them in any order; of a scalar, `s.xxx` is a vector of it.

    In a Program of tiles a value may be a tile: operators go element by element, an extent of 1 goes with any, and a number or a scalar of the elements' type
    with all elements. `x.shape`, `x.T`, `x.transpose`, `x.reshape`, `x.reduce`, `x.scan` and `x.item` are of tiles alone.
    """

    belongs_to = "a Program that is built in this process"
    travels_as = "send the Program, once it is built"

    __slots__ = ("_atom", "builder")

    def __init__(self, builder: Emitter | None, atom: Atom) -> None:
        self.builder = builder
        self._atom = atom

    @property
    def atom(self) -> Atom:
        """The operand this stands for."""
        return self._atom

    @property
    def type(self) -> Type:
        """The type of the value."""
        return self._atom.type

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type}>"

    @property
    def x(self) -> Expr:
        """The first component."""
        return _swizzle(self, "x")

    @property
    def y(self) -> Expr:
        """The second component."""
        return _swizzle(self, "y")

    @property
    def z(self) -> Expr:
        """The third component."""
        return _swizzle(self, "z")

    @property
    def w(self) -> Expr:
        """The fourth component."""
        return _swizzle(self, "w")

    def __getattr__(self, name: str) -> Expr:
        # Names with underscores are Python's and its tools' own.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}", name=name, obj=self)
        return _swizzle(self, name)

    def __getitem__(self, index: object) -> NoReturn:
        help = "components are named: v.x, v.zy; an index picks from b.table or b.private"
        fail("B108", f"a value of type {self.type} is not an array", f"a.tile(i, shape=64) loads a part of one; {ITEM}" if self.type.is_tile else help)

    def _tile(self, name: str, *numbers: int) -> Expr:
        return apply_tile(name, self, numbers=numbers)

    def cast(self, type_: Type) -> Expr:
        """The value in another type of as many components, or the tile with elements of another type; itself when the type is the same."""
        require_type(type_)
        return self if type_ in (self.type, self._element) else apply("cast", self, given=type_)

    def bitcast(self, type_: Type) -> Expr:
        """The bits, or those of a tile's elements, as another type of the same width, as u8x4 is of u32's; itself when the type is the same."""
        require_type(type_)
        return self if type_ in (self.type, self._element) else apply("bitcast", self, given=type_)

    @property
    def _element(self) -> Type:
        """The type of a tile's elements; that of any other value."""
        return self.type.scalar if self.type.is_tile else self.type

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
        _raises_floats(self)
        return apply("pow", self, other)

    def __rpow__(self, other: Operand) -> Expr:
        _raises_floats(self)
        return apply("pow", other, self)

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
        return apply("ne" if _is_bool(self) else "xor", self, other)

    def __rxor__(self, other: Operand) -> Expr:
        return apply("ne" if _is_bool(self) else "xor", other, self)

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
        return apply("logical_not" if _is_bool(self) else "not", self)

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

    # `v += x` of a value makes another value, in Python as here; in a loop that is hardly meant.
    __iadd__ = _rebinding(operator.add)
    __isub__ = _rebinding(operator.sub)
    __imul__ = _rebinding(operator.mul)
    __itruediv__ = _rebinding(operator.truediv)
    __ifloordiv__ = _rebinding(operator.floordiv)
    __imod__ = _rebinding(operator.mod)
    __ipow__ = _rebinding(operator.pow)
    __iand__ = _rebinding(operator.and_)
    __ior__ = _rebinding(operator.or_)
    __ixor__ = _rebinding(operator.xor)
    __ilshift__ = _rebinding(operator.lshift)
    __irshift__ = _rebinding(operator.rshift)

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
        fail("B102", "a value has no length", "x.shape has the extents of a tile" if self.type.is_tile else "sizes are dims: b.dim(name)")

    def __round__(self, digits: int | None = None) -> Expr:
        if digits is not None:
            fail("B108", "round(x, digits) is not an op", "round(x) rounds to the nearest whole number, ties to even")
        return apply("round", self)


Operand = Expr | Number
Index = Operand | tuple[Operand, ...]


def _swizzle(x: Expr, names: str) -> Expr:
    type_ = x.type
    if type_.is_tile:
        missing(f"{shown(names)} is nothing that a tile has", "x.shape, x.T, x.reduce and their like; functions are vp.exp(x), vp.max(x, y) and their like")
    lanes = "xyzw"[: type_.lanes]
    if set(names) <= set(lanes) and 1 <= len(names) <= 4:
        return apply("swizzle", x, Expr(None, Const(u32, swizzle_bits(names))), given=vector_of(type_.scalar, len(names)))
    has = f"{type_} has the components {', '.join(lanes)}" if type_.is_vector else f"a scalar {type_} has only x"
    if not set(names) <= set("xyzw"):
        help = "r, g, b and a are x, y, z and w here" if set(names) <= set("rgba") else "functions of values are vp.sqrt(x), vp.length(v) and their like"
        found = finding("B108", f"{shown(names)} names no components: {has}", user_place(), help)
    elif len(names) > 4:
        found = finding("B108", f"{shown(names)} picks {len(names)} components, and a vector has at most 4", user_place(), "make two vectors")
    else:
        found = finding("V210", f"{has}, so no {next(n for n in names if n not in lanes)}", user_place())
    raise NoSuchName(found)


def _is_bool(x: Expr) -> bool:
    return x.type.kind is Kind.BOOL


def _logic(name: str, a: Expr) -> str:
    return f"logical_{name}" if _is_bool(a) else name


def _raises_floats(x: Expr) -> None:
    if not x.type.is_float:
        fail("B108", "`**` is for floats", "write x * x; or convert: vp.cast(x, vp.f32) ** 1.5; 1 << n is a power of two")


def _divides_floats(x: Expr) -> None:
    if not x.type.is_float:
        fail("B108", "`/` divides floats", "integers divide with `//`, toward zero")


def _divides_integers(x: Expr) -> None:
    if x.type.is_float:
        fail("B108", "`//` divides integers", "floats divide with `/`; vp.floor(x / y) rounds down")


def require_type(type_: object) -> None:
    """Raises ValidationError B108 for anything but a type of the language."""
    if not isinstance(type_, Type):
        fail("B108", f"a type of the language is needed, got {shown(type_)}", "vp.f32, vp.i32, vp.u32, vp.f32x4, vp.bool_")


@public
def const(value: Number, type_: Type) -> Expr:
    """A constant of a given type. Raises ValidationError: B106 when the number does not fit, B108 when it is no number, or the type no type."""
    require_type(type_)
    if type_.is_vector:
        help = f"vp.vec{type_.lanes}(...) makes one; a number that meets a vector stands for all components"
        fail("B108", f"a constant is one number, and {type_} is a vector", help)
    if type_.is_tile:
        fail("B108", f"a constant is one number, and {type_} a tile", "b.fill(0.0, shape, type) makes one; a number that meets a tile stands for all elements")
    return Expr(None, number(value, type_))


class NotValue:
    """Something of a builder that cannot stand where a value is needed."""

    __slots__ = ()

    def _instead(self) -> tuple[str, str]:
        """What it is, and what to write in its place."""
        raise NotImplementedError


def number(value: object, type_: Type) -> Const:
    """A Python or NumPy number as a constant of a type, exactly for integers, rounded once for floats."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        if isinstance(value, NotValue):
            what, instead = value._instead()
            fail("B108", f"{what} was used as a {type_} value", instead)
        fail("B108", f"a value or number of type {type_} is needed, got {type(value).__name__}", "pass an expression of this builder, or a number")
    try:
        return Const(type_, encode(type_, value))
    except (TypeError, OverflowError) as error:
        with importing:
            from vyre_py.ir.builder.hints import number_hint

        fail("B106", f"{shown(value)} does not become {type_}: {error}", number_hint(value, type_))


def apply(name: str, *operands: Operand, given: Type | None = None) -> Expr:
    """Emits an op over expressions and numbers; a number takes the type of the first expression that the row marks T."""
    return _owner(name, operands).emit_op(name, operands, given)


def apply_tile(name: str, *operands: Operand, numbers: Sequence[int] = ()) -> Expr:
    """Emits an op over tiles, with the numbers that it takes."""
    return _owner(name, operands).emit_tile(name, operands, numbers)


def _owner(name: str, operands: Sequence[Operand]) -> Emitter:
    """The builder that an op's operands belong to."""
    owner = next((o.builder for o in operands if isinstance(o, Expr) and o.builder is not None), None)
    if owner is None:
        fail("B108", f"{name} of numbers and constants alone belongs to no Program", "compute it in Python, or give one operand from the builder")
    return owner
