"""Names of untrusted Programs in C: valid identifiers, not reserved and distinct, and text that cannot end a comment."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from vyre_py.ir.language.errors import shown
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["Names", "commented", "identifier", "quoted", "require_title", "title_of"]

# Of C up to C23 and C++ up to C++23, types of the headers that are included, and what systems' headers and compilers define as macros in small letters.
_WORDS: Final = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class co_await co_return co_yield compl concept
    const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast else enum explicit export extern false float
    for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch template this thread_local throw true
    try typedef typeid typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
    assert complex errno far huge i386 imaginary interface linux near noreturn signbit small stderr stdin stdout unix
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t size_t
"""
RESERVED: Final = frozenset(_WORDS.split())
# Headers that the sources include, which files of the same name must not hide, and names of Windows that files can't have.
_FILES: Final = frozenset({"stdint", "stdlib", "string", "cuda", "vyre", "stddef", "limits", "aux", "con", "nul", "prn"})
# From so many characters on, names without a small letter are left to the macros of headers.
_MACRO: Final = 3
# What compilers tell apart for sure in names that linkers see is 31 characters; all of today take far more.
_LENGTH: Final = 48
_VALID = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z", re.ASCII)
_DIGEST: Final = 8
_COMMENT: Final = 120  # characters of untrusted text


def identifier(name: str) -> str:
    """A name as an identifier of C: what is not a letter, a digit or an underscore becomes its code point, what is reserved, or looks like a
    macro, gets an underscore, and a long one is cut and made unlike others by a digest. Text alone decides, so it is the same everywhere."""
    text = "".join([c if c.isascii() and (c.isalnum() or c == "_") else f"_u{ord(c):x}_" for c in name])
    if not text or not text[0].isalpha():  # names that begin with an underscore belong to compilers and their libraries
        text = f"v{text}"
    if len(text) > _LENGTH:
        text = f"{text[: _LENGTH - _DIGEST - 1]}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:_DIGEST]}"
    return f"{text}_" if text in RESERVED or (len(text) >= _MACRO and text == text.upper()) else text


def title_of(name: str) -> str:
    """What files and functions of a Program of this name begin with."""
    plain = identifier(name)
    word = plain.rstrip("_")
    return f"{word}_program" if word in RESERVED | _FILES else plain


def require_title(name: str, who: str) -> str:
    """The same for a name that a user chose for `who`. Raises Unsupported for one that would have to be changed."""
    if not isinstance(name, str) or not _VALID.match(name) or len(name) > _LENGTH or name in RESERVED | _FILES:
        help_ = f"files and C's names begin with it: letters, digits and underscores, from a letter on, {_LENGTH} at most, no word of C, no header's name"
        raise Unsupported(who, [Missing(f"name {shown(name)}", help=help_)])
    return name


class Names:
    """The names within one scope: each is given once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str, *beside: str) -> str:
        """An identifier for a name. Those that are it with each of the endings `beside` are taken along."""
        plain = identifier(name)
        candidate, number = plain, 1
        while any(candidate + ending in self._taken for ending in ("", *beside)):
            number += 1
            candidate = f"{plain}_{number}"
        self._taken |= {candidate + ending for ending in ("", *beside)}
        return candidate


def commented(text: str) -> str:
    """Text in a comment of C, on one line: other characters than printable ASCII become their code points, and neither a comment's end nor a trigraph or a
    line's continuation is left in it. Long text is cut."""
    text = text if len(text) <= _COMMENT else f"{text[:_COMMENT]}..."
    escaped = "".join([c if " " <= c <= "~" and c != "\\" else f"<U+{ord(c):04X}>" for c in text])
    return escaped.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def quoted(text: str) -> str:
    """Text as a string literal of C."""
    plain = "".join([chr(b) if b < 128 and (chr(b).isalnum() or chr(b) in "_$. -") else f"\\{b:03o}" for b in text.encode()])
    return f'"{plain}"'
