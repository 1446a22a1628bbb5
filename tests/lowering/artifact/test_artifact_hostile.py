"""Artifact files from strangers: whatever the bytes are, reading them ends soon, in little memory, with an artifact or an ArtifactError that names the part."""

from __future__ import annotations

import hashlib
import random
import struct
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from artifacts import AXPY, compiled, edited, full, offsets, plain, redigested, section_of

from vyre_py.drivers.registry import device
from vyre_py.ir.check import check
from vyre_py.ir.language.dims import Dim
from vyre_py.ir.language.nodes import Load
from vyre_py.ir.passes import Optimised, unoptimised
from vyre_py.ir.passes.bounds.prove import bounds
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.file import decode_part, encode_part
from vyre_py.lowering.artifact.form import FILE, INTERFACE, MAX_ROWS, MAX_STRING, PART, SECTION, VERSION
from vyre_py.lowering.artifact.parts import Image
from vyre_py.lowering.errors import ArtifactError

FULL = full().to_bytes()
SMALL = compiled(AXPY, "wgsl", "reference").to_bytes()
MACHINE = "part sm_90"


def refused(data: bytes) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        Artifact.from_bytes(data)
    assert caught.value.part and caught.value.part in str(caught.value)
    return caught.value


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("data", [FULL, SMALL], ids=["full", "small"])
def test_every_byte_flipped_is_noticed(data: bytes) -> None:
    parts = set()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        parts.add(refused(bytes(damaged)).part)
    assert {"header", "interface"} < parts and len(parts) >= 4


@pytest.mark.parametrize("data", [FULL, SMALL], ids=["full", "small"])
def test_every_truncation_is_noticed(data: bytes) -> None:
    for size in range(len(data)):
        assert refused(data[:size]).part == "header"
    assert refused(data + b"\0").part == "header"


def test_damage_is_told_by_the_part_that_it_is_in() -> None:
    for name, part in (("interface", "interface"), ("sm_90", "part sm_90"), ("wgsl:f64", "part wgsl:f64"), ("cpu:x86-64-v3", "part cpu:x86-64-v3")):
        begin, inside = section_of(FULL, name)
        damaged = bytearray(FULL)
        damaged[begin + len(inside) // 2] ^= 0x40
        error = refused(bytes(damaged))
        assert error.part == part and "damaged" in str(error)


def test_sections_that_change_places_are_noticed() -> None:
    first, second = FILE.head.size + SECTION.head.size, FILE.head.size + 2 * SECTION.head.size
    swapped = bytearray(FULL)
    swapped[first:second], swapped[second : second + SECTION.head.size] = FULL[second : second + SECTION.head.size], FULL[first:second]
    assert refused(redigested(bytes(swapped))).part == "header"
    # Two parts of one length under each other's name.
    artifact = full()
    one = replace(artifact, parts=artifact.parts[1:2])
    data = one.to_bytes()
    renamed = data.replace(b"wgsl:f64".ljust(64, b"\0"), b"wgsl".ljust(64, b"\0"))
    assert "it is for wgsl:f64" in str(refused(redigested(renamed)))


# ---------------------------------------------------------------- what is not understood

# The section, the word of it, what it becomes, the part that the error names, and words in it.
UNKNOWN: list[tuple[str, str, int, str, str]] = [
    ("header", "minor", VERSION[1] + 1, "header", "a newer vyre-py wrote it"),
    ("header", "major", 2, "header", "a newer vyre-py wrote it"),
    ("header", "major", 0, "header", "this vyre-py reads formats up to"),
    ("header", "flags", 1, "header", "flags is 1"),
    ("header", "reserved", 1, "header", "reserved is 1"),
    ("header", "length", 1, "header", "says 1 bytes"),
    ("header", "sections", 65, "header", "65 sections"),
    ("row", "kind", 3, "header", "kind 3"),
    ("row", "kind", 2, "header", "one interface, then parts"),
    ("row", "reserved", 1, "header", "kind 1"),
    ("interface", "version", 1 << 16 | VERSION[1] + 1, "interface", "a newer vyre-py wrote it"),
    ("interface", "version", 0, "interface", "format 0.0"),
    ("interface", "name", 999, "interface", "string 999"),
    ("interface", "buffers.0.type", 63, "interface", "does not know the type 63"),
    ("interface", "buffers.0.access", 9, "interface", "does not know the access 9"),
    ("interface", "buffers.0.rank", 0, "interface", "0 axes"),
    ("interface", "buffers.0.rank", 9, "interface", "9 axes"),
    ("interface", "buffers.1.rank", 3, "interface", "table axes"),
    ("interface", "params.0.name", 0, "interface", "empty, is there twice"),
    ("interface", "dims.0.name", 4, "interface", "twice"),
    ("interface", "sizes.0.op", 99, "interface", "99 is not a kind of size"),
    ("interface", "sizes.0.left", 99, "interface", "dim 99"),
    ("interface", "sizes.0.right", 1, "interface", "right side"),
    ("interface", "wide.0.kind", 2, "interface", "wide"),
    ("interface", "wide.0.number", 77, "interface", "wide"),
    ("interface", "capabilities.0.name", 0, "interface", "capability ''"),
    ("interface", "strings.0.bytes", 1, "interface", "strings"),
    ("sm_90", "version", 0x20000, MACHINE, "a newer vyre-py wrote it"),
    ("sm_90", "version", 0x10000, MACHINE, "take"),
    ("sm_90", "target", 0, MACHINE, "target ''"),
    ("sm_90", "numerics", 0, MACHINE, "numerics ''"),
    ("sm_90", "report", 2, MACHINE, "table numbers"),
    ("sm_90", "report", 99, MACHINE, "table numbers"),
    ("sm_90", "steps.0.flags", 16, MACHINE, "its grid or its flags"),
    ("sm_90", "steps.0.flags", 13, MACHINE, "persistent"),
    ("sm_90", "steps.0.flags", 14, MACHINE, "cooperative"),
    ("sm_90", "steps.0.over", 2, MACHINE, "its grid or its flags"),
    ("sm_90", "steps.0.over", 0, MACHINE, "the grid counts workgroups"),
    ("sm_90", "steps.0.grid_x", 99, MACHINE, "size 99"),
    ("sm_90", "steps.0.workgroup_x", 0, MACHINE, "workgroup of 0"),
    ("sm_90", "steps.0.workgroup_y", 33, MACHINE, "workgroup of 32 x 33"),
    ("sm_90", "steps.0.workgroup_z", 65, MACHINE, "65"),
    ("sm_90", "steps.0.workgroup_bytes", 1 << 20, MACHINE, "workgroup memory"),
    ("sm_90", "steps.0.block_bytes", 1 << 31, MACHINE, "argument block"),
    ("sm_90", "steps.0.images", 1, MACHINE, "belong to nothing"),
    ("sm_90", "steps.0.images", 0, MACHINE, "no image"),
    ("sm_90", "steps.0.entries", 1, MACHINE, "any arguments"),
    ("sm_90", "steps.0.slots", 12, MACHINE, "grid's size"),
    ("sm_90", "steps.0.wide", 1, MACHINE, "belong to nothing"),
    ("sm_90", "images.0.format", 6, MACHINE, "format 6"),
    ("sm_90", "images.0.format", 2, MACHINE, "format 2"),
    ("sm_90", "images.0.format", 3, MACHINE, "format 3"),
    ("sm_90", "images.0.format", 5, MACHINE, "format 5"),
    ("sm_90", "images.0.code", 0, MACHINE, "no code"),
    ("sm_90", "images.0.data", 1 << 30, MACHINE, "bytes of code are wanted where"),
    ("sm_90", "images.0.bounds", 1, MACHINE, "only a Program"),
    ("sm_90", "images.0.passes", 1, MACHINE, "only a Program"),
    ("sm_90", "images.0.log", 999, MACHINE, "string 999"),
    ("sm_90", "images.0.resources", 3, MACHINE, "table resources"),
    ("sm_90", "resources.1.symbol", 999, MACHINE, "string 999"),
    ("sm_90", "entries.0.symbol", 0, MACHINE, "symbol"),
    ("sm_90", "entries.0.elements", 0, MACHINE, "0 elements"),
    ("sm_90", "entries.1.elements", 2, MACHINE, "any arguments"),
    ("sm_90", "entries.0.needs", 1, MACHINE, "belong to nothing"),
    ("sm_90", "entries.0.details", 0, MACHINE, "belong to nothing"),
    ("sm_90", "needs.0.kind", 4, MACHINE, "does not know needs of kind 4"),
    ("sm_90", "needs.0.number", 3, MACHINE, "buffer 3 of 3"),
    ("sm_90", "needs.0.by", 0, MACHINE, "multiple of 0"),
    ("sm_90", "needs.1.number", 99, MACHINE, "size 99"),
    ("sm_90", "numbers.0.name", 999, MACHINE, "string 999"),
    ("sm_90", "slots.0.kind", 12, MACHINE, "its kind is 12"),
    ("sm_90", "slots.1.kind", 0, MACHINE, "its kind is 0"),
    ("sm_90", "slots.3.kind", 1, MACHINE, "carries buffer"),
    ("sm_90", "slots.0.type", 0, MACHINE, "its type is 0"),
    ("sm_90", "slots.0.type", 13, MACHINE, "which are not"),
    ("sm_90", "slots.1.type", 9, MACHINE, "which are not"),
    ("sm_90", "slots.0.more", 0, MACHINE, "which are not"),
    ("sm_90", "slots.1.more", 1, MACHINE, "table axes"),
    ("sm_90", "axes.0.size", 2, MACHINE, "which are not"),
    ("sm_90", "slots.1.number", 2, MACHINE, "carries buffer 2"),
    ("sm_90", "slots.1.offset", 4, MACHINE, "bytes 4 to 12"),
    ("sm_90", "slots.1.offset", 1 << 31, MACHINE, "are due behind byte 8"),
    ("sm_90", "slots.1.size", 4, MACHINE, "8 are due"),
    ("sm_90", "slots.3.number", 2, MACHINE, "param 2 of 2"),
    ("sm_90", "slots.3.more", 0, MACHINE, "is f32x2, not f32"),
    ("sm_90", "slots.3.more", 2, MACHINE, "more than one part"),
    ("sm_90", "parts.0.offset", 8, MACHINE, "none for a f32 at byte 8"),
    ("sm_90", "parts.1.offset", 0, MACHINE, "does not come after"),
    ("sm_90", "slots.6.number", 99, MACHINE, "size 99"),
    ("sm_90", "slots.6.type", 12, MACHINE, "u32 or u64"),
    ("sm_90", "slots.8.kind", 5, MACHINE, "is there once"),
    ("sm_90", "slots.8.number", 1, MACHINE, "nothing more"),
    ("sm_90", "slots.10.number", 1, MACHINE, "grid's size"),
    ("sm_90", "slots.12.type", 9, MACHINE, "three u32"),
    ("sm_90", "needs.2.by", 0, MACHINE, "sizes up to 0"),
    ("sm_90", "needs.2.number", 99, MACHINE, "size 99"),
    ("sm_90", "slots.15.number", 1, MACHINE, "buffer 1 has no boxes of [8] elements of f32"),
    ("sm_90", "slots.15.number", 3, MACHINE, "buffer 3 has no boxes"),
    ("sm_90", "slots.15.type", 9, MACHINE, "has no boxes"),
    ("sm_90", "slots.15.size", 64, MACHINE, "128 are due"),
    ("sm_90", "slots.15.offset", 104, MACHINE, "from byte 112 on"),
    ("sm_90", "slots.15.more", 2, MACHINE, "table boxes"),
    ("sm_90", "slots.15.more", 0, MACHINE, "has no boxes of []"),
    ("sm_90", "boxes.0.extent", 7, MACHINE, "has no boxes of [7]"),
    ("sm_90", "boxes.0.extent", 257, MACHINE, "has no boxes of [257]"),
    ("sm_90", "wide.1.kind", 5, MACHINE, "wide"),
    ("sm_90", "count slots", 12, MACHINE, "bytes"),
    ("sm_90", "labels.0.name", 999, MACHINE, "string 999"),
    ("cpu:x86-64-v3", "images.0.format", 2, "part cpu:x86-64-v3", "format 2"),
]


@pytest.mark.parametrize(("section", "word", "value", "part", "words"), UNKNOWN, ids=lambda x: str(x).replace(" ", "-")[:24])
def test_what_is_not_understood_is_refused(section: str, word: str, value: int, part: str, words: str) -> None:
    error = refused(edited(FULL, section, word, value))
    assert words in str(error) and error.part == part, error


def test_a_file_without_sections_is_refused() -> None:
    error = refused(FILE.write({"sections": 0}, []))
    assert "0 sections" in str(error) and error.part == "header"


def test_repeated_names_are_refused() -> None:
    inside = section_of(FULL, "sm_90")[1]
    at = offsets(PART, inside)
    for first, second, words in (("labels.0.name", "labels.1.name", "labels"), ("resources.0.symbol", "resources.1.symbol", "resources")):
        (name,) = struct.unpack_from("<I", inside, at[first])
        assert words in str(refused(edited(FULL, "sm_90", second, name)))


def test_what_may_be_wide_is_named_once() -> None:
    inside = section_of(FULL, "sm_90")[1]
    at = offsets(PART, inside)
    once = FULL
    for word in ("kind", "number"):
        (value,) = struct.unpack_from("<I", inside, at[f"wide.0.{word}"])
        once = edited(once, "sm_90", f"wide.1.{word}", value)
    assert "does not ascend" in str(refused(once))


def test_text_that_is_none_is_refused() -> None:
    for code in (b"\xff\xfe", b"a\0b"):
        artifact = full()
        part = artifact.parts[1]
        step = replace(part.steps[0], images=(Image("wgsl", code),))
        with pytest.raises(ArtifactError, match="not text"):
            replace(artifact, parts=(replace(part, steps=(step,)),)).to_bytes()
    begin, inside = section_of(FULL, "interface")
    text = FULL.replace("größe".encode(), b"gr\xff\xff\xff\xffe"[: len("größe".encode())])
    assert "UTF-8" in str(refused(redigested(text))) and inside in FULL[begin:]


def test_a_target_from_the_future_is_named() -> None:
    # Same length, so that only the names change.
    data = redigested(FULL.replace(b"wgsl:f64", b"spirv1.6"))
    error = refused(data)
    assert error.part == "part spirv1.6" and "does not know the target 'spirv1.6'" in str(error)


def test_names_in_errors_are_escaped() -> None:
    name = b"\x1b[31m\nhi"
    error = refused(redigested(FULL.replace(b"wgsl:f64", name)))
    assert error.part == "header" and "invalid name" in str(error)
    assert "\x1b" not in str(error) and "\n" not in str(error)


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize("form", [INTERFACE, PART], ids=lambda form: form.name)
def test_sizes_that_lie_cost_nothing(form: Any) -> None:
    name = "interface" if form is INTERFACE else "sm_90"
    words = [word for word in offsets(form, section_of(FULL, name)[1]) if word.startswith("count ")] + ["text_bytes", "code_bytes"]
    for word in words:
        for value in (0xFFFFFFFF, 0x7FFFFFFF, MAX_ROWS + 1, MAX_ROWS):
            data = edited(FULL, name, word, value)
            tracemalloc.start()
            refused(data)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 1 << 20, f"{word} = {value} took {peak} bytes"


def _with_sizes(rows: list[tuple[int, int, int]]) -> bytes:
    """A file whose interface has these rows of sizes instead of its own, and nothing else in it."""
    shape = INTERFACE.shapes[VERSION[0] << 16 | VERSION[1]]
    counts = [{"strings": 1, "sizes": len(rows)}.get(table, 0) for table, *_ in shape.tables]
    words = {"version": VERSION[0] << 16 | VERSION[1], "code_bytes": 32}
    head = shape.record.head.pack(*[words.get(name, 0) for name in shape.names], *counts)
    section = b"".join([head, struct.pack("<I", 0), *[struct.pack("<3I", *row) for row in rows], bytes(32)])
    begin = FILE.head.size + SECTION.head.size + 32
    table = FILE.head.pack(b"VYRE-ART", *VERSION, 0, begin + len(section), 1, 0)
    table += SECTION.head.pack(1, 0, begin, len(section), hashlib.sha256(section).digest(), b"interface")
    return table + hashlib.sha256(table).digest() + section


def test_sizes_neither_nest_nor_double_without_end() -> None:
    deep = [(1, 1, 0), *[(3, k, 0) for k in range(60_000)]]
    assert "64 terms" in str(refused(_with_sizes(deep)))
    doubling = [(1, 1, 0), *[(5, k, k) for k in range(60)]]
    assert "64 terms" in str(refused(_with_sizes(doubling)))
    assert "does not stand before it" in str(refused(_with_sizes([(1, 1, 0), (3, 0, 1)])))
    assert "2^48" in str(refused(_with_sizes([(1, 0, 1 << 16)])))
    assert Artifact.from_bytes(_with_sizes([(1, 0, (1 << 16) - 1)])).parts == ()
    assert f"{MAX_ROWS + 1} sizes, at most {MAX_ROWS} are allowed" in str(refused(_with_sizes([(1, k, 0) for k in range(MAX_ROWS + 1)])))


def test_long_strings_are_for_docs_and_logs() -> None:
    artifact = full()
    part, long = artifact.parts[0], "x" * (MAX_STRING + 1)
    step = part.steps[0]
    said = replace(step, images=(replace(step.images[0], log=long * 100), step.images[1]))
    fine = replace(artifact, interface=replace(artifact.interface, doc=long), parts=(replace(part, steps=(said,)),))
    assert plain(Artifact.from_bytes(fine.to_bytes())) == plain(fine)
    for wrong in (replace(part, made_by={"LLVM": long}), replace(part, report={long: 1}), replace(part, numerics=long)):
        with pytest.raises(ArtifactError, match="more than"):
            replace(artifact, parts=(wrong,)).to_bytes()


def test_memory_is_a_small_multiple_of_the_file() -> None:
    data = _with_sizes([(1, k, 0) for k in range(20_000)])
    tracemalloc.start()
    Artifact.from_bytes(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * len(data)


@pytest.mark.parametrize("seed", range(3))
def test_mutated_files_under_fitting_digests(seed: int) -> None:
    chosen = random.Random(seed)
    read = 0
    names = ["interface", "sm_90", "wgsl:f64"]
    for _ in range(400):
        begin, inside = section_of(FULL, chosen.choice(names))
        made = bytearray(FULL)
        for _ in range(chosen.choice((1, 1, 2, 4))):
            at = begin + chosen.randrange(len(inside))
            made[at] = chosen.choice((0, 1, 2, 255, made[at] ^ 1 << chosen.randrange(8), chosen.randrange(256)))
        read += sound_or_refused(redigested(bytes(made)))
    assert read, "some changes, of names or code, are not to be noticed"


@pytest.mark.parametrize("seed", range(2))
def test_mutated_programs_under_fitting_digests(seed: int) -> None:
    chosen = random.Random(seed)
    begin, inside = section_of(SMALL, "reference")
    wire = inside.index(b"\x89VYR")
    for _ in range(120):
        made = bytearray(inside)
        at = chosen.randrange(len(made))
        made[at] = chosen.choice((made[at] ^ 1 << chosen.randrange(8), chosen.randrange(256)))
        if at >= wire:
            made[-32:] = hashlib.sha256(made[wire:-32]).digest()
        sound_or_refused(redigested(SMALL[:begin] + bytes(made) + SMALL[begin + len(made) :]))


def sound_or_refused(data: bytes) -> bool:
    """Whether a file is read. What is read can be shown and written, and says the same again; all else is an ArtifactError."""
    try:
        artifact = Artifact.from_bytes(data)
    except ArtifactError:
        return False
    assert str(artifact)
    assert plain(Artifact.from_bytes(artifact.to_bytes())) == plain(artifact)
    for part in artifact.parts:
        for step in part.steps:
            end = 0
            for slot in step.layout.slots:
                assert end <= slot.offset_bytes < end + (64 if slot.box else 8) and slot.offset_bytes + slot.size_bytes <= step.layout.size_bytes
                end = slot.offset_bytes + slot.size_bytes
            for image in step.images:
                if image.program is not None:
                    check(image.program.program)
                    assert image.program.proven in (bounds(image.program.program), (0,) * len(image.program.program.body))
    return True


# ---------------------------------------------------------------- Programs of reference parts


def reference(text: str = AXPY) -> Artifact:
    return compiled(text, "reference")


def with_program(artifact: Artifact, program: Any) -> Artifact:
    """The artifact with another Program in its reference part."""
    (part,) = artifact.parts
    (step,) = part.steps
    return replace(artifact, parts=(replace(part, steps=(replace(step, images=(Image("program", program=program),)),)),))


def optimised(text: str) -> Optimised:
    return unoptimised(check(parse(text)), expand=frozenset())


UNGUARDED = AXPY.replace("workgroup(64)", "workgroup(64) over(n)").replace("y[i] = a * x[i] + y[i]", "y[i + 1000000u32] = a * x[i * 7777777u32] + y[0]")


def test_facts_about_workgroup_arrays_are_found_out_again() -> None:
    artifact = compiled(parse("""program turned(n) workgroup(64) over(n) {
  buffer x: f32[n] read_write
  workgroup whole: f32[64]
  workgroup part: f32[65]
  let l = local_index
  whole[l] = x[global_id.x]
  part[l] = x[global_id.x]
  barrier
  x[global_id.x] = whole[63u32 - l] + part[64u32 - l]
}"""), "reference")
    assert {memory.name for memory in artifact.parts[0].steps[0].images[0].program.written_first} == {"whole"}
    (part,) = Artifact.from_bytes(artifact.to_bytes()).parts
    assert {memory.name for memory in part.steps[0].images[0].program.written_first} == {"whole"}


def test_facts_about_bounds_are_found_out_again() -> None:
    artifact = reference()
    own = artifact.parts[0].steps[0].images[0].program
    assert any(own.proven)
    (part,) = Artifact.from_bytes(artifact.to_bytes()).parts
    assert part.steps[0].images[0].program.proven == own.proven
    # A Program whose indices lie outside, which says that they are proven: the claim is not written, and where a file makes it nothing comes of it.
    wild = optimised(UNGUARDED)
    claimed = replace(wild, proven=tuple([int(isinstance(s, Load)) for s in wild.program.body]))
    with pytest.raises(ArtifactError, match="bounds"):
        with_program(artifact, claimed).to_bytes()
    data = with_program(artifact, wild).to_bytes()
    loaded = Artifact.from_bytes(edited(data, "reference", "images.0.bounds", 1))
    made = loaded.parts[0].steps[0].images[0].program
    assert made.proven == bounds(made.program) and not any(made.proven)
    out = device("reference").load(loaded).dispatch(x=np.ones(8, np.float32), y=np.ones(8, np.float32), a=2.0)
    assert out["y"].tolist() == [1.0] * 8
    assert refused(edited(data, "reference", "images.0.bounds", 2)).part == "part reference"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (AXPY.replace("a: f32", "a: u32").replace("a * x", "1.0 * x"), "other dims, params"),
        (AXPY.replace("x: f32[n]", "x: f32[n, 2]").replace("x[i]", "x[i, 0]"), "other buffers"),
        (AXPY.replace("x: f32[n] read", "x: f32[n] read_write"), "other buffers"),
        (AXPY.replace("x: f32[n]", "x: f32[n + 1]"), "other buffers"),
        (AXPY.replace("(n)", "(n, m)"), "other dims"),
        (AXPY.replace("workgroup(64)", "workgroup(128)"), "workgroup"),
        (AXPY.replace("workgroup(64)", "workgroup(64) over(2)"), "grid"),
        (AXPY.replace("let i", "grid_barrier\n  let i"), "argument block"),
    ],
)
def test_a_program_that_is_not_the_step_s_is_refused(text: str, words: str) -> None:
    with pytest.raises(ArtifactError, match=words) as caught:
        with_program(reference(), optimised(text)).to_bytes()
    assert caught.value.part == "part reference"


def test_own_arrays_have_names_of_their_own() -> None:
    text = AXPY.replace("let i", "private s: f32[2]\n  private t: f32[2]\n  s[0] = a\n  t[1] = s[1]\n  let i").replace("+ y[i]", "+ y[i] + t[0]")
    data = with_program(reference(), optimised(text)).to_bytes()
    (one,) = struct.unpack_from("<I", (inside := section_of(data, "reference")[1]), offsets(PART, inside)["names.0.name"])
    assert "has no name" in str(refused(edited(data, "reference", "names.1.name", one)))
    assert "has no name" in str(refused(edited(data, "reference", "names.1.name", 0)))
    assert "row of names" in str(refused(edited(data, "reference", "names.1.number", 2)))
    assert "row of names" in str(refused(edited(data, "reference", "names.1.kind", 3)))


def test_programs_that_break_a_rule_are_refused() -> None:
    good = optimised(AXPY)
    broken = good.program.body[1:]
    with pytest.raises(ArtifactError, match="cannot be written"):
        with_program(reference(), replace(good, program=replace(good.program, body=broken, match=good.program.match[1:]))).to_bytes()
    barrier = AXPY.replace("let i = global_id.x", "let i = global_id.x\n  if i < 3u32 {\n barrier\n }")
    varying = replace(good, program=parse(barrier))  # a barrier that not all invocations reach, which only `check` sees
    with pytest.raises(ArtifactError, match="V401") as caught:
        with_program(reference(), replace(varying, proven=(0,) * len(varying.program.body))).to_bytes()
    assert caught.value.part == "part reference"
    vectors = replace(good, program=parse(AXPY.replace("a * x[i]", "hypot(vec2(a, a), vec2(x[i], a)).x")))  # scalars are called
    with pytest.raises(ArtifactError, match="expanded"):
        with_program(reference(AXPY), replace(vectors, proven=(0,) * len(vectors.program.body))).to_bytes()


# ---------------------------------------------------------------- parts by themselves


def test_parts_of_another_program_are_refused() -> None:
    artifact = full()
    data = encode_part(artifact.parts[0], artifact.interface)
    assert plain(decode_part(data, artifact.interface)) == plain(artifact.parts[0])
    fewer = replace(artifact.interface, buffers=artifact.interface.buffers[:2])
    other = compiled(AXPY, "wgsl").interface
    narrow = replace(artifact.interface, dims=(Dim("n"),))
    for interface in (fewer, other, narrow):
        with pytest.raises(ArtifactError):
            decode_part(data, interface)


def test_every_byte_of_a_part_flipped_ends_in_a_part_or_an_error() -> None:
    # Parts in a cache lie under its digest; where that is forged, nothing else happens either.
    artifact = full()
    data = encode_part(artifact.parts[0], artifact.interface)
    for at in range(len(data)):
        made = bytearray(data)
        made[at] ^= 1 << at % 8
        with suppress(ArtifactError):
            encode_part(decode_part(bytes(made), artifact.interface), artifact.interface)
    for size in range(len(data)):
        with pytest.raises(ArtifactError):
            decode_part(data[:size], artifact.interface)
