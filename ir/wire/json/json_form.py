"""The JSON form: what its reader, writer and schema share. `ir/program.schema.json` describes it, `ir/WIRE.md` tells of it in words.

    {
    "vyre": 1,
    "name": "scale",
    "doc": "",
    "workgroup": [256, 1, 1],
    "over": ["n", 1, 1],
    "dims": [
    {"name": "n"}],
    "params": [
    {"name": "a", "type": "f32"}],
    "memories": [
    {"name": "y", "space": "buffer", "type": "f32", "shape": ["n"], "access": "read_write"}],
    "body": [
    {"do": "global_id.x", "type": "u32", "name": "i"},
    {"do": "load", "type": "f32", "memory": "y", "args": [0]},
    {"do": "mul", "type": "f32", "args": [{"param": "a"}, 1]},
    {"do": "store", "memory": "y", "args": [0, 2]}]
    }
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.language.nodes import Var
from vyre_py.ir.wire.tables import ATOMICS_BY_CODE, CALL_CODE, KINDS, NUMBERS

__all__ = [
    "EXACT_INTEGERS", "FUNCTIONS", "LISTS", "MAX_DEPTH", "MAX_KEYS", "MAX_MARKS", "MAX_NUMBER", "MAX_OPERANDS", "MAX_PLAIN", "MAX_ROWS", "MAX_TEXT", "REF_KEYS",
    "REQUIRED", "VERSION",
]

VERSION: Final = 1

MAX_TEXT: Final = 16 << 20  # bytes of a text
MAX_ROWS: Final = 1 << 17  # strings, constants and sizes, each: all different ones are kept while a text is read
MAX_OPERANDS: Final = 1 << 22  # of all statements
MAX_PLAIN: Final = 1 << 20  # bytes from which on one value must be ASCII, since Python may hold others in four times the room
MAX_MARKS: Final = 1 << 14  # brackets, braces and commas of one declaration or statement, which bound how many objects Python makes of it
MAX_KEYS: Final = 64  # keys of the outermost object
MAX_NUMBER: Final = 40  # characters of a number
MAX_DEPTH: Final = 72  # brackets and braces inside each other: a size of 64 terms in an operand, and some
EXACT_INTEGERS: Final = (1 << 53) - 1  # every reader of JSON holds whole numbers up to here

FUNCTIONS: Final = "functions"
LISTS: Final = ("dims", "params", "memories", FUNCTIONS, "body")
REQUIRED: Final = ("vyre", "name", "body")

# A statement's code -> the key that holds what it refers to. A var declares the next variable, so it says no number; the numbers that share a ref
# (`NUMBERS` of `tables`) have keys of their own, which stand where they are not 0.
REF_KEYS: Final[Mapping[int, str]] = {
    **dict.fromkeys(ATOMICS_BY_CODE, "memory"), CALL_CODE: "function",
    **{code: next(iter(kind.payload)) for code, kind in KINDS.items() if kind.payload and kind is not Var and code not in NUMBERS},
}
