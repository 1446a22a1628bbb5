"""A cursor over the tokens of `.vir` text, with what every part of the grammar needs: names, types, sizes, and failures."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from heapq import nlargest
from typing import Final

from vyre_py.ir.builder.tiles.tile_refusals import refusal_shape
from vyre_py.ir.language.dims import DIM_OPS, MAX_DIM_TERMS, WORD_LIMIT, Dim, DimConst, DimExpr, DimOp
from vyre_py.ir.language.errors import Diagnostic, Place
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.types import TYPES, Type, tile_of
from vyre_py.ir.text.lexer import KEYWORDS, quote, split_literal, unquote
from vyre_py.ir.text.tokens import Tokens, kind_of

__all__ = ["Cursor", "Failed"]

MAX_SIZE: Final = 1 << 64
_MOST_DIGITS: Final = 10  # of a u32
_DIM_INFIX: Final = {infix: name for name, (_, infix) in DIM_OPS.items() if infix}
# What looking for names near unknown ones may cost in one text: for each name that is looked at so many steps, and one for each pair of characters.
_NEAR_STEPS: Final = 250_000
_NEAR_NAME: Final = 100
_NEAR_LENGTH: Final = 64
_NEAR_RATIO: Final = 0.6


class Failed(Exception):
    """Ends one statement: `diagnostic` is None when its cause has been reported before."""

    def __init__(self, diagnostic: Diagnostic | None) -> None:
        super().__init__(diagnostic)
        self.diagnostic = diagnostic


class Cursor:
    """Steps over tokens; every method raises Failed where the text does not fit."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.words = tokens.words
        self.position = 0
        self.dims: dict[str, Dim] = {}
        self._steps_left = _NEAR_STEPS

    # ---- tokens

    @property
    def kind(self) -> str:
        """The kind of the token at hand."""
        return kind_of(self.words[self.position])

    def take(self, word: str) -> bool:
        """Steps over this word or mark, if it is the token at hand."""
        if self.words[self.position] != word:
            return False
        self.position += 1
        return True

    def expect(self, word: str, what: str = "") -> None:
        """Steps over this word or mark. Raises Failed."""
        if self.words[self.position] != word:
            raise self.unexpected(what or f"`{word}`")
        self.position += 1

    def expect_kind(self, kind: str, what: str = "") -> str:
        """Steps over a token of this kind and gives its text. Raises Failed."""
        if self.kind != kind:
            raise self.unexpected(what or f"`{kind}`")
        self.position += 1
        return self.words[self.position - 1]

    def place(self, at: int | None = None) -> Place:
        """The place of the token at hand, or at another position."""
        at = self.position if at is None else at
        return self.tokens.place(at, at)

    def unexpected(self, what: str, help: str | None = None) -> Failed:
        """The failure to find `what` at the cursor."""
        return Failed(finding("P102", f"found {self.tokens.describe(self.position)}, expected {what}", self.place(), help))

    def unknown(self, what: str, name: str, known: Iterable[str], place: Place) -> Failed:
        """The failure to know a name, with the nearest known ones."""
        close = self.near(name, known)
        help = f"did you mean {' or '.join(close)}?" if close else None
        shown = name if name.replace(".", "").isidentifier() else quote(name)
        return Failed(finding("P103", f"{what} {shown} is not known here", place, help))

    def near(self, name: str, known: Iterable[str]) -> list[str]:
        """The two known names nearest to an unknown one, of those that are near, as far as there are steps left."""
        scored: list[tuple[float, str]] = []
        matcher = difflib.SequenceMatcher(None, "", name if len(name) <= _NEAR_LENGTH else "", autojunk=False)
        for candidate in known if len(name) <= _NEAR_LENGTH else ():
            self._steps_left -= _NEAR_NAME + len(name) * len(candidate)
            if self._steps_left < 0:
                break
            matcher.set_seq1(candidate)
            quick = matcher.real_quick_ratio() >= _NEAR_RATIO and matcher.quick_ratio() >= _NEAR_RATIO
            if quick and (ratio := matcher.ratio()) >= _NEAR_RATIO:
                scored.append((ratio, candidate))
        return [candidate for _, candidate in nlargest(2, scored)]

    def name(self, what: str) -> str:
        """Steps over a name, bare or quoted."""
        word = self.words[self.position]
        if not word.isidentifier():
            return unquote(self.expect_kind("string", what))
        if word in KEYWORDS:
            raise self.unexpected(what, f'{word} is a word of the language; quote the name: "{word}"')
        self.position += 1
        return word

    def type_name(self) -> Type:
        """Steps over a type's name."""
        text = self.expect_kind("name", "a type")
        if text not in TYPES:
            raise self.unknown("the type", text, TYPES, self.place(self.position - 1))
        return TYPES[text]

    def value_type(self) -> Type:
        """Steps over the type of a value: a type's name, or `tile(f32, 128, 256)`."""
        if self.words[self.position] != "tile" or self.words[self.position + 1] != "(":
            return self.type_name()
        first = self.position
        self.position += 2
        element = self.type_name()
        extents = []
        while self.take(","):
            extents.append(self.extent())
        self.expect(")", "`,` and an extent" if not extents else "`,` or `)`")
        if element.is_vector:
            fault: tuple[str, str | None] | None = f"the elements of tiles are scalars, not {element}", f"name the type of one: {element.scalar}"
        else:
            fault = refusal_shape(tuple(extents))
        if fault is not None:
            raise Failed(finding("V604", fault[0], self.tokens.place(first, self.position - 1), fault[1]))
        return tile_of(element, extents)

    def count(self, what: str) -> int:
        """Steps over a plain whole number, one of a u32, without a suffix."""
        word = self.words[self.position]
        if not word.isdecimal() or len(word) > _MOST_DIGITS or int(word) >= WORD_LIMIT:
            raise self.unexpected(what)
        self.position += 1
        return int(word)

    def extent(self) -> int:
        """Steps over the extent of a tile along an axis."""
        return self.count("an extent: a whole number without a suffix")

    # ---- sizes

    def dim_expression(self, least: int = 1, depth: int = 0) -> DimExpr:
        """A dim expression. Raises Failed."""
        left = self._dim_operand(depth)
        while (name := _DIM_INFIX.get(self.words[self.position])) is not None and (level := 2 if name == "mul" else 1) >= least:
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
        at, name = self.position, self.words[self.position]
        if depth > MAX_DIM_TERMS:
            raise Failed(finding("P107", f"a dim expression nests more than {MAX_DIM_TERMS} deep", self.place(at)))
        if self.kind == "number":
            return DimConst(self.size())
        if self.take("("):
            inner = self.dim_expression(1, depth + 1)
            self.expect(")")
            return inner
        if name in DIM_OPS and self.words[self.position + 1] == "(":
            self.position += 2
            left = self.dim_expression(1, depth + 1)
            self.expect(",")
            right = self.dim_expression(1, depth + 1)
            self.expect(")")
            return self.dim_op(name, left, right)
        name = self.name("a size: a number, a dim, or + - * ceil_div min max of them")
        if name not in self.dims:
            raise self.unknown("the dim", name, self.dims, self.place(at))
        return self.dims[name]

    def size(self) -> int:
        """A whole number without a suffix."""
        at = self.position
        digits, suffix = split_literal(self.expect_kind("number", "a whole number"))
        if suffix is not None or not (digits.isdigit() or digits[:2] in ("0x", "0X")):
            raise Failed(finding("P105", "a size is a whole number without a suffix", self.place(at)))
        value = int(digits, 0 if not digits.isdigit() else 10)
        if value >= MAX_SIZE:
            raise Failed(finding("P105", f"the size {digits[:40]} is beyond 2^64", self.place(at)))
        return value
