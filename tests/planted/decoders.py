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
        "vyre_py.ir.text.expression_parser",
        "if infix is not None and infix[1] > level:\n                right = self._climb(right, begin, level + 1)",
        "if infix is not None and infix[1] >= level:\n                right = self._climb(right, begin, level)",
        Suite("test_filetests.py::test_passes", "bounds"),
    ),
    Plant(
        "literal_past_the_type",
        "The least literal of a signed type may be one less than the type holds.",
        "vyre_py.ir.text.lexer",
        "        if not type_.minimum <= value <= type_.maximum:\n            raise ValueError(f\"{sign}{digits} does not fit",
        "        if not type_.minimum - 1 <= value <= type_.maximum:\n            raise ValueError(f\"{sign}{digits} does not fit",
        Suite("test_text.py", "literal"),
    ),
    Plant(
        "literal_rounds_twice",
        "A decimal is rounded to f64, and then to its type.",
        "vyre_py.ir.text.lexer",
        "    return value if exact == value else math.nextafter(value, math.inf if exact > value else 0.0)",
        "    return value",
        Suite("test_text.py", "round_once"),
    ),
    Plant(
        "minus_nothing",
        "The literal -0.0 is read as 0.0.",
        "vyre_py.ir.text.lexer",
        "    return bits | 1 << (type_.bits - 1) if negative else bits",
        "    return bits | 1 << (type_.bits - 1) if negative and bits else bits",
        RoundTrip("text"),
    ),
    Plant(
        "text_without_a_limit",
        "Expressions of the text may nest to any depth.",
        "vyre_py.ir.text.expression_parser",
        "        if self.depth > MAX_NESTING:",
        "        if self.depth > MAX_NESTING << 20:",
        Suite("test_text.py", "nesting"),
    ),
    Plant(
        "digest_unchecked",
        "Bytes whose digest is not theirs are read.",
        "vyre_py.ir.wire.record",
        "        if found != made:",
        "        if len(found) != len(made):",
        Suite("test_wire.py", "flipped"),
    ),
    Plant(
        "value_used_by_itself",
        "A statement may use the value that it binds.",
        "vyre_py.ir.wire.verify",
        '(kinds == OPERAND_KINDS["value"]) & (rows >= before)',
        '(kinds == OPERAND_KINDS["value"]) & (rows > before)',
        Suite("test_wire.py::test_malformed_vectors_are_refused"),
    ),
    Plant(
        "sides_swapped",
        "The sides of an operation on sizes are read in the wrong order.",
        "vyre_py.ir.wire.size_table",
        "DimOp(SIZE_OPS[op], made[left], made[right])",
        "DimOp(SIZE_OPS[op], made[right], made[left])",
        RoundTrip("bytes"),
    ),
    Plant(
        "first_table_for_all",
        "Every table takes its data from where the first one's begin.",
        "vyre_py.ir.wire.build",
        "data = bytes(flat.data[at : at + length])",
        "data = bytes(flat.data[:length])",
        RoundTrip("JSON"),
    ),
    Plant(
        "zero_without_a_sign",
        "A number of the JSON form that rounds to the bf16 -0.0 is read as 0.0.",
        "vyre_py.ir.wire.json.json_numbers",
        "(math.copysign(1.0, value) < 0) <<",
        "(value < 0) <<",
        Suite("test_json.py", "rounded or constant"),
    ),
    Plant(
        "grid_for_over",
        "The JSON form's grid of workgroups is read as one of invocations.",
        "vyre_py.ir.wire.json.json_reader",
        'return key == "over", (x, y, z)',
        "return True, (x, y, z)",
        Suite("test_json.py", "filetests"),
    ),
    Plant(
        "decimals_are_cut",
        "A number of the JSON form is cut to bf16, and not rounded.",
        "vyre_py.ir.wire.json.json_numbers",
        "round(math.ldexp(abs(value), -quantum))",
        "int(math.ldexp(abs(value), -quantum))",
        Suite("test_json.py", "rounded"),
    ),
    Plant(
        "keys_twice",
        "The last of two equal keys of a JSON object counts.",
        "vyre_py.ir.wire.json.json_text",
        "object_pairs_hook=_object",
        "object_pairs_hook=dict",
        Suite("test_json.py::test_what_is_refused_is_pointed_at"),
    ),
    Plant(
        "offsets_that_descend",
        "The offsets of flat arrays may descend.",
        "vyre_py.ir.wire.columns",
        "wrong = (counts < 0) | (counts > _MAX_OPERANDS)",
        "wrong = counts > _MAX_OPERANDS",
        Suite("test_from_nodes.py"),
    ),
    Plant(
        "digest_without_types",
        "The code digest leaves out the types of constants.",
        "vyre_py.ir.language.digest",
        'return f"{atom.type.name}#{atom.bits:x}"',
        'return f"#{atom.bits:x}"',
        Suite("test_digest.py"),
    ),
)
