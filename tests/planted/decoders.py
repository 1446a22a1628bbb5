"""Plants in what reads Programs: text, bytes, JSON, arrays."""

from __future__ import annotations

from typing import Final

from planted.detectors import RoundTrip, Suite
from planted.plant import Plant

__all__ = ["DECODERS"]

DECODERS: Final = (
    Plant(
        "binds_from_the_right",
        "Operators of one level bind from right to left: a - b - c is a - (b - c).",
        "vyre_py.ir.parser_expressions",
        "right = self.expression(row[1] + 1)",
        "right = self.expression(row[1])",
        Suite("test_text.py"),
    ),
    Plant(
        "literal_past_the_type",
        "The least literal of a signed type may be one less than the type holds.",
        "vyre_py.ir.lexer",
        "        if not type_.minimum <= value <= type_.maximum:\n            raise ValueError(f\"{sign}{digits} does not fit",
        "        if not type_.minimum - 1 <= value <= type_.maximum:\n            raise ValueError(f\"{sign}{digits} does not fit",
        Suite("test_text.py", "literal"),
    ),
    Plant(
        "literal_rounds_twice",
        "A decimal is rounded to f64, and then to its type.",
        "vyre_py.ir.lexer",
        "    return value if exact == value else math.nextafter(value, math.inf if exact > value else 0.0)",
        "    return value",
        Suite("test_text.py", "round_once"),
    ),
    Plant(
        "text_without_a_limit",
        "Expressions of the text may nest to any depth.",
        "vyre_py.ir.parser_expressions",
        "        if self.depth > MAX_NESTING:",
        "        if self.depth > MAX_NESTING << 20:",
        Suite("test_text.py", "nesting"),
    ),
    Plant(
        "digest_unchecked",
        "Bytes whose digest is not theirs are read.",
        "vyre_py.ir.wire.binary",
        "    if found != bytes(view[-DIGEST_BYTES:]):",
        "    if len(found) != DIGEST_BYTES:",
        Suite("test_wire.py", "flipped"),
    ),
    Plant(
        "value_used_by_itself",
        "A statement may use the value that it binds.",
        "vyre_py.ir.wire.verify",
        '(kinds == OPERAND_KINDS["value"]) & (rows >= before)',
        '(kinds == OPERAND_KINDS["value"]) & (rows > before)',
        Suite("test_wire.py"),
    ),
    Plant(
        "sides_swapped",
        "The sides of an operation on sizes are read in the wrong order.",
        "vyre_py.ir.wire.build",
        "DimOp(SIZE_OPS[op], made[left], made[right])",
        "DimOp(SIZE_OPS[op], made[right], made[left])",
        Suite("test_wire.py"),
    ),
    Plant(
        "decimals_are_cut",
        "A number of the JSON form is cut to bf16, and not rounded.",
        "vyre_py.ir.wire.json_reader",
        "math.ldexp(round(math.ldexp(value, -quantum)), quantum)",
        "math.ldexp(int(math.ldexp(value, -quantum)), quantum)",
        Suite("test_json.py", "rounded"),
    ),
    Plant(
        "keys_twice",
        "The last of two equal keys of a JSON object counts.",
        "vyre_py.ir.wire.json_text",
        "object_pairs_hook=_object",
        "object_pairs_hook=dict",
        Suite("test_json.py"),
    ),
    Plant(
        "offsets_that_descend",
        "The offsets of flat arrays may descend.",
        "vyre_py.ir.wire.arrays",
        "wrong = (counts < 0) | (counts > _MAX_OPERANDS)",
        "wrong = counts > _MAX_OPERANDS",
        Suite("test_from_nodes.py"),
    ),
    Plant(
        "digest_without_types",
        "The code digest leaves out the types of constants.",
        "vyre_py.ir.digest",
        'return f"{atom.type.name}#{atom.bits:x}"',
        'return f"#{atom.bits:x}"',
        Suite("test_digest.py"),
    ),
)
