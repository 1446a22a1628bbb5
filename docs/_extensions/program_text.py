"""Programs as text, with the colours of their words: a lexer for Pygments, made from the tables that the parser reads by."""

from __future__ import annotations

import re
from typing import ClassVar

from docutils import nodes
from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from vyre_py.ir.language.types import TYPES
from vyre_py.ir.text.lexer import CALLED, KEYWORDS, LEADING, QUERIES, TILE_CALLED, WORDS

_ACCESS = ("read", "write", "read_write", "over", "grid", "tiles", "subgroup", "step", "pipeline", "unroll")
_PROGRAM = re.compile(r"^(program|function) \w+\(", re.MULTILINE)


class ProgramLexer(RegexLexer):
    """Reads `.vir` text."""

    name = "vyre-py Program"
    aliases: ClassVar[list[str]] = ["vir"]
    tokens: ClassVar[dict[str, object]] = {
        "root": [
            (r"//.*?$", Comment.Single),
            (r'"(\\.|[^"\\])*"', String),
            (words(sorted(TYPES), prefix=r"\b", suffix=r"\b"), Keyword.Type),
            (words(sorted(LEADING), prefix=r"\b", suffix=r"\b"), Keyword),
            (words(sorted({*QUERIES, *WORDS}), prefix=r"\b", suffix=r"\b"), Name.Builtin),
            (words(sorted(KEYWORDS - LEADING - WORDS - set(TYPES)), prefix=r"\b", suffix=r"\b"), Keyword.Constant),
            (words(_ACCESS, prefix=r"\b", suffix=r"\b"), Keyword.Pseudo),
            (words(sorted(CALLED | TILE_CALLED), prefix=r"\b", suffix=r"(?=[.\w]*\()"), Name.Function),
            (r"0[xX][0-9a-fA-F]+\w*|[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\w*", Number),
            (r"[A-Za-z_]\w*", Name),
            (r"[-+*/%&|^~!<>=]+|\.\.", Operator),
            (r"[(){}\[\],;:.]", Punctuation),
            (r"\s+|.", Text),
        ],
    }


class FindPrograms(SphinxTransform):
    """A block that names no language and begins as a Program does is one."""

    default_priority = 210

    def apply(self, **_: object) -> None:
        """Marks them."""
        for block in self.document.findall(nodes.literal_block):
            if block.get("language", "default") in ("default", "none", "text") and _PROGRAM.match(block.astext()):
                block["language"] = "vir"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_lexer("vir", ProgramLexer)
    app.add_transform(FindPrograms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
