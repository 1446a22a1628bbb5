"""Operands of `.vir` text: statements are emitted while expressions are parsed, and operands without a type wait for one.

An op is emitted once its operands have been read: in post-order, which is the language's order of evaluation, left to right. What has no type yet, a bare
literal or an op over such alone, is an `Open` operand. It takes its type from something beside or around it: an operand of the same op, a component beside
it in a vector, what is stored to. The statement of such an op is a `_Draft`, whose place in the body is kept. `settle` writes it there at the end of the
expression.

An operand that does not fit ends nothing: what cannot be parsed is reported first, else the first operand at fault in the order of evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from vyre_py.ir.builder.refusals import refusal
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.errors import Diagnostic
from vyre_py.ir.language.nodes import Atom, Const, Let, Value
from vyre_py.ir.language.op import Op, Result
from vyre_py.ir.language.op import Operand as Pattern
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.tiles.tile_op import broadcast
from vyre_py.ir.language.types import Kind, Type, bool_, i32, tile_of, u32, vector_of
from vyre_py.ir.text.cursor import Cursor, Failed
from vyre_py.ir.text.lexer import literal_bits
from vyre_py.ir.text.tokens import Tokens

__all__ = ["MAX_PARTS", "Open", "Operand", "OperandParser"]

Span = tuple[int, int]
MAX_PARTS: Final = 4096  # of one statement


@dataclass(slots=True, eq=False)
class Open:
    """An operand without a type: a literal (`digits`), or the result of an op (`draft`). `group` holds the operands that take their type from it: the same,
    or that of a component where `vector` is true. `order` counts the parts of the expression up to it; `span` is its first and last token. `shape` is
    that of a tile which is known to be one though the type of its elements is not. Once it has a `type`, `atom` is what stands for it."""

    order: int
    span: Span
    digits: str = ""
    negative: bool = False
    group: tuple[Open, ...] = ()
    vector: bool = False
    draft: _Draft | None = None
    shape: tuple[int, ...] = ()
    type: Type | None = None
    atom: Atom | None = None


Operand = Atom | Open


@dataclass(slots=True, eq=False)
class _Draft:
    """An op over open operands, whose statement is number `index` of the body. `number` is that of the value that it binds; `value` is that value once
    its type is likely, which is what later operands are made of. `lanes` is how many components it picks, if it picks any."""

    order: int
    span: Span
    index: int
    number: int
    row: Op
    operands: tuple[Operand, ...]
    given: Type | None
    lanes: int
    value: Value | None


class OperandParser(Cursor):
    """Emits the ops of the expressions that are parsed, and gives open operands their types. Spans are of tokens, the first and the last."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self.assembler = Assembler("")
        # Of the statement at hand:
        self._parts = 0
        self._drafts: list[_Draft] = []
        self._faults: list[tuple[int, Diagnostic]] = []  # each with its order of evaluation

    def clear_operands(self) -> None:
        """Forgets the operands of the statement before."""
        self._parts = 0
        if self._drafts or self._faults:
            self._drafts.clear()
            self._faults.clear()

    # ---- parts

    def part(self, first: int) -> None:
        """Counts a part of an expression, from token `first` to the last one read; a statement that is emitted next has its place. Raises Failed where
        there are too many."""
        self.assembler.place = (first, self.position - 1)
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise self.too_many(first)

    def too_many(self, first: int) -> Failed:
        """The failure of an expression that has too many parts with what begins at token `first`."""
        return Failed(finding("P107", f"an expression has more than {MAX_PARTS} parts", self.tokens.place(first, self.position - 1)))

    def number(self, type_: Type | None, digits: str, negative: bool, first: int) -> Operand:
        """A literal, with the type of its suffix if it has one."""
        literal = Open(self._parts, (first, self.position - 1), digits, negative)
        return literal if type_ is None else self._constant(literal, type_, suffixed=True)

    def pattern(self, type_: Type, digits: str, first: int) -> Const:
        """A constant of these hexadecimal bits."""
        bits, most = int(digits, 16), type_.bits if type_.kind is not Kind.BOOL else 1
        if bits >> most:
            self._fault(self._parts, (first, self.position - 1), "P105", f"{digits} has more than {type_.bits} bits")
        return Const(type_, bits)

    def _constant(self, literal: Open, type_: Type, suffixed: bool) -> Const:
        try:
            return Const(type_, literal_bits(type_, literal.digits, literal.negative, suffixed))
        except ValueError as error:
            self._fault(literal.order, literal.span, "P105", str(error))
            return Const(type_, 0)

    def _fault(self, order: int, span: Span, code: str, message: str, help: str | None = None) -> None:
        self._faults.append((order, finding(code, message, self.tokens.place(*span), help)))

    # ---- ops

    def op(self, row: Op, operands: tuple[Operand, ...], first: int, given: Type | None = None, lanes: int = 0) -> Operand:
        """Emits an op over its operands, from token `first` to the last one read. A swizzle of an open operand picks so many `lanes`."""
        self.part(first)
        # Most ops have two operands, and a loop over two costs more than their types.
        types = (operands[0].type, operands[1].type) if len(operands) == 2 else tuple([operand.type for operand in operands])
        if None in types:
            return self._late_op(row, operands, given, lanes)
        type_ = row.result_type(types, given)
        return self.assembler.let_of(type_ or self._refused(row, operands, given), row, cast(tuple[Atom, ...], operands))

    def _refused(self, row: Op, operands: tuple[Operand, ...], given: Type | None) -> Type:
        """Takes note that the op that is emitted next does not take its operands; the type that it would have."""
        self._refuse(self._parts, self.assembler.place, row, tuple([cast(Type, operand.type) for operand in operands]), given)
        return cast(Type, given or _likely_type(row, operands))  # over typed operands it is known

    def _refuse(self, order: int, span: Span, row: Op, types: tuple[Type, ...], given: Type | None) -> None:
        message, help = refusal(row, types, given)
        self._fault(order, span, "V201", message, help)

    def _late_op(self, row: Op, operands: tuple[Operand, ...], given: Type | None, lanes: int) -> Operand:
        """Emits an op some of whose operands have come without a type."""
        t, known, sure = _operand_type(row, operands), [], True
        for operand, pattern in zip(operands, row.operands, strict=True):
            if type(operand) is Open:
                wanted = t if pattern is Pattern.T else _beside(pattern, t)
                sure = sure and operand.digits != ""
                known.append(self.fix(operand, wanted) if wanted is not None else operand)
            else:
                known.append(operand)
        types = tuple([operand.type for operand in known])
        made = row.result_type(types, given) if None not in types else None
        if None not in types and sure:
            return self.assembler.let_of(made or self._refused(row, tuple(known), given), row, cast(tuple[Atom, ...], tuple(known)))
        # The type of an op that is settled later is likely, and no more.
        type_ = made or given or _likely_type(row, tuple(known))
        held = self.assembler.let_of(type_ or u32, row, ())  # keeps its place in the body, and its number
        value = held if type_ is not None else None
        draft = _Draft(self._parts, self.assembler.place, len(self.assembler.body) - 1, held.id, row, tuple(known), given, lanes, value)
        self._drafts.append(draft)
        if value is not None:
            return value
        shares = lanes > 0 or row.result in (Result.T, Result.VECTOR)
        group = [member for member, pattern in zip(known, row.operands, strict=True) if type(member) is Open and (lanes or pattern is Pattern.T)]
        vector = lanes > 0 or row.result is Result.VECTOR
        return Open(self._parts, self.assembler.place, group=tuple(group) if shares else (), vector=vector, draft=draft, shape=_shape(known))

    # ---- types of open operands

    def fix(self, operand: Operand, type_: Type) -> Atom:
        """Gives an operand without a type this one, and those whose type follows from it theirs; the atom that stands for it. Of a tile it takes the type of
        the elements."""
        if not isinstance(operand, Open):
            return operand
        waiting = [(operand, type_.scalar if type_.is_tile else type_)] if operand.type is None else []
        while waiting:
            one, wanted = waiting.pop()
            one.type = tile_of(wanted.scalar, one.shape) if one.shape else wanted
            if one.draft is not None:
                one.atom = one.draft.value = Value(one.draft.number, one.type)
                inner = wanted.scalar if one.vector else wanted
                waiting += [(member, inner) for member in one.group if member.type is None]
            else:
                one.atom = self._constant(one, wanted, suffixed=False)
        assert operand.atom is not None  # it has a type now
        return operand.atom

    def closed(self, operands: Sequence[Operand]) -> tuple[Atom, ...]:
        """Operands that have types already. Raises Failed for the first that has none."""
        if open_ := next((operand for operand in operands if isinstance(operand, Open)), None):
            raise Failed(finding("P104", "nothing here fixes the type of this literal", self.tokens.place(*open_.span)))
        return cast(tuple[Atom, ...], tuple(operands))

    def settle(self, *operands: Operand) -> tuple[Atom, ...]:
        """The atoms of a statement's operands, all of which have been read. Raises Failed with the first thing that is at fault in their expressions."""
        if not (self._drafts or self._faults or Open in map(type, operands)):
            return cast(tuple[Atom, ...], operands)
        settled = self._settled(operands)
        changed: dict[int, Value] = {}
        for draft in self._drafts:
            self._write(draft, changed)
        if self._faults:
            raise Failed(min(self._faults, key=lambda fault: fault[0])[1])
        if changed:
            body = self.assembler.body
            for index in range(self._drafts[0].index, len(body)):
                body[index] = body[index].rebuilt(body[index].result, _replaced(body[index].args, changed))
        return _replaced(settled, changed)

    def _settled(self, operands: tuple[Operand, ...]) -> tuple[Atom, ...]:
        """The atoms that stand for operands. For one that is still open there is a fault, and none."""
        atoms: list[Atom] = []
        for operand in operands:
            if not isinstance(operand, Open):
                atoms.append(operand)
            elif operand.atom is not None:
                atoms.append(operand.atom)
            else:
                self._fault(operand.order, operand.span, "P104", "nothing here fixes the type of this literal")
        return tuple(atoms)

    def _write(self, draft: _Draft, changed: dict[int, Value]) -> None:
        """Writes the statement of a draft into its place. A value whose type is not the likely one is `changed`."""
        args = _replaced(self._settled(draft.operands), changed)
        if len(args) < len(draft.operands):
            return
        types = tuple([arg.type for arg in args])
        wanted = vector_of(types[0].scalar, draft.lanes) if draft.lanes else draft.given
        type_ = draft.row.result_type(types, wanted)
        if type_ is None:
            self._refuse(draft.order, draft.span, draft.row, types, wanted)
            return
        value = draft.value
        if value is None or value.type is not type_:
            value = changed[draft.number] = Value(draft.number, type_)
        self.assembler.body[draft.index] = Let(value, args, draft.row)


def _replaced(atoms: tuple[Atom, ...], changed: Mapping[int, Value]) -> tuple[Atom, ...]:
    """Atoms, of which those that have changed are others."""
    return tuple([changed.get(atom.id, atom) if isinstance(atom, Value) else atom for atom in atoms]) if changed else atoms


def _operand_type(row: Op, operands: tuple[Operand, ...]) -> Type | None:
    """T, as far as an operand tells."""
    for operand, pattern in zip(operands, row.operands, strict=True):
        if pattern is Pattern.T and operand.type is not None:
            return operand.type
    return None


def _beside(pattern: Pattern, t: Type | None) -> Type | None:
    """The type of a number that the row does not mark T, beside a T that may not be known yet; None also for a bool, which says so itself."""
    if pattern is Pattern.COMPONENT:
        return t.scalar if t is not None else None
    return pattern.fixed if pattern is not Pattern.BOOL else None


def _shape(operands: Iterable[Operand]) -> tuple[int, ...]:
    """The shape of what an op makes of operands, some of which are tiles, known or open; empty where none is, or where they do not fit."""
    shapes = [operand.shape if type(operand) is Open and operand.type is None else cast(Type, operand.type).shape for operand in operands]
    return broadcast(tuple(filter(None, shapes))) or ()


def _likely_type(row: Op, operands: tuple[Operand, ...]) -> Type | None:
    """The type of an op's result as far as it is known; whether the row accepts its operands is seen when all have types."""
    likely = {Result.BOOL: bool_, Result.UNSIGNED: u32, Result.I32: i32, Result.FIXED: row.fixed}
    return likely.get(row.result, _operand_type(row, operands))
