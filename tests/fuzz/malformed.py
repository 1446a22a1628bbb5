"""Malformed Programs for the three decoders: bytes, JSON and text.

From 50 seed Programs: every byte flipped, every truncation, structured mutations (fields changed, and the digest made right again), deep nesting,
absurd counts. A decoder may answer with a Program, or with WireError (text: ParseError or ValidationError); `check` with ValidationError; what it
accepts, but for Programs of tiles, is lowered for the reference, which may answer with Unsupported. Nothing else, within 50 ms and 1 us a byte, and 64 MiB.

    python tests/fuzz/malformed.py        as many as it takes for every byte, at least half a million, and a table of what came of them
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import random
import re
import struct
import sys
import time
import tracemalloc
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tree import on_path

on_path()

import numpy as np  # noqa: E402 - the path above must stand first
from every_tile import tile_programs  # noqa: E402 - as above
from filetest import files, text_of  # noqa: E402 - as above
from generator import Seeded, generate  # noqa: E402 - as above

from vyre_py.ir.check import check  # noqa: E402 - as above
from vyre_py.ir.language.errors import ParseError, ProgramError, ValidationError, WireError  # noqa: E402 - as above
from vyre_py.ir.language.program import Program  # noqa: E402 - as above
from vyre_py.ir.language.types import TYPES  # noqa: E402 - as above
from vyre_py.ir.text.parser import parse  # noqa: E402 - as above
from vyre_py.ir.text.printer import print_program  # noqa: E402 - as above
from vyre_py.ir.wire.binary import PROGRAM  # noqa: E402 - as above
from vyre_py.ir.wire.flat import COLUMNS, COUNTS  # noqa: E402 - as above
from vyre_py.ir.wire.record import DIGEST_BYTES  # noqa: E402 - as above
from vyre_py.ir.wire.statement_codes import CODES  # noqa: E402 - as above
from vyre_py.lowering.compile import compile_for  # noqa: E402 - as above
from vyre_py.lowering.errors import Unsupported  # noqa: E402 - as above
from vyre_py.lowering.target import parse_target  # noqa: E402 - as above

__all__ = ["FORMS", "SEEDS", "Judge", "inputs", "json_tree", "redigested", "seeds"]

SEEDS: Final = 50
LIMIT_SECONDS: Final = 0.05
LIMIT_SECONDS_A_BYTE: Final = 1e-6
LIMIT_BYTES: Final = 64 << 20
# `check` has no limit of its own; this one would see a cost that is not linear.
CHECK_SECONDS: Final = 0.5
CHECK_SECONDS_A_BYTE: Final = 2e-5
MEMORY_EVERY: Final = 40  # inputs: measuring memory takes several times as long
MASKS: Final = (0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF)
_EXTENTS: Final = (0, 1, 2, 3, 4, 5, 255, 256, 512, 1 << 16, (1 << 17) - 1, 1 << 17, (1 << 17) + 1, 1 << 20, 1 << 31, (1 << 32) - 1)
EDGES: Final = (0, 1, 2, 3, 7, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, (1 << 64) - 1)

_FILETESTS: Final = ("run", "passes", "lower")
_LONGEST: Final = 900  # characters of a seed's text: every byte of all seeds is to be flipped


def _texts() -> Iterator[str]:
    """The Programs of the filetests, one text each."""
    for folder in _FILETESTS:
        for path in files(folder):
            yield from re.split(r"^(?=program\b)", text_of(path), flags=re.MULTILINE)[1:]


@cache
def seeds() -> tuple[Program, ...]:
    """The seed Programs: small ones of the filetests, drawn over all of them, generated ones over all types and ops, and those of tiles."""
    small = [text for text in _texts() if len(text) <= _LONGEST]
    tiled = tile_programs()
    wanted = SEEDS - 8 - len(tiled)
    made = [parse(small[k * len(small) // wanted]) for k in range(wanted)]
    types = list(TYPES.values())
    for number in range(8):
        rng = random.Random(number)
        made.append(generate(Seeded(number), types=rng.sample(types, 2), budget=12 + 10 * number).program)
    return (*made, *tiled)


# ---------------------------------------------------------------- the forms


def _parsed(data: bytes) -> Program:
    return parse(data.decode("utf-8", "surrogateescape"))


# Form -> (what writes it, what reads it, what reading may raise).
FORMS: Final[dict[str, tuple[Callable[[Program], bytes], Callable[[bytes], Program], tuple[type[ProgramError], ...]]]] = {
    "wire": (lambda p: p.to_bytes(places=True), Program.from_bytes, (WireError,)),
    "json": (lambda p: p.to_json(places=True).encode(), Program.from_json, (WireError,)),
    "text": (lambda p: print_program(p).encode("utf-8", "surrogateescape"), _parsed, (ParseError, ValidationError)),
}
_TILED: Final = frozenset({"wire", "json"})  # the forms that Programs of tiles have


@cache
def written(form: str) -> tuple[bytes, ...]:
    """The seeds in a form."""
    return tuple(FORMS[form][0](program) for program in seeds() if form in _TILED or not program.of_tiles)


def redigested(data: bytes) -> bytes:
    """Bytes with the length and the digest that fit them."""
    made = bytearray(data[:-DIGEST_BYTES])
    if len(made) >= 12:
        made[8:12] = struct.pack("<I", len(data))
    return bytes(made) + hashlib.sha256(made).digest()


# ---------------------------------------------------------------- mutations of bytes


def _counts(data: bytes) -> dict[str, Any]:
    return PROGRAM.named(PROGRAM.head.unpack_from(data))


def _wire_flip(r: random.Random, data: bytes) -> bytes:
    """One byte, anywhere, under a digest that fits."""
    made = bytearray(data)
    at = r.randrange(len(made) - DIGEST_BYTES)
    made[at] ^= r.choice(MASKS)
    return redigested(bytes(made))


def _wire_field(r: random.Random, data: bytes) -> bytes:
    """Entries of columns, or fields of the header, become other numbers."""
    made = bytearray(data)
    header, counts = PROGRAM.head.unpack_from(data), _counts(data)
    for _ in range(r.choice((1, 1, 1, 2, 5))):
        column = r.choice(COLUMNS)
        rows = counts[column.count] * column.per
        if not rows or r.random() < 0.1:
            struct.pack_into("<I", made, 4 * r.randrange(2, PROGRAM.head.size // 4), r.choice(EDGES) & 0xFFFFFFFF)
            continue
        width = column.width // column.per
        row = r.randrange(rows)
        begin = PROGRAM.offset(column.name, 0, header)
        at = begin + width * row
        old = int.from_bytes(made[at : at + width], "little")
        other = begin + width * r.randrange(rows)
        near = (old + r.choice((-4, -1, 1, 4))) % (1 << 8 * width)
        new = r.choice((near, near, r.choice(EDGES), r.randrange(rows * 4), int.from_bytes(made[other : other + width], "little")))
        made[at : at + width] = (new % (1 << 8 * width)).to_bytes(width, "little")
    return redigested(bytes(made))


def _wire_code(r: random.Random, data: bytes) -> bytes:
    """A statement becomes one of another kind."""
    made = bytearray(data)
    statements = _counts(data)["statements"]
    if statements:
        at = PROGRAM.offset("codes", r.randrange(statements), PROGRAM.head.unpack_from(data))
        struct.pack_into("<H", made, at, r.choice(list(CODES.values())))
    return redigested(bytes(made))


def _wire_splice(r: random.Random, data: bytes) -> bytes:
    """A stretch is taken out, doubled, or taken from another seed."""
    other = r.choice(written("wire"))
    a, b = sorted(r.randrange(len(data) - DIGEST_BYTES + 1) for _ in range(2))
    c, d = sorted(r.randrange(len(other) - DIGEST_BYTES + 1) for _ in range(2))
    body = r.choice((data[:a] + data[b:], data[:b] + data[a:], data[:a] + other[c:d] + data[b:]))
    return redigested(body if len(body) > DIGEST_BYTES else data)


def _wire_counts(r: random.Random, data: bytes) -> bytes:
    """Absurd numbers in the header."""
    made = bytearray(data)
    for _ in range(r.randrange(1, 4)):
        struct.pack_into("<I", made, 12 + 4 * r.randrange(len(COUNTS)), r.choice((1 << 31, (1 << 32) - 1, 1 << 20, r.randrange(1 << 32))))
    return redigested(bytes(made))


def _wire_made(columns: dict[str, Any], text: bytes = b"p") -> bytes:
    """Bytes from columns: a Program of nothing but what is given."""
    columns = {"string_lengths": [0, len(text)]} | columns
    arrays = {column.name: np.array(columns.get(column.name, []), column.dtype) for column in COLUMNS}
    counts = {column.count: len(arrays[column.name]) // column.per for column in reversed(COLUMNS)} | {"text_bytes": len(text), "data_bytes": 0}
    extent = columns.get("extent", 0)
    header = PROGRAM.head.pack(b"\x89VYR", 1, 0, 0, *[counts[name] for name in COUNTS], 1, 0, 1, 1, 1, 1, extent, extent, extent)
    return redigested(header + b"".join([arrays[column.name].tobytes() for column in COLUMNS]) + text + bytes(DIGEST_BYTES))


def _wire_deep(r: random.Random, data: bytes) -> bytes:
    """Blocks in blocks, or a size of sizes that doubles with each row."""
    depth = r.choice((10, 255, 256, 257, 5000, 60_000))
    one: dict[str, Any] = {"size_ops": [1], "size_left": [1], "size_right": [0]}
    if r.random() < 0.5:
        codes = [CODES[r.choice(("loop", "region"))]] * depth + [CODES["end"]] * r.choice((depth, depth - 1, depth + 1))
        empty = [0] * len(codes)
        return _wire_made(one | {"codes": codes, "types": empty, "refs": empty, "counts": empty})
    rows = range(1, min(depth, 5000))
    sizes = {"size_ops": [1, *[3 for _ in rows]], "size_left": [1, *[k - 1 for k in rows]], "size_right": [0, *[r.choice((k - 1, 0)) for k in rows]]}
    return _wire_made(sizes | {"extent": len(rows)})


def _wire_tiles(r: random.Random, data: bytes) -> bytes:
    """A Program of tiles, whose constants are extents and numbers for the most part, with others; or another Program as one of tiles."""
    if not any(_counts(data)["workgroup"]):
        data = _wire_constants(r, data)
    made = bytearray(data)
    struct.pack_into("<3I", made, PROGRAM.offset("workgroup"), *r.choice(((0, 0, 0), (0, 0, 0), (1, 0, 0), (64, 1, 1))))
    return redigested(bytes(made))


def _wire_constants(r: random.Random, data: bytes) -> bytes:
    """Constants of one type become others, in ascending order."""
    made = bytearray(data)
    header, count = PROGRAM.head.unpack_from(data), _counts(data)["constants"]
    types, bits = (PROGRAM.offset(column, 0, header) for column in ("constant_types", "constant_bits"))
    type_ = r.choice(data[types : types + count])
    rows = [row for row in range(count) if data[types + row] == type_]
    edges = {*(r.choice(_EXTENTS) for _ in rows), *(r.randrange(1 << 32) for _ in rows), *struct.unpack_from(f"<{len(rows)}Q", data, bits + 8 * rows[0])}
    for row, number in zip(rows, sorted(r.sample(sorted(edges), len(rows))), strict=True):
        struct.pack_into("<Q", made, bits + 8 * row, number)
    return bytes(made)


# ---------------------------------------------------------------- mutations of JSON


def _junk(r: random.Random) -> Any:
    return r.choice((
        None, True, False, 0, 1, -1, 2**32, 2**64, 10**30, 1.5, -0.0, 1e308, "", "f32", "n", "0x7fc00001", "\ud800", "x" * 300, [], {}, [[]], [0, 0, 0],
        ["f32", 1.0], ["f32x2", 1.0], ["add", "n", 1], {"param": "a"}, {"size": ["add", "n", "n"]}, {"size": [["add"]]}, "load", "end", "u32", "u8x4",
        ["u32", 0], ["u32", 2**17], ["u32", 2**31], ["u32", 2**32 - 1], ["f32", 4.0], "tile_load", "tile_fill", "tile_reshape",
    ))


def _nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with a key or index into it."""
    stack = [value]
    while stack:
        one = stack.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        for key in keys:
            yield one, key
            stack.append(one[key])


def json_tree(r: random.Random, data: bytes) -> bytes:
    """Values of the tree are replaced, taken out, doubled, swapped."""
    tree = json.loads(data)
    for _ in range(r.choice((1, 1, 1, 2, 4))):
        where, key = r.choice(list(_nodes(tree)) or [(tree, "body")])
        other, at = r.choice(list(_nodes(tree)) or [(tree, "body")])
        action = r.randrange(5)
        if action == 0 or (isinstance(where, dict) and key not in where):
            where[key] = _junk(r)
        elif action == 1:
            del where[key]
        elif action == 2 and isinstance(where, list):
            where.insert(key, where[key])
        elif action == 3 and isinstance(where, dict):
            where[str(_junk(r))] = where.pop(key)
        elif not isinstance(other[at], (list, dict)):
            where[key] = other[at]
        if not tree:
            break
    return json.dumps(tree).encode("utf-8", "surrogatepass")


_JSON_WORDS: Final = (b"NaN", b"Infinity", b"-0", b"1e999", b'"\\ud800"', b"//", b"'", b"\x00", b"\xff")


def _json_text(r: random.Random, data: bytes) -> bytes:
    """Words of the text become others."""
    words = re.findall(rb'"[^"]*"|[\[\]{},:]|[^\s\[\]{},:"]+|\s+', data)
    for _ in range(r.choice((1, 1, 2, 5))):
        at = r.randrange(len(words))
        words[at] = r.choice((b"", words[at] * 2, r.choice(words), b"1" * r.choice((30, 5000)), *_JSON_WORDS))
    return b"".join(words)


def _json_deep(r: random.Random, data: bytes) -> bytes:
    """Brackets in brackets, at any place."""
    depth = r.choice((60, 71, 72, 73, 100, 990, 1100, 20_000))
    opening, closing = r.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'["add",1,', b"]")))
    deep = opening * depth + b"1" + closing * r.choice((depth, depth, 0))
    at = r.choice([found.start() for found in re.finditer(rb"[,:]", data)]) + 1
    end = r.choice((at, min(at + 1, len(data))))
    return r.choice((deep, data[:at] + deep + data[end:], data[:at] + deep + b"," + data[at:]))


def _json_wide(r: random.Random, data: bytes) -> bytes:
    """Long lists, long names, many keys."""
    count = r.choice((1000, 1000, 5000, 20_000, 60_000))
    piece = r.choice((b"0,", b"[],", b"{},", b'"",', b'"\xc3\xa9",', b"1.5,"))
    wide = r.choice((b"[" + piece * count + b"0]", b'"' + b"x" * count + b'"', b"{" + b",".join([b'"k%d":0' % k for k in range(count // 20)]) + b"}"))
    at = r.choice([found.start() for found in re.finditer(rb"[,:]", data)]) + 1
    return r.choice((wide, data[:at] + wide + b"," + data[at:], data[:at] + wide))


# ---------------------------------------------------------------- mutations of text


_WORDS: Final = (
    b"program", b"param", b"buffer", b"workgroup", b"table", b"let", b"var", b"if", b"else", b"for", b"loop", b"break", b"return", b"barrier", b"grid_barrier",
    b"region", b"hex", b"f32", b"u32x3", b"i8", b"bf16", b"true", b"nan", b"0x7fffffff", b"1e400f32", b"1" * 500, b"-", b"!", b"(", b")", b"[", b"]",
    b"{", b"}", b"=", b"..", b"step", b",", b";", b":", b"cast", b"select", b"vec3", b"dot", b"global_id.x", b".", b"wzyx", b'"', b'"\\u{110000}"', b"\\",
    b"\x00", b"\xff\xfe", b"//", b"\n", b"dim", b"atomic_add",
)  # fmt: skip


def _text_words(r: random.Random, data: bytes) -> bytes:
    """Words are replaced, taken out, doubled, swapped."""
    words = re.findall(rb"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|\s+|.", data, re.DOTALL)
    for _ in range(r.choice((1, 1, 1, 2, 5, 20))):
        at, other = r.randrange(len(words)), r.randrange(len(words))
        words[at] = r.choice((b"", words[at] + b" " + words[at], words[other], r.choice(_WORDS), b" " + r.choice(_WORDS) + b" " + words[at]))
    return b"".join(words)


def _text_lines(r: random.Random, data: bytes) -> bytes:
    """Lines are moved, doubled, taken out."""
    lines = data.split(b"\n")
    for _ in range(r.choice((1, 1, 2, 5))):
        line = lines.pop(r.randrange(len(lines))) if len(lines) > 1 else b""
        for _ in range(r.choice((0, 1, 1, 2))):
            lines.insert(r.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


def _text_deep(r: random.Random, data: bytes) -> bytes:
    """Brackets, operators and blocks in each other."""
    depth = r.choice((60, 64, 66, 300, 511, 514, 600, 1000, 5000))
    opening = r.choice((b"(", b"-", b"!", b"-(", b"min(1,", b"x[", b"{", b"if true {", b"loop {\n", b"[", b"1 + (", b"~", b"vec3(", b"else if true {"))
    at = r.choice([found.start() for found in re.finditer(rb"[=(\n]", data)]) + 1
    deep = opening * depth + b"1" + r.choice((b")", b"]", b"}", b"")) * depth
    return r.choice((deep, data[:at] + deep + data[at:]))


def _text_wide(r: random.Random, data: bytes) -> bytes:
    """Long numbers, names, lists, sums."""
    count = r.choice((300, 300, 1000, 5000, 5000, 20_000))
    long = (b"1" * count, b"a" * count, b'"' + b"\\" * count + b'"', b"." * count, b"x.xyzw" * (count // 10), b"\n" * count, b"// " + b"x" * count)
    wide = r.choice((*long, b"[" + b"1," * count + b"]", b"1" + b" + 1" * count))
    at = r.choice([found.start() for found in re.finditer(rb"[=(\n,\[]", data)]) + 1
    return data[:at] + wide + data[at:]


_WILD: Final[dict[str, Sequence[Callable[[random.Random, bytes], bytes]]]] = {
    "wire": (_wire_flip, _wire_flip, _wire_field, _wire_field, _wire_field, _wire_code, _wire_code, _wire_splice, _wire_counts, _wire_deep, _wire_tiles),
    "json": (json_tree, json_tree, json_tree, json_tree, _json_text, _json_text, _json_text, _json_deep, _json_wide),
    "text": (_text_words, _text_words, _text_words, _text_words, _text_lines, _text_lines, _text_deep, _text_wide),
}


# ---------------------------------------------------------------- inputs


@cache
def _ends(form: str) -> tuple[int, ...]:
    """For each seed, how many inputs flip a byte of it or of one before it, or cut there."""
    return tuple(accumulate(2 * len(data) for data in written(form)))


def every(form: str) -> int:
    """How many inputs flip each byte once and cut at each byte."""
    return _ends(form)[-1]


def simple(form: str, number: int) -> bytes:
    """Input `number` of those: one byte flipped, or all from there on cut off."""
    which = bisect_right(_ends(form), number)
    data = written(form)[which]
    number -= _ends(form)[which] - 2 * len(data)
    at, cut = divmod(number, 2)
    if cut:
        return data[:at]
    flipped = data[at] ^ MASKS[(at + number // 7) % len(MASKS)]
    return data[:at] + bytes([flipped]) + data[at + 1 :]


def inputs(form: str, count: int, part: int, parts: int, seed: int = 0) -> Iterator[bytes]:
    """Part `part` of `parts` of `count` inputs to a decoder: two thirds of them simple, or all there are, evenly drawn; the rest wild."""
    total = every(form)
    plain = min(total, count * 2 // 3)
    for k in range(part, plain, parts):
        yield simple(form, k * total // plain)
    for k in range(part, count - plain, parts):
        r = random.Random(f"{seed} {form} {k}")
        yield r.choice(_WILD[form])(r, r.choice(written(form)))


# ---------------------------------------------------------------- judgement


def _caught(work: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001 - whatever comes is raised again once the time is known
        return None, error


# The digests of the Programs that were lowered already, from whatever form and by whichever judge.
_lowered: Final[set[bytes]] = set()


class Judge:
    """Runs decoders over inputs; `outcomes` counts what came. Raises AssertionError, with the input, for anything that may not be.

    `patience` multiplies the limits of time: 1 measures them on a fast machine that has nothing else to do, 10 finds what hangs.
    """

    def __init__(self, form: str, patience: int) -> None:
        self.form = form
        self.patience = patience
        _, self.decode, self.allowed = FORMS[form]
        self.outcomes: Counter[str] = Counter()
        self.slowest = 0.0
        self.largest = 0
        self.target = parse_target("reference")

    def run(self, data: bytes) -> None:
        """One input: decoded, checked if that gave a Program, lowered if it is valid."""
        try:
            program = self.timed(lambda: self.decode(data), LIMIT_SECONDS + LIMIT_SECONDS_A_BYTE * len(data))
        except self.allowed as error:
            self.outcomes[error.codes[0] if str(error) else "no message"] += 1
            return self.measured(data)
        except Exception as error:
            raise AssertionError(f"{self.form} decoder: {type(error).__name__}: {error}\n{data[:2000]!r}") from error
        self.measured(data)
        try:
            checked = self.timed(lambda: check(program), CHECK_SECONDS + CHECK_SECONDS_A_BYTE * len(data))
        except ValidationError as error:
            self.outcomes[error.codes[0]] += 1
            return None
        except Exception as error:
            raise AssertionError(f"check: {type(error).__name__}: {error}\n{data[:2000]!r}") from error
        self.outcomes["valid"] += 1
        if not program.of_tiles and program.code_digest not in _lowered:
            try:
                compile_for(checked, [self.target])
            except Unsupported:
                self.outcomes["unsupported"] += 1
            except Exception as error:
                raise AssertionError(f"lowering: {type(error).__name__}: {error}\n{data[:2000]!r}") from error
            _lowered.add(program.code_digest)
        return None

    def timed(self, work: Callable[[], Any], limit: float) -> Any:
        """What `work` gives or raises. Other work on this machine is not the decoder's fault, so that what took too long is tried again."""
        limit *= self.patience
        for _ in range(3):
            start = time.thread_time()
            result, error = _caught(work)
            taken = time.thread_time() - start
            if taken <= limit:
                break
        else:
            raise AssertionError(f"{taken:.3f} s, {limit:.3f} s are allowed")
        self.slowest = max(self.slowest, taken / limit)
        if error is not None:
            raise error
        return result

    def measured(self, data: bytes) -> None:
        """What decoding takes at its peak, of one input in `MEMORY_EVERY`, and of every large one."""
        if sum(self.outcomes.values()) % MEMORY_EVERY and len(data) < 1 << 16:
            return
        tracemalloc.start()
        try:
            self.decode(data)
        except self.allowed:
            pass
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        self.largest = max(self.largest, peak)
        assert peak <= LIMIT_BYTES, f"{self.form} decoder: {peak} bytes for an input of {len(data)}\n{data[:2000]!r}"


def main() -> None:
    """Runs `--count` inputs, divided over the forms by how many bytes their seeds have, and prints what came of them."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    arguments.add_argument("--count", type=int, default=0, help="0: enough to flip every byte and cut at each, at least 500,000")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--form", choices=[*FORMS], default=None)
    arguments.add_argument("--part", default="1/1", help="K/N: every N-th input, from the K-th")
    given = arguments.parse_args()
    part, parts = map(int, given.part.split("/"))
    gc.freeze()
    total = 0
    forms = [given.form] if given.form else list(FORMS)
    everything = sum(map(every, forms))
    count = given.count or max(500_000, -(-everything * 8 // 5))
    for form in forms:
        judge, start = Judge(form, patience=1), time.perf_counter()
        for data in inputs(form, count * every(form) // everything, part - 1, parts, given.seed):
            judge.run(data)
            total += 1
        seconds = time.perf_counter() - start
        print(f"{form}: {seconds:.0f} s, slowest at {judge.slowest:.2f} of the limit, most memory {judge.largest / (1 << 20):.1f} MiB")
        print("   ", ", ".join(f"{code} {count}" for code, count in judge.outcomes.most_common()), flush=True)
    print(f"{total} inputs")


if __name__ == "__main__":
    main()
