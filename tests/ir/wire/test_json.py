"""The JSON form: exact round trips, its schema, and what is refused, with a JSON pointer to it."""

from __future__ import annotations

import json
import math
import random
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from filetest import files, text_of
from generator import Seeded, generate
from malformed import json_tree
from tree import ROOT
from wire_pages import VECTORS, vector

from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import SIZE_LIMIT, DimConst
from vyre_py.ir.language.errors import WireError
from vyre_py.ir.language.nodes import Access, Const, Space, const
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import SCALARS, Type, decode, encode, f32, u32
from vyre_py.ir.text.parser import parse
from vyre_py.ir.wire.json.json_form import EXACT_INTEGERS, MAX_DEPTH, MAX_TEXT
from vyre_py.ir.wire.json.json_numbers import rounded_bits
from vyre_py.ir.wire.json.json_writer import constant_value
from vyre_py.ir.wire.schema import schema

SCHEMA = schema()


def refused(text: Any) -> WireError:
    with pytest.raises(WireError) as caught:
        Program.from_json(text)
    assert str(caught.value)
    return caught.value


# ---------------------------------------------------------------- a validator of what the schema uses


_KINDS: dict[str, tuple[type, ...]] = {"object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}


def problem(value: Any, rule: dict[str, Any]) -> str | None:
    """Why a value does not keep a rule of JSON Schema, in the keywords that ours uses; None when it does."""
    for keyword, wanted in rule.items():
        found = _KEYWORDS[keyword](value, wanted, rule)
        if found:
            return found
    return None


def _type(value: Any, wanted: str, rule: dict[str, Any]) -> str | None:
    fits = isinstance(value, _KINDS[wanted]) and (wanted == "boolean" or not isinstance(value, bool))
    return None if fits else f"{value!r} is not a {wanted}"


def _properties(value: Any, wanted: dict[str, Any], rule: dict[str, Any]) -> str | None:
    return next((found for key, one in wanted.items() if key in value and (found := problem(value[key], one))), None)


def _prefix(value: Any, wanted: list[Any], rule: dict[str, Any]) -> str | None:
    return next((found for item, one in zip(value, wanted, strict=False) if (found := problem(item, one))), None)


def _resolved(reference: str) -> dict[str, Any]:
    at: Any = SCHEMA
    for key in reference.removeprefix("#/").split("/"):
        at = at[key]
    assert isinstance(at, dict)
    return at


_KEYWORDS: dict[str, Any] = {
    **dict.fromkeys(("$schema", "$defs", "title", "description"), lambda value, wanted, rule: None),
    "$ref": lambda value, wanted, rule: problem(value, _resolved(wanted)),
    "type": _type,
    "enum": lambda value, wanted, rule: None if value in wanted else f"{value!r} is none of {wanted}",
    "const": lambda value, wanted, rule: None if value == wanted else f"{value!r} is not {wanted!r}",
    "properties": _properties,
    "required": lambda value, wanted, rule: next((f"{key} is missing" for key in wanted if key not in value), None),
    "additionalProperties": lambda value, wanted, rule: next((f"{key} is not known" for key in value if key not in rule["properties"]), None),
    "items": lambda value, wanted, rule: next((found for item in value if (found := problem(item, wanted))), None),
    "prefixItems": _prefix,
    "minItems": lambda value, wanted, rule: None if len(value) >= wanted else f"{len(value)} items",
    "maxItems": lambda value, wanted, rule: None if len(value) <= wanted else f"{len(value)} items",
    "minimum": lambda value, wanted, rule: None if value >= wanted else f"{value} is below {wanted}",
    "maximum": lambda value, wanted, rule: None if value <= wanted else f"{value} is above {wanted}",
    "maxLength": lambda value, wanted, rule: None if len(value) <= wanted else f"{len(value)} characters",
    "pattern": lambda value, wanted, rule: None if re.search(wanted, value) else f"{value!r} does not fit {wanted}",
    "anyOf": lambda value, wanted, rule: None if any(problem(value, one) is None for one in wanted) else f"{value!r} is none of the forms",
    "oneOf": lambda value, wanted, rule: None if sum(problem(value, one) is None for one in wanted) == 1 else f"{value!r} is not one form",
    "not": lambda value, wanted, rule: None if problem(value, wanted) else f"{value!r} is what it must not be",
}  # fmt: skip


# ---------------------------------------------------------------- round trips


@pytest.mark.parametrize("number", range(40))
def test_generated_programs_come_back(number: int) -> None:
    program = generate(Seeded(number)).program
    text = program.to_json()
    again = Program.from_json(text)
    assert again == program
    assert again.to_json() == text
    assert again.to_bytes() == program.to_bytes()
    assert again.value_names == program.value_names
    assert problem(json.loads(text), SCHEMA) is None


@pytest.mark.parametrize("path", files("run"), ids=lambda path: path.stem)
def test_filetests_come_back(path: Path) -> None:
    for text in text_of(path).split("\nprogram ")[1:]:
        program = parse("program " + text)
        written = program.to_json(places=True)
        assert problem(json.loads(written), SCHEMA) is None
        assert Program.from_json(written).to_bytes(places=True) == program.to_bytes(places=True)


@pytest.mark.parametrize("type_", SCALARS.values(), ids=str)
def test_every_bit_of_a_constant_comes_back(type_: Type) -> None:
    a = Assembler("p")
    patterns = {0, 1, (1 << type_.bits) - 1, 1 << (type_.bits - 1), *(random.Random(1).randrange(1 << type_.bits) for _ in range(50))}
    if type_.is_float:
        patterns |= {encode(type_, value) for value in (0.1, -0.0, 1e-30, float("inf"), float("-inf"))} | {type_.canonical_nan, type_.canonical_nan | 1}
    for bits in sorted(patterns):
        a.var(type_, Const(type_, bits))
    again = Program.from_json(a.finish().to_json())
    assert [s.args[0].bits for s in again.body] == sorted(patterns)  # type: ignore[union-attr]  # constants, all of them


def test_integers_that_not_every_reader_holds_are_written_as_bits() -> None:
    u64 = SCALARS["u64"]
    assert constant_value(u64, EXACT_INTEGERS) == str(EXACT_INTEGERS)
    assert constant_value(u64, EXACT_INTEGERS + 1) == '"0x0020000000000000"'
    assert constant_value(f32, 0x7FC00001) == '"0x7fc00001"'
    assert constant_value(f32, 0x80000000) == "-0.0"


@pytest.mark.parametrize("kind", [str.encode, lambda text: bytearray(text.encode()), lambda text: memoryview(text.encode()), str])
def test_any_kind_of_text_will_do(kind: Any) -> None:
    assert Program.from_json(kind(vector("control").to_json())) == vector("control")


@pytest.mark.parametrize("name", VECTORS)
def test_the_order_of_keys_and_white_space_mean_nothing(name: str) -> None:
    tree = json.loads(vector(name).to_json(places=True))
    for key in ("dims", "params", "memories", "body"):
        tree[key] = [dict(reversed(row.items())) for row in tree[key]]
    turned = dict(reversed(tree.items()))
    wide, narrow = json.dumps(turned, indent=3).replace("\n", "\r\n\t"), json.dumps(turned, separators=(",", ":"))
    for text in (json.dumps(turned), wide, narrow, json.dumps(turned, ensure_ascii=False)):
        assert Program.from_json(text).to_bytes(places=True) == vector(name).to_bytes(places=True)


def test_what_may_be_left_out() -> None:
    memory = '{"name": "y", "space": "buffer", "type": "f32", "shape": [7], "access": "write"}'
    program = Program.from_json(f'{{"vyre": 1, "name": "p", "body": [], "memories": [{memory}]}}')
    assert program == parse("program p() {\nbuffer y: f32[7] write\n}\n")


def test_numbers_are_rounded_once() -> None:
    text = made('{"do": "var", "type": "f16", "args": [["f16", 1.00048828125001]]}', '{"do": "var", "type": "bf16", "args": [["bf16", 3]]}')
    first, second = (s.args[0] for s in Program.from_json(text).body)
    assert (first.bits, second.bits) == (0x3C01, 0x4040)  # type: ignore[union-attr]  # constants, both of them


@pytest.mark.parametrize("type_", [t for t in SCALARS.values() if t.is_float], ids=str)
def test_numbers_are_rounded_as_everywhere(type_: Type) -> None:
    """Ties, the least and the greatest numbers among them."""
    r = random.Random(3)
    values = [r.uniform(-4, 4) * 2.0 ** r.randrange(-160, 140) for _ in range(3000)]
    values += [0.0, -0.0, 5e-324, 65519.99, 65520.0, 3.3895e38, 3.4e38, 1e300, 2.0**-134, 2.0**-24]
    values += [(256 + k + half) * 2.0**e for k in range(0, 256, 7) for half in (0.0, 0.5, 0.5 + 2**-30) for e in (-141, -133, -30, 0)]
    for value in values:
        expected = encode(type_, value)
        if not math.isfinite(decode(type_, expected)):
            with pytest.raises(OverflowError):
                rounded_bits(type_, value)
        else:
            assert rounded_bits(type_, value) == expected, value


# ---------------------------------------------------------------- the schema


def test_the_schema_refuses_what_the_reader_refuses() -> None:
    """What of the malformed vectors a schema can see. A reader sees more: order, duplicates, references."""
    seen = {
        "no version", "a version of the future", "no body", "a list", "an unknown key", "brackets 100 deep", "an unknown statement", "an unknown type",
        "over and grid", "a name of 300 characters",
    }  # fmt: skip
    rows = json.loads((ROOT / "tests" / "vectors" / "malformed.json").read_text(encoding="utf-8"))
    for row in rows:
        if "json" in row and row["what"] in seen:
            seen.remove(row["what"])
            assert problem(json.loads(row["json"]), SCHEMA), row["what"]
    assert not seen


@pytest.mark.parametrize("number", range(200))
def test_the_reader_refuses_what_the_schema_refuses(number: int) -> None:
    text = json_tree(random.Random(number), vector("control").to_json().encode())
    tree = json.loads(text)
    if problem(tree, SCHEMA):
        refused(text)


# ---------------------------------------------------------------- refusals


def made(*body: str, head: str = "") -> str:
    return f'{{"vyre": 1, "name": "p", {head}"body": [{", ".join(body)}]}}'


DEEP = '["add", 1, ' * 64 + "1" + "]" * 64
MEMORY = '"memories": [{"name": "y", "space": "buffer", "type": "f32", "shape": [SHAPE], "access": "read"}], '
REFUSED = [
    (made("1"), "W115", "/body/0"),
    (made("{}"), "W115", "/body/0"),
    (made('{"do": "barrier", "do": "return"}'), "W115", "/body/0"),
    (made('{"do": 3}'), "W105", "/body/0/do"),
    (made('{"do": ["add"]}'), "W105", "/body/0/do"),
    (made('{"do": "barrier", "args": {}}'), "W115", "/body/0/args"),
    (made(f'{{"do": "barrier", "args": [{", ".join(["0"] * 256)}]}}'), "W115", "/body/0/args"),
    (made('{"do": "if", "args": [true]}'), "W115", "/body/0/args/0"),
    (made('{"do": "if", "args": [-1]}'), "W115", "/body/0/args/0"),
    (made('{"do": "if", "args": [1.0]}'), "W115", "/body/0/args/0"),
    (made('{"do": "if", "args": [null]}'), "W115", "/body/0/args/0"),
    (made('{"do": "if", "args": [["f32x2", 1]]}'), "W105", "/body/0/args/0/0"),
    (made('{"do": "if", "args": [["f32", null]]}'), "W115", "/body/0/args/0/1"),
    (made('{"do": "if", "args": [["f32", "1.5"]]}'), "W112", "/body/0/args/0/1"),
    (made('{"do": "if", "args": [["u32", 1.5]]}'), "W112", "/body/0/args/0/1"),
    (made('{"do": "if", "args": [["u8", 256]]}'), "W112", "/body/0/args/0/1"),
    (made('{"do": "if", "args": [["u8", -1]]}'), "W112", "/body/0/args/0/1"),
    (made('{"do": "if", "args": [["bool", 1]]}'), "W112", "/body/0/args/0/1"),
    (made('{"do": "if", "args": [["u32", true]]}'), "W112", "/body/0/args/0/1"),
    (made('{"do": "if", "args": [["f32", 1e400]]}'), "W112", "/body/0"),
    (made('{"do": "if", "args": [{"param": "a"}]}'), "W106", "/body/0/args/0/param"),
    (made('{"do": "if", "args": [{"size": "n"}]}'), "W106", "/body/0/args/0/size"),
    (made('{"do": "if", "args": [{"size": ["pow", 1, 2]}]}'), "W105", "/body/0/args/0/size"),
    (made(f'{{"do": "if", "args": [{{"size": {SIZE_LIMIT}}}]}}'), "W115", "/body/0/args/0/size"),
    (made(f'{{"do": "if", "args": [{{"size": {DEEP}}}]}}'), "W107", "/body/0/args/0/size"),
    (made('{"do": "get", "type": "f32", "variable": 0}'), "W111", "/body/0"),
    (made('{"do": "get", "type": "f32"}'), "W115", "/body/0"),
    (made('{"do": "get", "type": "f32", "variable": -1}'), "W115", "/body/0/variable"),
    (made('{"do": "var", "type": "f32"}'), "W112", "/body/0/args"),
    (made('{"do": "region"}'), "W115", "/body/0"),
    (made('{"do": "end"}'), "W110", "/body/0/do"),
    (made('{"do": "else"}'), "W110", "/body/0/do"),
    (made('{"do": "barrier", "place": ["f", 1, 2]}'), "W115", "/body/0/place"),
    (made('{"do": "barrier", "place": ["f", 1, 2, -1]}'), "W115", "/body/0/place/3"),
    (made('{"do": "barrier", "place": [1, 1, 1, 1]}'), "W115", "/body/0/place/0"),
    (made(head=MEMORY.replace("SHAPE", '"n"')), "W106", "/memories/0/shape/0"),
    (made(head=MEMORY.replace("SHAPE", "-1")), "W115", "/memories/0/shape/0"),
    (made(head=MEMORY.replace("SHAPE", ", ".join(["1"] * 256))), "W107", "/memories/0/shape"),
    (made(head=MEMORY.replace("SHAPE", "1").replace('"read"', '"reads"')), "W105", "/memories/0/access"),
    (made(head=MEMORY.replace("SHAPE", "1").replace('"read"', '"read", "data": "0"')), "W115", "/memories/0/data"),
    (made(head=MEMORY.replace("SHAPE", "1").replace('"read"', '"read", "data": "0 0 "')), "W115", "/memories/0/data"),
    (made(head='"dims": [{"name": "n"}, {"name": "n"}], '), "W115", "/dims/1/name"),
    (made(head='"params": [{"name": "a", "type": "f32"}, {"name": "a", "type": "f32"}], '), "W115", "/params/1/name"),
    (made(head='"params": {"name": "a"}, '), "W115", "/params"),
    (made(head='"workgroup": [1, 1], '), "W115", "/workgroup"),
    (made(head='"workgroup": [1, 1, "1"], '), "W115", "/workgroup/2"),
    (made(head='"over": [1, "n", 1], '), "W106", "/over/1"),
    (made(head='"doc": 1, '), "W115", "/doc"),
    (made(head='"doc": "\\ud800", '), "W108", ""),
    (made(head='"dock": "", '), "W115", ""),
    (made(head="".join(f'"k{k}": 0, ' for k in range(100))), "W107", ""),
    (made(head='"doc": "\n", '), "W114", "/doc"),
    (made(head='"doc": "\\x", '), "W114", "/doc"),
    (made(head='"doc": 01, '), "W114", "/doc"),
    (made(head='"doc": nul, '), "W114", "/doc"),
    (made('{"do": "barrier"},'), "W114", "/body/1"),
    (made('{"do": "barrier"} {"do": "barrier"}'), "W114", "/body/0"),
    (made("[1}"), "W114", "/body/0"),
    ('{"vyre": 1, "name": "p", "body": [}', "W114", ""),
    ('{"vyre": 1, "name": "p", "body": []', "W114", ""),
    ('{"vyre": 1, "name": "p", "body": [],}', "W114", ""),
    ('{"vyre": 1 "name": "p", "body": []}', "W114", ""),
    ('{vyre: 1, "name": "p", "body": []}', "W114", ""),
    ('{"vyre": true, "name": "p", "body": []}', "W102", "/vyre"),
    ('{"vyre": "1", "name": "p", "body": []}', "W102", "/vyre"),
    ("\ufeff" + made(), "W101", ""),
    (b'{"vyre": 1, "name": "\xff", "body": []}', "W108", "/name"),
    ("\ud800", "W108", ""),
    (None, "W116", None),
    (7, "W116", None),
]


@pytest.mark.parametrize(("text", "code", "where"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused_is_pointed_at(text: Any, code: str, where: str | None) -> None:
    error = refused(text)
    assert (error.codes, error.where) == ((code,), where), str(error)


def test_two_memories_of_one_name_have_no_json() -> None:
    a = Assembler("p")
    for _ in range(2):
        a.memory("y", Space.PRIVATE, f32, (DimConst(1),), Access.READ_WRITE)
    with pytest.raises(WireError) as caught:
        a.finish().to_json()
    assert caught.value.codes == ("W113",)
    assert Program.from_bytes(a.finish().to_bytes()) == a.finish()


@pytest.mark.parametrize(
    "text",
    [
        b"[" * (1 << 20), b"{" * (1 << 20), b'{"a":' * (1 << 18), b'{"vyre": ' + b"[" * (1 << 20), b'{"body": [' + b"[],[" * (1 << 19) + b"]}",
        b'{"body": ' + b"[" * 72 + b"]" * 72,
        b'{"vyre": 1, "name": "p", "body": [' + b"[],".join([b""] * (1 << 20)) + b"0]}", b'{"vyre": 1, "name": "p", "body": [[' + b"[]," * (1 << 20) + b"0]]}",
        b'{"vyre": 1, "name": "p", "body": [' + b"1" * (1 << 20) + b"]}", b'"' * (1 << 20), b'"' + b"\\" * (1 << 20), b'{"' + b"x" * (1 << 20),
        ('{"vyre": 1, "name": "p", "doc": "' + "é" * (1 << 20) + '", "body": []}').encode(), b" " * (MAX_TEXT + 1),
        b'{"vyre": 1, "name": "p", "body": [{"do": "barrier", ' + b", ".join([b'"%d": 0' % k for k in range(8000)]) + b', "7999": 0}]}',
    ],
    ids=range(15),
)  # fmt: skip
def test_hostile_texts_cost_little(text: bytes) -> None:
    tracemalloc.start()
    refused(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def test_nesting_is_bounded_exactly() -> None:
    for depth, code in ((MAX_DEPTH, "W115"), (MAX_DEPTH + 1, "W107")):
        assert refused(made(head=f'"doc": {"[" * depth}{"]" * depth}, ')).codes == (code,)


def test_a_program_too_large_for_json_says_so() -> None:
    a = Assembler("p")
    a.memory("t", Space.TABLE, u32, (DimConst(1 << 22),), Access.READ, bytes(1 << 24))
    a.let(OPS["neg"], (const(SCALARS["i32"], 1),))
    with pytest.raises(WireError) as caught:
        a.finish().to_json()
    assert caught.value.codes == ("W107",)
    assert Program.from_bytes(a.finish().to_bytes()) == a.finish()


@pytest.mark.parametrize(
    "row",
    [
        '{"do": "local_index", "type": "u32", "name": "%x"}', '{"do": "var", "type": "f64", "args": [["f64", %d]]}', '{"do": "barrier"}',
        '{"do": "barrier", "args": [ARGS]}',
    ],
    ids=["names", "constants", "statements", "operands"],
)  # fmt: skip
def test_a_large_refusal_takes_little_memory(row: str) -> None:
    """A text of an eighth of the greatest length, wrong at its end."""
    row = row.replace("ARGS", ", ".join(["0"] * 255))
    count = MAX_TEXT // 8 // (len(row) + 5)
    text = '{"vyre": 1, "name": "p", "body": [' + ",".join([row % k if "%" in row else row for k in range(count)]) + ", 0]}"
    data = text.encode()
    del text
    tracemalloc.start()
    refused(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (64 << 20) // 4
