"""The record layer: a format made up here, every way in which its bytes can be wrong, and that reading costs nothing that they ask for."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest

from vyre_py.ir.wire.record import DIGEST_BYTES, Flaw, Malformed, Record, Section, digest, view_of

FIELDS = {
    "magic": ("4s", ""), "version": ("H", ""), "zero": ("H", ""), "length": ("Q", ""),
    "n_pairs": ("I", ""), "n_text": ("I", ""), "at": ("2I", ""), "last": ("B", ""),
}  # fmt: skip
SECTIONS = [Section("pairs", "n_pairs", 8, most=3), Section("text", "n_text")]
KIND: dict[str, Any] = {"magic": b"\x89abc", "versions": [(1,), (2,)], "reserved": ["zero"], "limit_bytes": 200}
SEALED = Record(FIELDS, SECTIONS, sealed=True, **KIND)
OPEN = Record({name: field for name, field in FIELDS.items() if name != "length"}, SECTIONS, rest=True, **KIND)
VALUES = {"n_pairs": 2, "n_text": 3, "at": (7, 8), "last": 9}
PAIRS = struct.pack("<4I", 1, 2, 3, 4)


def written(record: Record = SEALED, **values: Any) -> bytes:
    return record.write(VALUES | values, [PAIRS, memoryview(b"abc")])


def wrong(data: bytes, record: Record = SEALED) -> tuple[Flaw, str]:
    with pytest.raises(Malformed) as caught:
        record.read(data)
    assert str(caught.value)
    return caught.value.flaw, caught.value.field


def test_what_is_written_is_read() -> None:
    data = written()
    for given in (data, memoryview(data)):
        header, places = SEALED.read(given)
        assert SEALED.named(header) == {"magic": b"\x89abc", "version": 2, "zero": 0, "length": len(data), **VALUES}
        assert places == [SEALED.head.size, SEALED.head.size + 16, SEALED.head.size + 19] and len(data) == SEALED.least + 19
        assert given[places[0] : places[1]] == PAIRS and given[places[1] : places[2]] == b"abc" and data[-DIGEST_BYTES:] == digest(data[:-DIGEST_BYTES])
    assert SEALED.named(SEALED.read(written(version=1))[0])["version"] == 1


def test_offsets_are_those_of_the_bytes() -> None:
    data = written()
    header = SEALED.head.unpack_from(data)
    assert data[SEALED.offset("at", 1) :][:4] == struct.pack("<I", 8) and data[SEALED.offset("last")] == 9
    assert data[SEALED.offset("pairs", 1, header) :][:8] == struct.pack("<2I", 3, 4) and data[SEALED.offset("text", 2, header)] == ord("c")


def test_a_rest_may_follow_where_it_is_meant() -> None:
    data = OPEN.write(VALUES, [PAIRS, b"abc"], [b"be", b"hind"])
    assert data[OPEN.read(data)[1][-1] :] == b"behind"
    assert OPEN.read(data[:-6]) == OPEN.read(data) and wrong(data[:-7], OPEN) == (Flaw.LAYOUT, "n_pairs")
    assert wrong(written() + b"behind") == (Flaw.LAYOUT, "length")


def test_every_flaw_is_told() -> None:
    data = written()
    assert wrong(b"") == wrong(data[:5]) == wrong(b"x" + data[1:]) == (Flaw.MAGIC, "magic")
    assert wrong(written(version=3)) == (Flaw.VERSION, "version")
    with pytest.raises(Malformed, match=r"it is of format 3: a newer vyre-py wrote it; this one reads formats up to 2"):
        SEALED.read(written(version=3))
    with pytest.raises(Malformed, match=r"it is of format 0: this vyre-py reads formats up to 2"):
        SEALED.read(written(version=0))
    assert wrong(data + bytes(200)) == (Flaw.SIZE, "length")
    assert wrong(data[:20]) == wrong(data[:-1]) == wrong(written(length=1)) == (Flaw.LAYOUT, "length")
    assert wrong(written(n_text=4)) == (Flaw.LAYOUT, "n_pairs")
    assert wrong(data[:-1] + bytes([data[-1] ^ 1])) == (Flaw.DIGEST, "digest")
    assert wrong(written(zero=1)) == (Flaw.RESERVED, "zero")


def test_a_damaged_count_is_told_as_damage_where_the_length_is_known() -> None:
    data = bytearray(written())
    data[SEALED.offset("n_text")] ^= 1
    assert wrong(bytes(data)) == (Flaw.DIGEST, "digest")


def test_every_flipped_bit_and_every_truncation_is_noticed() -> None:
    data = written()
    for at in range(len(data)):
        wrong(data[:at])
        for bit in range(8):
            wrong(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])


def test_counts_that_lie_cost_nothing() -> None:
    for name in ("n_pairs", "n_text"):
        data = bytearray(written(OPEN))
        struct.pack_into("<I", data, OPEN.offset(name), 0xFFFFFFFF)
        tracemalloc.start()
        assert wrong(bytes(data), OPEN)[0] is Flaw.LAYOUT
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 16
    for parts in ([PAIRS, b"abc"], [PAIRS, PAIRS, b"abc"]):
        data = bytearray(OPEN.write(VALUES, parts))
        data[OPEN.offset("n_pairs")] = 4
        with pytest.raises(Malformed, match=r"4 pairs, at most 3 are allowed"):
            OPEN.read(bytes(data))


def test_what_has_no_room_is_not_written() -> None:
    with pytest.raises(Malformed, match="at most 200 are written") as caught:
        SEALED.write(VALUES, [bytes(200)])
    assert caught.value.flaw is Flaw.SIZE
    with pytest.raises(Malformed, match=r"4 pairs, at most 3 are allowed"):
        written(n_pairs=4)
    with pytest.raises(struct.error):
        written(last=256)


@pytest.mark.parametrize("thing", ["text", None, 1, memoryview(b"abcd")[::2]])
def test_what_is_no_bytes_is_refused(thing: Any) -> None:
    with pytest.raises(Malformed) as caught:
        view_of(thing)
    assert caught.value.flaw is Flaw.BYTES and caught.value.help
