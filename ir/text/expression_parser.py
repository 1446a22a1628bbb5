"""Expressions of `.vir` text: parsed into nodes in the order in which they are computed, typed, then hoisted into statements.

Operators are parsed by precedence climbing (Pratt, "Top Down Operator Precedence", 1973). Nodes come out in post-order, which is
the language's order of evaluation, left to right, so that hoisting is a loop over a list. A bare literal waits for its
type until something beside or around it has one: an operand of the same op, a component beside it in a vector, what is stored to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from vyre_py.ir.builder.refusals import refusal
from vyre_py.ir.language.assembler import Assembler, OperandTypeError
from vyre_py.ir.language.nodes import Atom, Const, Memory, Value, Variable
from vyre_py.ir.language.op import Op, Operand, Result
from vyre_py.ir.language.ops import ATOMICS, OPS, swizzle_bits
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.types import SCALARS, Kind, Type, bool_, i32, u32, vector_of
from vyre_py.ir.text.cursor import Cursor, Failed
from vyre_py.ir.text.lexer import (
    INFIX,
    LEVEL_COMPARISON,
    LEVEL_UNARY,
    PREFIX,
    QUERIES,
    Tokens,
    literal_bits,
    split_literal,
    swizzle_named,
)

__all__ = ["MAX_NESTING", "MAX_NODES", "Binding", "ExpressionParser", "Node"]

MAX_NESTING: Final = 64
MAX_NODES: Final = 4096  # of one statement
_LITERAL_KINDS: Final = ("number", "name", "-")
_LITERAL_WORDS: Final = frozenset({*SCALARS, "true", "false", "inf", "nan"})
_CALLS: Final = ("dim", "uniform_load", *(f"atomic_{name}" for name in ATOMICS), *(name for name, row in OPS.items() if not row.is_query))


@dataclass(slots=True, eq=False)
class Node:
    """A part of an expression. `make` turns the children's atoms into this one's, emitting a statement where one is needed; `type` is
    None while nothing fixes it. `group` holds the children whose type follows from the node's while both are open: the same one, or that
    of a component where `vector` is true. One that has an `atom` from the start is not computed; one that is `literal` emits nothing.
    `start` and `end` are offsets into the text."""

    start: int
    end: int
    make: Callable[[Node, tuple[Atom, ...]], Atom]
    type: Type | None
    children: tuple[Node, ...] = ()
    group: tuple[Node, ...] = ()
    negative: bool = False
    vector: bool = False
    literal: bool = False
    atom: Atom | None = None


Binding = Value | Variable | Atom | None  # None: its declaration failed, and was reported


class ExpressionParser(Cursor):
    """The names in scope and the expression grammar; `ir.text.declaration_parser` and `ir.text.parser` add the rest."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self.assembler = Assembler("")
        self.nodes: list[Node] = []  # of the statement at hand, in the order in which they are computed
        self.depth = 0
        self.names: dict[str, Binding] = {}
        self.memories: dict[str, Memory | None] = {}

    # ---- nodes

    def find_memory(self, name: str) -> Memory:
        """The memory of this name, which is the token before the cursor. Raises Failed."""
        if name not in self.memories:
            raise self.unknown("the array", name, self.memories, self.place(self.position - 1))
        memory = self.memories[name]
        if memory is None:
            raise Failed(None)
        return memory

    def add(self, node: Node) -> Node:
        """Puts a node after all that were computed before it. Raises Failed where there are too many."""
        self.bound(len(self.nodes), node)
        self.nodes.append(node)
        return node

    def bound(self, parts: int, node: Node) -> None:
        """Raises Failed at a node where an expression has so many parts already that there may be no more."""
        if parts >= MAX_NODES:
            raise Failed(finding("P107", f"an expression has more than {MAX_NODES} parts", self.tokens.place(node.start, node.end)))

    @staticmethod
    def fix(node: Node, type_: Type) -> None:
        """Gives a node without a type this one, and those whose type follows from it theirs."""
        waiting = [(node, type_)]
        while waiting:
            one, wanted = waiting.pop()
            if one.type is None:
                one.type = wanted
                part = wanted.scalar if one.vector else wanted
                waiting += [(child, part) for child in one.group]

    def op_node(self, row: Op, children: tuple[Node, ...], start: int, given: Type | None = None) -> Node:
        """A node that computes an op."""
        if len(children) != len(row.operands):
            place = self.tokens.place(start, self.end())
            raise Failed(finding("V202", f"{row.name} takes {len(row.operands)} operands, got {len(children)}", place, row.doc))
        group = tuple([c for c, pattern in zip(children, row.operands, strict=True) if pattern is Operand.T])
        fixed = next((c.type for c in group if c.type is not None), None)
        for child, pattern in zip(children, row.operands, strict=True):
            wanted = fixed if pattern is Operand.T else u32 if pattern in (Operand.U32, Operand.LANES) else None
            if wanted is not None and child.type is None:
                self.fix(child, wanted)

        def make(node: Node, args: tuple[Atom, ...]) -> Atom:
            return self.assembler.let(row, args, given)

        shares = row.result in (Result.T, Result.VECTOR)
        result = given or _result_type(row, children, fixed)
        return self.add(Node(start, self.end(), make, result, children, group if shares else (), vector=row.result is Result.VECTOR))

    def emit(self, *roots: Node) -> tuple[Atom, ...]:
        """Hoists the expressions parsed since the last time, in the order in which they stand; gives the roots' atoms. Raises Failed."""
        place = self.tokens.place
        for node in self.nodes:
            if node.type is None:
                raise Failed(finding("P104", "nothing here fixes the type of this literal", place(node.start, node.end)))
            try:
                if not node.literal:
                    self.assembler.place = place(node.start, node.end)
                node.atom = node.make(node, _atoms(node.children))
            except OperandTypeError as error:
                message, help = refusal(error.op, error.operands, error.given)
                raise Failed(finding("V201", message, self.assembler.place, help)) from None
            except ValueError as error:
                raise Failed(finding("P105", str(error), place(node.start, node.end))) from None
        self.nodes.clear()
        return _atoms(roots)

    # ---- the grammar

    def expression(self, least: int = 1) -> Node:
        """An expression whose operators bind at least as tightly as `least`. Raises Failed."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise Failed(finding("P107", f"expressions nest more than {MAX_NESTING} deep", self.place()))
        left = self.operand()
        while (row := INFIX.get(self.kinds[self.position])) is not None and row[1] >= least:
            self.position += 1
            while self.take("newline"):
                pass
            right = self.expression(row[1] + 1)
            left = self.op_node(row[0], (left, right), left.start)
            if row[1] == LEVEL_COMPARISON == INFIX.get(self.kind, (None, 0))[1]:
                raise self.unexpected("the end of the comparison", "comparisons do not chain: write (a < b) && (b < c)")
        self.depth -= 1
        return left

    def operand(self) -> Node:
        """A literal, name, access or call with the components picked behind it, or one with an operator before it."""
        start = self.starts[self.position]
        row = PREFIX.get(self.kinds[self.position])
        literal = self.literal()
        if literal is None and row is not None:
            self.position += 1
            return self.op_node(row, (self.expression(LEVEL_UNARY),), start)
        if literal is not None and literal.type is None and self.kind == ".":
            raise self.unexpected("an operator", "say the number's type before its components are picked: 1.0f32.xxx")
        node = self.add(literal) if literal is not None else self.primary()
        while self.kinds[self.position] == ".":
            self.position += 1
            node = self.swizzle(node)
        return node

    def primary(self) -> Node:
        """An expression in parentheses, an access, a call, a query or a name."""
        kind = self.kinds[self.position]
        if kind == "(":
            self.position += 1
            inner = self.expression()
            self.expect(")")
            return inner
        following = self.kinds[self.position + 1] if kind in ("name", "string") else ""
        if following == "[":
            return self.access(self.assembler.load)
        if kind == "name" and following == "(":
            return self.call()
        if kind == "name" and (self.word(self.position) == "local_index" or (following == "." and self.word(self.position) in QUERIES)):
            return self.query()
        return self.reference()

    def literal(self) -> Node | None:
        """A literal if one stands at the cursor, sign included."""
        begin, start = self.position, self.starts[self.position]
        kind = self.kinds[begin]
        if kind not in _LITERAL_KINDS or (kind == "name" and self.word(begin) not in _LITERAL_WORDS):
            return None
        type_: Type | None = None
        if kind == "name" and self.word(begin) in SCALARS and self.kinds[begin + 1] == ":":
            type_ = SCALARS[self.word(begin)]
            self.position += 2
        named = type_ is not None
        negative = self.take("-")
        digits = self.word(self.position)
        if self.kind == "number":
            digits, suffix = split_literal(digits)
            type_ = type_ or suffix
        elif self.kind != "name" or digits not in ("true", "false", "inf", "nan"):
            if named:
                raise self.unexpected("a number, inf, nan, or bits such as 0x7fc00001")
            self.position = begin
            return None
        self.position += 1
        if digits in ("true", "false"):
            type_ = type_ or SCALARS["bool"]
        suffixed, pattern = type_ is not None, named and digits[:2] in ("0x", "0X") and not negative

        def make(node: Node, args: tuple[Atom, ...]) -> Atom:
            assert node.type is not None  # `emit` asks before
            if not pattern:
                return Const(node.type, literal_bits(node.type, digits, negative, suffixed))
            if int(digits, 16) >> (node.type.bits if node.type.kind is not Kind.BOOL else 1):
                raise ValueError(f"{digits} has more than {node.type.bits} bits")
            return Const(node.type, int(digits, 16))

        return Node(start, self.end(), make, type_, negative=negative, literal=True)

    def reference(self) -> Node:
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
        if isinstance(bound, Variable):
            variable = bound
            return self.add(Node(self.starts[at], self.ends[at], lambda node, args: self.assembler.get(variable), variable.type))
        return Node(self.starts[at], self.ends[at], _known, bound.type, atom=bound)

    def query(self) -> Node:
        """Such as global_id.x or local_index."""
        at = self.position
        name = self.expect("name")
        if self.take("."):
            name += "." + self.expect("name", "an axis: x, y or z")
        if name not in OPS:
            raise self.unknown("the query", name, (n for n, row in OPS.items() if row.is_query), self.place(at))
        return self.op_node(OPS[name], (), self.starts[at])

    def swizzle(self, node: Node) -> Node:
        """The components after a dot, of the expression before it."""
        names = self.word(self.position)
        if self.kind != "name" or not swizzle_named(names):
            raise self.unexpected("1 to 4 components, each x, y, z or w", "r, g, b and a are x, y, z and w here" if set(names) <= set("rgba") else None)
        self.position += 1
        count = len(names)

        def make(made: Node, args: tuple[Atom, ...]) -> Atom:
            pattern = Const(u32, swizzle_bits(names))
            return self.assembler.let(OPS["swizzle"], (args[0], pattern), vector_of(args[0].type.scalar, count))

        type_ = vector_of(node.type.scalar, count) if node.type is not None else None
        return self.add(Node(node.start, self.end(), make, type_, (node,), (node,), vector=True))

    def arguments(self, closer: str) -> tuple[Node, ...]:
        """Expressions parted by commas, up to and over `closer`."""
        made: list[Node] = []
        while not self.take(closer):
            made.append(self.expression())
            self.bound(len(made), made[-1])
            if not self.take(",") and self.kind != closer:
                raise self.unexpected(f"`,` or `{closer}`")
        return tuple(made)

    def indices(self) -> tuple[Memory, tuple[Node, ...]]:
        """`name[index, ...]`; a bare literal becomes u32, or i32 when it is negative."""
        memory = self.find_memory(self.name("an array"))
        self.expect("[")
        indices = self.arguments("]")
        for index in indices:
            self.fix(index, i32 if index.negative else u32)
        return memory, indices

    def access(self, load: Callable[[Memory, tuple[Atom, ...]], Value]) -> Node:
        """`name[index, ...]` as a load."""
        start = self.starts[self.position]
        memory, indices = self.indices()
        return self.add(Node(start, self.end(), lambda node, args: load(memory, args), memory.type, indices))

    def call(self) -> Node:
        """`name(...)`: an op, a conversion, a dim expression, a uniform load or an atomic."""
        at, start = self.position, self.starts[self.position]
        name = self.expect("name")
        self.expect("(")
        if name == "dim":
            expr = self.dim_expression()
            self.expect(")")
            return Node(start, self.end(), _known, u32, atom=expr)
        if name == "uniform_load":
            node = self.access(self.assembler.uniform_load)
            self.expect(")")
            return node
        if name.startswith("atomic_") and name[7:] in ATOMICS:
            return self.atomic(name[7:], start)
        row = OPS.get(name)
        if row is None or row.is_query:
            raise self.unknown("the operation", name, _CALLS, self.place(at))
        if row.result is not Result.GIVEN:
            return self.op_node(row, self.arguments(")"), start)
        operands = [self.expression()]
        while len(operands) < len(row.operands):
            self.expect(",")
            operands.append(self.expression())
        self.expect(",", "`,` and a type")
        given = self.type_name()
        self.expect(")")
        return self.op_node(row, tuple(operands), start, given)

    def atomic(self, name: str, start: int) -> Node:
        """The rest of `atomic_name(array[index], operands)`."""
        memory, indices = self.indices()
        operands = self.arguments(")") if self.take(",") else ()
        if not operands:
            self.take(")")
        for operand in operands:
            self.fix(operand, memory.type)

        def make(node: Node, args: tuple[Atom, ...]) -> Atom:
            return self.assembler.atomic(ATOMICS[name], memory, args[: len(indices)], args[len(indices) :])

        return self.add(Node(start, self.end(), make, memory.type, (*indices, *operands)))


def _known(node: Node, args: tuple[Atom, ...]) -> Atom:
    """What a node with an atom of its own makes."""
    assert node.atom is not None  # given where it was made
    return node.atom


def _atoms(nodes: tuple[Node, ...]) -> tuple[Atom, ...]:
    return tuple([node.atom for node in nodes if node.atom is not None])


def _result_type(row: Op, children: tuple[Node, ...], fixed: Type | None) -> Type | None:
    """The type of an op's result as far as it is known, where T is `fixed`; whether the row accepts its operands is seen when it is emitted."""
    types = tuple([c.type for c in children if c.type is not None])
    made = row.result_type(types) if len(types) == len(children) else None
    if made is not None:
        return made
    return {Result.BOOL: bool_, Result.UNSIGNED: u32, Result.FIXED: row.fixed}.get(row.result, fixed)
