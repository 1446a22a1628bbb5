"""What is generated for the door: the tables of `ir/WIRE.md`, `ir/program.schema.json`, and the test vectors in `tests/vectors/`.

`python tests/pages.py` rewrites all of them, with the other pages.
`test_wire.py` and `test_json.py` hold what is committed against what these functions give. The vectors' sources are the `.vir` files.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tree import ROOT, on_path

on_path()

from malformed import redigested  # noqa: E402 - the path above must stand first

from vyre_py.ir.language.errors import WireError  # noqa: E402 - as above
from vyre_py.ir.language.program import Program  # noqa: E402 - as above
from vyre_py.ir.language.rules import RULES  # noqa: E402 - as above
from vyre_py.ir.text.parser import parse  # noqa: E402 - as above
from vyre_py.ir.wire import codes, statement_codes  # noqa: E402 - as above
from vyre_py.ir.wire.binary import PROGRAM, WITH_FUNCTIONS  # noqa: E402 - as above
from vyre_py.ir.wire.flat import COLUMNS  # noqa: E402 - as above
from vyre_py.ir.wire.schema import schema  # noqa: E402 - as above

__all__ = ["COMMAND", "FILES", "MALFORMED", "PAGE", "VECTORS", "vector"]

COMMAND: Final = "python tests/pages.py"
PAGE: Final = ROOT / "ir" / "WIRE.md"
FOLDER: Final = ROOT / "tests" / "vectors"
VECTORS: Final = ("axpy", "control", "empty", "grid", "places", "sizes", "types")
_WITH_PLACES: Final = frozenset({"places"})
_A_LINE: Final = 6  # names in a row of a table of codes
_BYTES_A_LINE: Final = 16


def vector(name: str) -> Program:
    """The Program of a test vector."""
    return parse((FOLDER / f"{name}.vir").read_text(encoding="utf-8"), f"{name}.vir")


# ---------------------------------------------------------------- the page


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows))


def _numbers(table: Mapping[str, int], show: Callable[[int], str] = str) -> str:
    """Name and number, a few in each row."""
    cells = [f"`{name}` {show(number)}" for name, number in table.items()]
    cells += [""] * (-len(cells) % _A_LINE)
    rows = [tuple(cells[k : k + _A_LINE]) for k in range(0, len(cells), _A_LINE)]
    return _table(("",) * _A_LINE, iter(rows))


def _header() -> str:
    def rows() -> Iterator[tuple[str, ...]]:
        at = 0
        for name, (code, doc) in WITH_FUNCTIONS.fields.items():
            size = struct.calcsize("<" + code)
            yield str(at), str(size), f"`{name}`", doc
            at += size

    return _table(("offset", "bytes", "field", "meaning"), rows())


def _columns() -> str:
    def rows() -> Iterator[tuple[str, ...]]:
        for column in COLUMNS:
            width = f"{column.per} x {column.width // column.per}" if column.per > 1 else str(column.width)
            yield f"`{column.name}`", width, f"`{column.count}`", column.doc

    return _table(("column", "bytes", "entries", "an entry"), rows())


def _code_table(low: int, high: int) -> str:
    return _numbers({name: code for name, code in statement_codes.CODES.items() if low <= code < high}, hex)


def _rules() -> str:
    return _table(("code", "what is wrong"), ((code, rule.title) for code, rule in RULES.items() if code.startswith("W")))


def _types(part: bytes) -> str:
    return ": " + ", ".join([codes.TYPE_NAMES.get(code, "-") for code in part])


def _operands(part: bytes) -> str:
    kinds = {number: name for name, number in codes.OPERAND_KINDS.items()}
    return ": " + ", ".join([f"{kinds[entry & 3]} {entry >> 2}" for (entry,) in struct.iter_unpack("<I", part)])


# What the entries of a column stand for, in the dump.
_SAID: Final[Mapping[str, Callable[[bytes], str]]] = {
    **dict.fromkeys(("types", "param_types", "memory_types"), _types),
    "operands": _operands,
    "codes": lambda part: ": " + ", ".join([statement_codes.CODE_NAMES[code] for (code,) in struct.iter_unpack("<H", part)]),
    "text": lambda part: f": {part.decode()}",
}


def _dump() -> str:
    """The bytes of `axpy.vyre`, each field and column on lines of its own."""
    data = vector("axpy").to_bytes()
    spans: list[tuple[str, int, int]] = []
    at = 0
    for name, (code, _) in PROGRAM.fields.items():
        spans.append((name, at, at := at + struct.calcsize("<" + code)))
    places = [*PROGRAM.places(PROGRAM.head.unpack_from(data)), len(data)]
    names = [*[section.name for section in PROGRAM.sections], "digest"]
    spans += [(name, start, stop) for name, (start, stop) in zip(names, pairwise(places), strict=True)]
    lines = []
    for name, start, stop in spans:
        for k in range(start, stop, _BYTES_A_LINE):
            part = data[k : min(stop, k + _BYTES_A_LINE)]
            said = f"{name}{_SAID.get(name, lambda part: '')(data[start:stop])}" if k == start else ""
            lines.append(f"{k:04x}  {part.hex(' '):{3 * _BYTES_A_LINE}} {said}".rstrip())
    return "```\n" + "\n".join(lines) + "\n```"


_BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "header": _header,
    "columns": _columns,
    "scalars": lambda: _numbers(codes.SCALAR_CODES),
    "spaces": lambda: _numbers({**codes.SPACE_CODES, **codes.ACCESS_CODES}),
    "sizes": lambda: _numbers({"a constant": codes.SIZE_CONST, "a dim": codes.SIZE_DIM, **codes.SIZE_CODES}),
    "operands": lambda: _numbers(codes.OPERAND_KINDS),
    "statements": lambda: _code_table(0, statement_codes.OP_BASE),
    "ops": lambda: _code_table(statement_codes.OP_BASE, statement_codes.ATOMIC_BASE),
    "atomics": lambda: _code_table(statement_codes.ATOMIC_BASE, statement_codes.SUBGROUP_BASE),
    "subgroups": lambda: _code_table(statement_codes.SUBGROUP_BASE, statement_codes.TILE_BASE),
    "tiles": lambda: _code_table(statement_codes.TILE_BASE, 1 << 16),
    "rules": _rules,
    "dump": _dump,
}


def page() -> bytes:
    """The page with its blocks made anew."""
    text = PAGE.read_text(encoding="utf-8")
    for name, make in _BLOCKS.items():
        pattern = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert len(pattern.findall(text)) == 1, f"{PAGE.name} has no block {name}, or several"
        made = make()
        text = pattern.sub(lambda match: f"{match[1]}{made}\n{match[2]}", text)  # noqa: B023 - called at once
    return text.encode()


# ---------------------------------------------------------------- malformed vectors


def _edited(field: str, value: int, entry: int = 0, name: str = "axpy") -> bytes:
    """A vector with one entry of a column, or one field of the header, changed under a digest that fits."""
    data = bytearray(vector(name).to_bytes())
    width = next((column.width for column in COLUMNS if column.name == field), 1 if field == "text" else 4)
    at = PROGRAM.offset(field, entry, PROGRAM.head.unpack_from(data))
    size = struct.calcsize("<" + PROGRAM.fields[field][0]) if field in PROGRAM.fields and field not in ("workgroup", "extents") else width
    data[at : at + size] = value.to_bytes(size, "little")
    return bytes(data) if field == "length" else redigested(bytes(data))


def _row(name: str) -> int:
    """The first statement of the vector `control` with this code."""
    body: list[dict[str, Any]] = json.loads(vector("control").to_json())["body"]
    return next(k for k, statement in enumerate(body) if statement["do"] == name)


def _wire() -> Iterator[tuple[str, bytes]]:
    good = vector("axpy").to_bytes()
    yield "nothing", b""
    yield "another magic", b"VYRE" + good[4:]
    yield "a version of the future", _edited("version", 3)
    yield "the last byte cut off", good[:-1]
    yield "a byte too many", good + b"\x00"
    yield "half", good[: len(good) // 2]
    yield "a bit flipped", good[:200] + bytes([good[200] ^ 1]) + good[201:]
    yield "a bit of the digest flipped", good[:-1] + bytes([good[-1] ^ 1])
    yield "four billion statements", _edited("statements", (1 << 32) - 1)
    yield "a statement that is none", _edited("codes", 0x7FF, 1)
    yield "a type that is none", _edited("types", 0x3F, 1)
    yield "a type where none belongs", _edited("types", codes.TYPE_CODES["f32"], 5)
    yield "no type where one belongs", _edited("types", 0, 1)
    yield "a memory that is not there", _edited("refs", 2, 1)
    yield "a reference where none belongs", _edited("refs", 1, 0)
    yield "a value used before it is bound", _edited("operands", 4 * 4, 0)
    yield "a string that is not there", _edited("name", 99)
    yield "a string that is not UTF-8", _edited("text", 0xFF, 3)
    yield "strings that do not ascend", _edited("text", ord("~"), 0)
    yield "a size that is not a dim's", _edited("size_left", 9, 1)
    yield "sizes that do not ascend", _edited("size_ops", codes.SIZE_CONST, 1)
    yield "a grid of neither kind", _edited("over", 2)
    yield "constants that do not ascend", _edited("constant_bits", (1 << 32) - 1, 0, "control")
    yield "a constant that does not fit its type", _edited("constant_bits", 1 << 40, 0, "control")
    yield "a constant that is a vector", _edited("constant_types", codes.TYPE_CODES["f32x2"], 0, "control")
    yield "a block that is never closed", _edited("codes", statement_codes.CODES["barrier"], _row("end"), "control")
    yield "an end without a block", _edited("codes", statement_codes.CODES["end"], _row("return"), "control")
    yield "a variable used before it is declared", _edited("refs", 1, _row("set"), "control")


    with_functions = parse("program p(n) { function f(x: u32) -> u32 { return x }; buffer y: u32[n] read_write; y[global_id.x] = f(1) }").to_bytes()
    header = WITH_FUNCTIONS.head.unpack_from(with_functions)
    at = WITH_FUNCTIONS.offset("functions", 0, header)
    yield "functions of version 1", good[:4] + with_functions[4:6] + good[6:]
    yield "no function in version 2", redigested(with_functions[: PROGRAM.head.size] + bytes(4) + with_functions[PROGRAM.head.size + 4 :])
    body = with_functions[at : len(with_functions) - 32]
    inner = PROGRAM.offset("memory_access", 0, PROGRAM.head.unpack_from(body))
    broken = redigested(body[:inner] + bytes([codes.ACCESS_CODES["read"]]) + body[inner + 1 :])
    yield "a function whose body is none", redigested(with_functions[:at] + broken + with_functions[-32:])


def _json() -> Iterator[tuple[str, str]]:
    def made(*body: str, head: str = "") -> str:
        return f'{{"vyre": 1, "name": "p", {head}"body": [{", ".join(body)}]}}'

    yield "nothing", ""
    yield "a list", "[]"
    yield "no version", '{"name": "p", "body": []}'
    yield "a version of the future", '{"vyre": 2, "name": "p", "body": []}'
    yield "no body", '{"vyre": 1, "name": "p"}'
    yield "cut off", made()[:-2]
    yield "something behind", made() + "1"
    yield "a key twice", made(head='"doc": "", "doc": "", ')
    yield "a key twice in a statement", made('{"do": "barrier", "do": "barrier"}')
    yield "an unknown key", made('{"do": "barrier", "memory": "x"}')
    yield "brackets 100 deep", made("[" * 100 + "]" * 100)
    yield "a number of 50 digits", made(f'{{"do": "if", "args": [{"1" * 50}]}}')
    yield "NaN", made('{"do": "if", "args": [["f32", NaN]]}')
    yield "a number beyond f32", made('{"do": "if", "args": [["f32", 1e39]]}')
    yield "bits beyond f16", made('{"do": "if", "args": [["f16", "0x10000"]]}')
    yield "an unknown statement", made('{"do": "goto"}')
    yield "an unknown type", made('{"do": "local_index", "type": "u33"}')
    yield "an unknown memory", made('{"do": "load", "type": "u32", "memory": "x", "args": [["u32", 0]]}')
    yield "a value used before it is bound", made('{"do": "if", "args": [0]}', '{"do": "end"}')
    yield "a block that is never closed", made('{"do": "loop"}')
    yield "over and grid", made(head='"over": [1, 1, 1], "grid": [1, 1, 1], ')
    yield "a name of 300 characters", made(head=f'"dims": [{{"name": "{"x" * 300}"}}], ')


def _refusal(read: Callable[[Any], Program], data: Any) -> dict[str, Any]:
    try:
        read(data)
    except WireError as error:
        return {"code": error.codes[0], "where": error.where}
    raise AssertionError(f"this is well formed: {data!r}")


def malformed() -> bytes:
    """The malformed vectors: what each is, its bytes or text, the code of the finding and its place."""
    rows = [{"what": what, "wire": data.hex(), **_refusal(Program.from_bytes, data)} for what, data in _wire()]
    rows += [{"what": what, "json": text, **_refusal(Program.from_json, text)} for what, text in _json()]
    return ("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n").encode()


def _schema_text() -> bytes:
    return (json.dumps(schema(), indent=1) + "\n").encode()


def _binary(name: str) -> bytes:
    return vector(name).to_bytes(places=name in _WITH_PLACES)


def _json_text(name: str) -> bytes:
    return vector(name).to_json(places=name in _WITH_PLACES).encode()


def registry() -> bytes:
    """The numbers that were ever given, which stay what they are, and those that are new. Raises ValueError where one was changed."""
    kept: dict[str, dict[str, int]] = json.loads(REGISTRY.read_text(encoding="utf-8"))
    for table, numbers in kept.items():
        now: dict[str, int] = dict(getattr(statement_codes if table == "CODES" else codes, table))
        if changed := [name for name, number in numbers.items() if now.get(name) != number]:
            raise ValueError(f"{table}: the numbers of {', '.join(changed)} were given for ever")
        numbers.update(now)
    return (json.dumps(kept, indent=1) + "\n").encode()


MALFORMED: Final = FOLDER / "malformed.json"
REGISTRY: Final = FOLDER / "registry.json"

# What is generated: the file, and the bytes that it is to hold.
FILES: Final[dict[Path, Callable[[], bytes]]] = {
    **{FOLDER / f"{name}.vyre": partial(_binary, name) for name in VECTORS},
    **{FOLDER / f"{name}.json": partial(_json_text, name) for name in VECTORS},
    MALFORMED: malformed,
    REGISTRY: registry,
    ROOT / "ir" / "program.schema.json": _schema_text,
    PAGE: page,
}
