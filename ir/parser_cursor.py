"""A cursor over the tokens of `.vir` text, with what every part of the grammar needs: names, types, sizes, and failures."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from vyre_py.ir.dims import DIM_OPS, MAX_DIM_TERMS, Dim, DimConst, DimExpr, DimOp
from vyre_py.ir.errors import Diagnostic, Place
from vyre_py.ir.lexer import KEYWORDS, Tokens, quote, split_literal, unquote
from vyre_py.ir.rules import finding
from vyre_py.ir.types import TYPES, Type

__all__ = ["Cursor", "Failed"]

MAX_SIZE: Final = 1 << 64
_DIM_INFIX: Final = {infix: name for name, (_, infix) in DIM_OPS.items() if infix}
_CLOSE_NAMES: Final = 2000


class Failed(Exception):
    """Ends one statement: `diagnostic` is None when its cause has been reported before."""

    def __init__(self, diagnostic: Diagnostic | None) -> None:
        super().__init__(diagnostic)
        self.diagnostic = diagnostic


class Cursor:
    """Steps over tokens; every method raises Failed where the text does not fit."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.kinds, self.texts, self.starts = tokens.kinds, tokens.texts, tokens.starts
        self.position = 0
        self.dims: dict[str, Dim] = {}

    # ---- tokens

    @property
    def kind(self) -> str:
        """The kind of the token at hand."""
        return self.kinds[self.position]

    def take(self, kind: str) -> bool:
        """Steps over a token of this kind, if it is the one at hand."""
        if self.kinds[self.position] != kind:
            return False
        self.position += 1
        return True

    def take_word(self, word: str) -> bool:
        """Steps over this word, if it is the token at hand."""
        return self.texts[self.position] == word and self.take("name")

    def expect(self, kind: str, what: str = "") -> str:
        """Steps over a token of this kind and gives its text. Raises Failed."""
        if self.kinds[self.position] != kind:
            raise self.unexpected(what or f"`{kind}`")
        self.position += 1
        return self.texts[self.position - 1]

    def place(self) -> Place:
        """The place of the token at hand."""
        start = self.starts[self.position]
        return self.tokens.place(start, start + len(self.texts[self.position]))

    def end(self) -> int:
        """The offset after the last token stepped over."""
        return self.starts[self.position - 1] + len(self.texts[self.position - 1])

    def unexpected(self, what: str, help: str | None = None) -> Failed:
        """The failure to find `what` at the cursor."""
        return Failed(finding("P102", f"found {self.tokens.describe(self.position)}, expected {what}", self.place(), help))

    def unknown(self, what: str, name: str, known: Iterable[str], place: Place) -> Failed:
        """The failure to know a name, with the nearest known ones."""
        candidates = list(known)
        close = difflib.get_close_matches(name, candidates, 2) if len(candidates) <= _CLOSE_NAMES and len(name) <= 64 else []
        help = f"did you mean {' or '.join(close)}?" if close else None
        shown = name if name.replace(".", "").isidentifier() else quote(name)
        return Failed(finding("P103", f"{what} {shown} is not known here", place, help))

    def name(self, what: str) -> str:
        """Steps over a name, bare or quoted."""
        text = self.texts[self.position]
        if self.take("string"):
            return unquote(text)
        if self.kind == "name" and text in KEYWORDS:
            raise self.unexpected(what, f'{text} is a word of the language; quote the name: "{text}"')
        return self.expect("name", what)

    def type_name(self) -> Type:
        """Steps over a type's name."""
        place = self.place()
        text = self.expect("name", "a type")
        if text not in TYPES:
            raise self.unknown("the type", text, TYPES, place)
        return TYPES[text]

    # ---- sizes

    def dim_expression(self, least: int = 1, depth: int = 0) -> DimExpr:
        """A dim expression. Raises Failed."""
        left = self._dim_operand(depth)
        while (name := _DIM_INFIX.get(self.kind)) is not None and (level := 2 if name == "mul" else 1) >= least:
            self.position += 1
            left = self.dim_op(name, left, self.dim_expression(level + 1, depth))
        return left

    def dim_op(self, name: str, left: DimExpr, right: DimExpr) -> DimExpr:
        """An operation on sizes, as written: nothing is folded, so that text keeps every Program as it is."""
        made = DimOp(name, left, right)
        if made.terms > MAX_DIM_TERMS:
            raise Failed(finding("P107", f"a dim expression has more than {MAX_DIM_TERMS} terms", self.place()))
        if name == "ceil_div" and right == DimConst(0):
            raise Failed(finding("P105", "ceil_div by zero has no value", self.place()))
        return made

    def _dim_operand(self, depth: int) -> DimExpr:
        place, name = self.place(), self.texts[self.position]
        if depth > MAX_DIM_TERMS:
            raise Failed(finding("P107", f"a dim expression nests more than {MAX_DIM_TERMS} deep", place))
        if self.kind == "number":
            return DimConst(self.size())
        if self.take("("):
            inner = self.dim_expression(1, depth + 1)
            self.expect(")")
            return inner
        if self.kind == "name" and self.kinds[self.position + 1] == "(" and name in DIM_OPS:
            self.position += 2
            left = self.dim_expression(1, depth + 1)
            self.expect(",")
            right = self.dim_expression(1, depth + 1)
            self.expect(")")
            return self.dim_op(name, left, right)
        name = self.name("a size: a number, a dim, or + - * ceil_div min max of them")
        if name not in self.dims:
            raise self.unknown("the dim", name, self.dims, place)
        return self.dims[name]

    def size(self) -> int:
        """A whole number without a suffix."""
        place = self.place()
        digits, suffix = split_literal(self.expect("number", "a whole number"))
        if suffix is not None or not (digits.isdigit() or digits[:2] in ("0x", "0X")):
            raise Failed(finding("P105", "a size is a whole number without a suffix", place))
        value = int(digits, 0 if not digits.isdigit() else 10)
        if value >= MAX_SIZE:
            raise Failed(finding("P105", f"the size {digits[:40]} is beyond 2^64", place))
        return value
