"""Keys of cached code: everything that the code depends on, as text that people can read."""

from __future__ import annotations

import hashlib
import re
from dataclasses import field
from typing import Final

from vyre_py.drivers.errors import CacheError
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import shown

__all__ = ["KEY_LIMIT_BYTES", "CacheKey"]

KEY_LIMIT_BYTES: Final = 1 << 16

_FIRST_LINE: Final = "vyre-py cache key 1"
_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}\Z", re.ASCII)
_SHORT: Final = {"\\": r"\\", "\n": r"\n", "\t": r"\t"}
_ESCAPED: Final = re.compile(r"\\(?:([\\nt])|u([0-9a-f]{6}))")
_MEANT: Final = {"\\": "\\", "n": "\n", "t": "\t"}


@dataclass(frozen=True, slots=True)
class CacheKey:
    """What a cached piece of code is (`kind`: "cubin", "ptx", "wgsl", "object", ...) and all that it was made from: names and values, given in any order.

    `data` is the canonical text in UTF-8, which is kept whole in the entry: a line that says what this is, `kind=...`, then `name=value` lines in the order
    of their names. In values, a backslash and what is not printable are escaped, so that no value can look like another line or move a terminal's cursor.
    `name` is the SHA-256 of `data` in hexadecimal, and the entry's file name.

    Raises CacheError for a name that is not of `a-z`, `0-9` and `_.-`, one that stands twice, a value that is no text, and a key of more than 64 KiB.
    """

    kind: str
    fields: tuple[tuple[str, str], ...]
    data: bytes = field(init=False, repr=False, compare=False)
    name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, value in (("kind", self.kind), *self.fields):
            if not isinstance(value, str) or not isinstance(name, str) or not _NAME.match(name):
                raise CacheError(f"{shown(name)}={shown(value)} is not a field of a cache key", remedy="a name is like `llvm` or `opt-level`, a value is text")
        named = tuple(sorted(self.fields))
        if not _NAME.match(self.kind) or len({name for name, _ in named} | {"kind"}) != len(named) + 1:
            raise CacheError(f"kind {shown(self.kind)} with fields {shown([name for name, _ in named])} is not a cache key", remedy="each name stands once")
        object.__setattr__(self, "fields", named)
        text = "".join([f"{_FIRST_LINE}\nkind={self.kind}\n", *[f"{name}={_escaped(value)}\n" for name, value in named]])
        data = text.encode("utf-8")
        if len(data) > KEY_LIMIT_BYTES:
            raise CacheError(f"a cache key of {len(data):,} bytes", remedy=f"put digests of long values into it: at most {KEY_LIMIT_BYTES:,} bytes are taken")
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "name", hashlib.sha256(data).hexdigest())

    @property
    def text(self) -> str:
        """The canonical text: printable, but for the ends of its lines."""
        return self.data.decode("utf-8")

    @staticmethod
    def parse(data: bytes) -> CacheKey | None:
        """The key whose canonical text this is, or None where it is that of none."""
        try:
            lines = data.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            return None
        pairs = [line.partition("=")[::2] for line in lines[1:-1]]
        if not pairs or pairs[0][0] != "kind" or len(data) > KEY_LIMIT_BYTES:
            return None
        try:
            key = CacheKey(pairs[0][1], tuple((name, _meant(value)) for name, value in pairs[1:]))
        except CacheError:
            return None
        return key if key.data == data else None


def _escaped(value: str) -> str:
    if value.isprintable() and "\\" not in value:
        return value
    return "".join([_SHORT.get(c) or (c if c.isprintable() else f"\\u{ord(c):06x}") for c in value])


def _meant(value: str) -> str:
    return _ESCAPED.sub(lambda found: _MEANT[found[1]] if found[1] else _character(int(found[2], 16)), value)


def _character(number: int) -> str:
    return chr(number) if number <= 0x10FFFF else ""
