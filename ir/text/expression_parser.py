"""Expressions of `.vir` text. Operators are parsed by precedence climbing (Pratt, "Top Down Operator Precedence", 1973); `ir.text.operand_parser` emits what
is parsed."""

from __future__ import annotations

from typing import Final

from vyre_py.ir.builder.tiles.tile_refusals import refusal_shape
from vyre_py.ir.functions.function import Function
from vyre_py.ir.language.describe import full_name
from vyre_py.ir.language.dims import OF_TILES
from vyre_py.ir.language.nodes import Atom, Const, GridScan, Memory, Value, Variable
from vyre_py.ir.language.op import RELAXED, AtomicOp, Op, Result
from vyre_py.ir.language.ops import ATOMICS, ATOMICS_BY_SPELLING, OPS, SUBGROUPS, swizzle_bits
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import SCALARS, i32, u32, vector_of
from vyre_py.ir.text.cursor import Failed
from vyre_py.ir.text.lexer import (
    INFIX,
    KEYWORDS,
    LEVEL_COMPARISON,
    PREFIX,
    QUERIES,
    TILE_CALLED,
    WORDS,
    split_literal,
    swizzle_named,
)
from vyre_py.ir.text.operand_parser import MAX_PARTS, Open, Operand, OperandParser
from vyre_py.ir.text.together_parser import grid_scan_call, subgroup_call, tile_call
from vyre_py.ir.text.tokens import Tokens

__all__ = ["MAX_NESTING", "Binding", "ExpressionParser", "is_atomic"]

MAX_NESTING: Final = 64
_DIGITS: Final = frozenset("0123456789")
_LITERAL_WORDS: Final = frozenset({"true", "false", "inf", "nan"})
_READS: Final = "atomic_exchange gives the element that was there"
_BEHIND_NAMES: Final = frozenset("[(.")  # what makes more of a name than a value
_CALLS: Final = (
    "dim", "uniform_load", GridScan.spelling, *(f"atomic_{name}" for name in ATOMICS_BY_SPELLING if name.partition(".")[0] != "store"),
    *(f"subgroup_{name}" for name in SUBGROUPS),
    *(name for name, row in OPS.items() if not row.is_query),
)

Binding = Value | Variable | Atom | None  # None: its declaration failed, and was reported


class ExpressionParser(OperandParser):
    """The names in scope and the expression grammar; `ir.text.declaration_parser` and `ir.text.parser` add the rest."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self.depth = 0
        self.names: dict[str, Binding] = {}
        self.memories: dict[str, Memory | None] = {}
        self.functions: dict[str, Function | None] = {}  # None: its declaration failed, and was reported

    @property
    def of_tiles(self) -> bool:
        """Whether what is read are statements of a Program of tiles."""
        return self.assembler.workgroup == OF_TILES

    def find_memory(self, name: str) -> Memory:
        """The memory of this name, which is the token before the cursor. Raises Failed."""
        if name not in self.memories:
            raise self.unknown("the array", name, self.memories, self.place(self.position - 1))
        memory = self.memories[name]
        if memory is None:
            raise Failed(None)
        return memory

    # ---- operators

    def expression(self, least: int = 1) -> Operand:
        """An expression whose operators bind at least as tightly as `least`. Raises Failed."""
        self.depth += 1
        self._bound_depth()
        first = self.position
        left = self.operand()
        infix = INFIX.get(self.words[self.position])
        if infix is not None and infix[1] >= least:
            left = self._climb(left, first, least)
        self.depth -= 1
        return left

    def _bound_depth(self) -> None:
        if self.depth > MAX_NESTING:
            raise Failed(finding("P107", f"expressions nest more than {MAX_NESTING} deep", self.place()))

    def _climb(self, left: Operand, first: int, least: int) -> Operand:
        """What the operators at the cursor make of what is to their left, which begins with token `first`."""
        words = self.words
        first = self._inner(first)
        infix = INFIX.get(words[self.position])
        self.depth += 1
        while infix is not None and infix[1] >= least:
            row, level = infix
            self.position += 1
            while words[self.position] == "\n":
                self.position += 1
            self._bound_depth()
            begin = self.position
            right = self.operand()
            infix = INFIX.get(words[self.position])
            if infix is not None and infix[1] > level:
                right = self._climb(right, begin, level + 1)
                infix = INFIX.get(words[self.position])
            if type(right) is Open and right.digits and left.type is not None:
                right = self.fix(right, left.type)  # as `op` would: both are of one type
            left = self.op(row, (left, right), first)
            if level == LEVEL_COMPARISON and infix is not None and infix[1] == level:
                raise self.unexpected("the end of the comparison", "comparisons do not chain: write (a < b) && (b < c)")
        self.depth -= 1
        return left

    def _inner(self, first: int) -> int:
        """The first token of an expression that begins at `first`, the parentheses around it left out."""
        while self.words[first] == "(":
            first += 1
        return first

    # ---- operands

    def operand(self) -> Operand:
        """A literal, name, access or call with the components picked behind it, or one with an operator before it."""
        first = self.position
        word = self.words[first]
        bound = self.names.get(word)
        if bound is not None and self.words[first + 1] not in _BEHIND_NAMES and word.isidentifier() and word not in KEYWORDS:
            self.position += 1
            if not isinstance(bound, Variable):
                return bound
            self.part(first)
            return self.assembler.get(bound)
        row = PREFIX.get(word)
        if row is not None and not (word == "-" and _is_unsigned(self.words[first + 1])):
            self.position += 1
            self.depth += 1
            self._bound_depth()
            operand = self.operand()  # no operator between operands binds tighter
            self.depth -= 1
            return self.op(row, (operand,), first)
        literal = self.literal()
        if type(literal) is Open and self.words[self.position] == ".":
            raise self.unexpected("an operator", "say the number's type before its components are picked: 1.0f32.xxx")
        operand = literal if literal is not None else self.primary()
        while self.words[self.position] == ".":
            self.position += 1
            operand = self.swizzle(operand, first)
        return operand

    def primary(self) -> Operand:
        """An expression in parentheses, an access, a call, a query or a name."""
        word = self.words[self.position]
        if word == "(":
            self.position += 1
            inner = self.expression()
            self.expect(")")
            return inner
        kind = self.kind
        following = self.words[self.position + 1] if kind in ("name", "string") else ""
        if following == "[":
            return self.load()
        if kind == "name" and (following == "(" or (is_atomic(word) and self.is_ordered())):
            return self.call()
        if kind == "name" and (word in WORDS or (following == "." and word in QUERIES)):
            return self.query()
        return self.reference()

    def is_ordered(self) -> bool:
        """Whether an order or a scope stands behind the word at the cursor. Components may stand there, too: values may be named as statements are."""
        return self.words[self.position + 1] == "." and not swizzle_named(self.words[self.position + 2])

    def literal(self) -> Operand | None:
        """A literal if one stands at the cursor, sign included."""
        words, first = self.words, self.position
        word = words[first]
        named = SCALARS.get(word)
        if named is not None and words[first + 1] != ":":
            named = None
        at = first if named is None else first + 2
        negative = words[at] == "-"
        at += negative
        digits = words[at]
        if not _is_unsigned(digits):
            if named is None:
                return None
            self.position = at
            raise self.unexpected("a number, inf, nan, or bits such as 0x7fc00001")
        self.position = at + 1
        self.part(first)
        if digits in _LITERAL_WORDS:
            return self.number(named or (SCALARS["bool"] if digits in ("true", "false") else None), digits, negative, first)
        digits, suffix = split_literal(digits)
        if named is not None and digits[:2] in ("0x", "0X") and not negative:
            return self.pattern(named, digits, first)
        return self.number(named or suffix, digits, negative, first)

    def reference(self) -> Operand:
        """A name: a value, a variable (which is read), a param or a dim."""
        at = self.position
        name = self.name("an expression")
        if name not in self.names:
            if name in self.memories:
                raise Failed(finding("P103", f"{name} is an array", self.place(at), f"say which element: {name}[index]"))
            raise self.unknown("the name", name, self.names, self.place(at))
        bound = self.names[name]
        if bound is None:
            raise Failed(None)
        if not isinstance(bound, Variable):
            return bound
        self.part(at)
        return self.assembler.get(bound)

    def query(self) -> Operand:
        """Such as global_id.x or local_index."""
        at = self.position
        name = self.expect_kind("name")
        if name not in OPS and self.take("."):  # behind one that has no axes, components are picked
            name += "." + self.expect_kind("name", "an axis: x, y or z")
        if name not in OPS:
            raise self.unknown("the query", name, (n for n, row in OPS.items() if row.is_query), self.place(at))
        return self._call_op(OPS[name], (), at)

    def swizzle(self, operand: Operand, first: int) -> Operand:
        """The components after a dot, of the expression before it."""
        names = self.words[self.position]
        if self.kind != "name" or not swizzle_named(names):
            raise self.unexpected("1 to 4 components, each x, y, z or w", "r, g, b and a are x, y, z and w here" if set(names) <= set("rgba") else None)
        self.position += 1
        given = vector_of(operand.type.scalar, len(names)) if operand.type is not None else None
        return self.op(OPS["swizzle"], (operand, Const(u32, swizzle_bits(names))), self._inner(first), given, len(names))

    # ---- accesses and calls

    def arguments(self, closer: str) -> tuple[Operand, ...]:
        """Expressions parted by commas, up to and over `closer`."""
        made: list[Operand] = []
        while not self.take(closer):
            first = self.position
            made.append(self.expression())
            if len(made) >= MAX_PARTS:
                raise self.too_many(first)
            if not self.take(",") and self.words[self.position] != closer:
                raise self.unexpected(f"`,` or `{closer}`")
        return tuple(made)

    def indices(self) -> tuple[Memory, tuple[Atom, ...]]:
        """`name[index, ...]`; a bare literal becomes u32, or i32 when it is negative."""
        memory = self.find_memory(self.name("an array"))
        self.expect("[")
        indices = [self.fix(index, i32 if type(index) is Open and index.negative else u32) for index in self.arguments("]")]
        return memory, tuple(indices)

    def accessed(self) -> tuple[Memory, tuple[Atom, ...], list[int]]:
        """`name[index, ...]`, where extents of a tile may stand behind indices, as in `name[i : 128, j]`: one for each axis then, 0 where none stands. Where
        all are 0 there is no tile, which `check` says. Raises Failed, also V604 where 0 is written beside others: it would be taken for none."""
        memory = self.find_memory(self.name("an array"))
        self.expect("[")
        words = self.words
        indices: list[Atom] = []
        extents: list[int] = []
        nothing: int | None = None  # where 0 is written
        while not self.take("]"):
            first = self.position
            index = self.expression()
            indices.append(self.fix(index, i32 if type(index) is Open and index.negative else u32))
            if len(indices) >= MAX_PARTS:
                raise self.too_many(first)
            if self.take(":"):
                extents += [0] * (len(indices) - 1 - len(extents))
                at = self.position
                extents.append(self.extent())
                if not extents[-1] and nothing is None:
                    nothing = at
            if not self.take(",") and words[self.position] != "]":
                raise self.unexpected("`,` or `]`")
        if extents:
            if nothing is not None and any(extents) and (fault := refusal_shape((0,))) is not None:
                raise Failed(finding("V604", fault[0], self.place(nothing), fault[1]))
            extents += [0] * (len(indices) - len(extents))
        return memory, tuple(indices), extents

    def load(self) -> Operand:
        """`name[index, ...]`, or `name[offset : extent, ...]`."""
        first = self.position
        memory, indices, extents = self.accessed()
        self.part(first)
        return self.assembler.tile_load(memory, indices, extents) if extents else self.assembler.load(memory, indices)

    def call(self) -> Operand:
        """`name(...)`: an op, a conversion, a dim expression, a uniform load or an atomic."""
        at = self.position
        if is_atomic(self.words[at]):
            return self.atomic()
        name = self.expect_kind("name")
        self.expect("(")
        if name in self.functions:
            return self.call_function(self.functions[name], at)
        if name == "dim":
            expr = self.dim_expression()
            self.expect(")")
            return expr
        if name == "uniform_load":
            first = self.position
            memory, indices = self.indices()
            self.part(first)
            self.expect(")")
            return self.assembler.uniform_load(memory, indices)
        if name.startswith("subgroup_") and name[9:] in SUBGROUPS:
            return subgroup_call(self, SUBGROUPS[name[9:]], at)
        if name == GridScan.spelling:
            return grid_scan_call(self, at)
        if name in TILE_CALLED:
            return tile_call(self, name, at)
        row = OPS.get(name)
        if row is None or row.is_query:
            raise self.unknown("the operation", name, (*self.functions, *_CALLS, *(TILE_OPS if self.of_tiles else ())), self.place(at))
        if row.result is not Result.GIVEN:
            return self._call_op(row, self.arguments(")"), at)
        operands = [self.expression()]
        while len(operands) < len(row.operands):
            self.expect(",")
            operands.append(self.expression())
        self.expect(",", "`,` and a type")
        given = self.value_type()
        self.expect(")")
        return self.op(row, tuple(operands), at, given)

    def call_function(self, function: Function | None, first: int) -> Operand:
        """The rest of `name(operands)` for a function of the Program."""
        operands = self.arguments(")")
        if function is None:
            raise Failed(None)
        if len(operands) == len(function.types):
            operands = tuple([self.fix(operand, type_) for operand, type_ in zip(operands, function.types, strict=True)])
        return self._call_op(function, operands, first)

    def _call_op(self, row: Op, operands: tuple[Operand, ...], first: int) -> Operand:
        if len(operands) != len(row.operands):
            place = self.tokens.place(first, self.position - 1)
            raise Failed(finding("V202", f"{row.name} takes {len(row.operands)} operands, got {len(operands)}", place, row.doc))
        return self.op(row, operands, first)

    def atomic(self) -> Operand:
        """`atomic_name(array[index], operands)`, with an order behind the name."""
        first = self.position
        row, memory, indices, operands = self.atomic_parts()
        if not row.reads:
            raise Failed(finding("P101", f"{full_name(row)} gives no value", self.tokens.place(first, self.position - 1), f"it is a statement; {_READS}"))
        self.part(first)
        return self.assembler.atomic(row, memory, indices, operands)

    def atomic_parts(self) -> tuple[AtomicOp, Memory, tuple[Atom, ...], tuple[Atom, ...]]:
        """The parts of an atomic: its op, the element and the operands."""
        first = self.position
        name = self.expect_kind("name").removeprefix("atomic_")
        words = [name]
        while self.take("."):
            words.append(self.expect_kind("name", "an order, or workgroup"))
        row = ATOMICS_BY_SPELLING.get(".".join(words))
        if row is None:
            orders = [f".{order}" for order in ATOMICS[name].orders if order != RELAXED.name]
            help = f"write atomic_{name}, which is relaxed, or {' or '.join(orders)} behind it; then .workgroup for the workgroup alone"
            raise Failed(finding("P103", f"atomic_{'.'.join(words)} is no atomic", self.tokens.place(first, self.position - 1), help))
        self.expect("(")
        memory, indices = self.indices()
        operands = self.arguments(")") if self.take(",") else ()
        if not operands:
            self.take(")")
        return row, memory, indices, tuple([self.fix(operand, memory.type) for operand in operands])


def is_atomic(word: str) -> bool:
    """Whether this names an atomic, whose order may stand behind it."""
    return word.startswith("atomic_") and word[7:] in ATOMICS


def _is_unsigned(word: str) -> bool:
    """Whether this is a literal, or the rest of one behind its sign or its type."""
    return word[:1] in _DIGITS or word in _LITERAL_WORDS
