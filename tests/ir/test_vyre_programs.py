"""The Programs of `ir/VYRE.md`: what of vyre becomes more than one statement, run as the page has it, on every device here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device_kinds import KINDS, open_device
from tree import ROOT

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.drivers.pipeline import Pipeline
from vyre_py.ir.language.program import Program
from vyre_py.ir.text.parser import parse

PAGE = (ROOT / "ir" / "VYRE.md").read_text(encoding="utf-8").partition("\n## Written out\n")[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
PROGRAMS: dict[str, Program] = {made.name: made for made in (parse(body) for language, body in BLOCK.findall(PAGE) if not language)}

# vyre's own packing of these eight I4 is the word 0x76210f98 (its quantized primitives, `pack_i4x8`).
I4 = (-8, -7, -1, 0, 1, 2, 6, 7)
E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
# "QLoRA: Efficient Finetuning of Quantized LLMs" (2023), appendix E, as its authors' library rounds them.
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest) -> Device:
    """Every device here."""
    return open_device(request.param)


@pytest.fixture
def compiled(device: Device) -> Callable[[str], Pipeline]:
    """A Program of the page by its name, on the device."""
    return lambda name: device.compile_native(PROGRAMS[name])


def test_every_program_of_the_page_is_run() -> None:
    assert set(PROGRAMS) == {"alone", "waves", "csr", "coo", "bsr", "halves", "quantized", "named", "count", "counted", "before", "behind"}


def test_subgroups(compiled: Callable[[str], Pipeline]) -> None:
    rng = np.random.default_rng(1)
    x, lane = rng.integers(0, 3, 128).astype(np.uint32), rng.integers(0, 40, 128).astype(np.uint32)
    out = compiled("waves").dispatch({"x": x, "lane": lane})["out"]
    for start in range(0, 128, 32):
        part, picks = x[start : start + 32], lane[start : start + 32]
        assert out[start : start + 32, 0].tolist() == [int(part[k]) if k < 32 else 0 for k in picks]
        ballot = sum(1 << k for k in range(32) if part[k])
        assert out[start : start + 32].tolist() == [[out[start + k, 0], ballot, part.sum(), part[5], k, 32] for k in range(32)]


def test_collectives_among_one_rank(compiled: Callable[[str], Pipeline]) -> None:
    x = np.random.default_rng(5).random(1000, np.float32)
    for whole in (np.stack([x]).sum(0), np.stack([x]).max(0), np.concatenate([x])):
        np.testing.assert_array_equal(compiled("alone").dispatch({"x": x})["y"], whole)


def _matrix(rows: int, columns: int) -> Any:
    """Small whole numbers, most of them zero: sums are exact in any order. Two rows have nothing."""
    rng = np.random.default_rng(2)
    dense = rng.integers(-9, 10, (rows, columns)) * (rng.random((rows, columns)) < 0.2)
    dense[[1, rows - 1]] = 0
    return dense


def test_sparse_matrices(compiled: Callable[[str], Pipeline]) -> None:
    dense = _matrix(100, 70)
    x = np.random.default_rng(3).integers(-9, 10, 70)
    row, column = np.nonzero(dense)
    starts = np.searchsorted(row, np.arange(101)).astype(np.uint32)
    value = dense[row, column]
    given = {"rows": 100, "starts": starts, "column": column.astype(np.uint32), "value": value.astype(np.float32), "x": x.astype(np.float32)}
    np.testing.assert_array_equal(compiled("csr").dispatch(given)["y"], dense @ x)
    order = np.random.default_rng(4).permutation(value.size)
    triples = {"row": row[order].astype(np.uint32), "column": column[order].astype(np.uint32), "value": value[order].astype(np.int32)}
    found = compiled("coo").dispatch({**triples, "x": x.astype(np.int32), "y": np.zeros(100, np.int32)})["y"]
    np.testing.assert_array_equal(found, dense @ x)


def test_a_sparse_matrix_of_blocks(compiled: Callable[[str], Pipeline]) -> None:
    dense = _matrix(40, 36) * np.kron(np.random.default_rng(5).random((20, 12)) < 0.3, np.ones((2, 3), int))
    x = np.arange(-10, 26)
    blocks = dense.reshape(20, 2, 12, 3).swapaxes(1, 2)
    band, column = np.nonzero(blocks.any((2, 3)))
    given = {
        "bands": 20, "starts": np.searchsorted(band, np.arange(21)).astype(np.uint32), "column": column.astype(np.uint32),
        "value": blocks[band, column].astype(np.float32), "x": x.astype(np.float32),
    }  # fmt: skip
    np.testing.assert_array_equal(compiled("bsr").dispatch(given)["y"].reshape(40), dense @ x)


def test_types_of_four_bits(compiled: Callable[[str], Pipeline]) -> None:
    codes = np.concatenate([np.array(I4) & 15, np.arange(16), np.random.default_rng(6).integers(0, 16, 33)])
    packed = np.append(codes, 0).reshape(-1, 2) @ [1, 16]
    assert packed[:4].astype(np.uint8).tobytes() == (0x76210F98).to_bytes(4, "little")
    n = codes.size
    out = compiled("halves").dispatch({"packed": packed.astype(np.uint8), "n": n})
    assert out["i4"].tolist() == [c - 16 if c > 7 else c for c in codes.tolist()] and out["i4"][:8].tolist() == list(I4)
    assert out["fp4"].tolist() == [E2M1[c & 7] * (-1 if c > 7 else 1) for c in codes.tolist()]
    assert out["nf4"].tolist() == [float(np.float32(NF4[c])) for c in codes.tolist()]


def test_a_quantized_type(compiled: Callable[[str], Pipeline]) -> None:
    rng = np.random.default_rng(7)
    q, zero = rng.integers(-128, 128, 100).astype(np.int8), rng.integers(-128, 128, 4).astype(np.int8)
    scale = rng.random(4).astype(np.float32)
    group = np.arange(100) // 32
    wanted = (q.astype(np.float32) - zero[group].astype(np.float32)) * scale[group]
    np.testing.assert_array_equal(compiled("quantized").dispatch({"q": q, "scale": scale, "zero": zero})["y"], wanted)


def test_handles(compiled: Callable[[str], Pipeline]) -> None:
    arrays = np.random.default_rng(8).random((3, 50)).astype(np.float32)
    handle = (np.arange(50) % 4).astype(np.uint32)  # the last names nothing
    found = compiled("named").dispatch({"handle": handle, "all": arrays})["y"]
    np.testing.assert_array_equal(found, np.where(handle < 3, arrays[handle % 3, np.arange(50)], 0))


def test_a_grid_from_a_buffer(device: Device, compiled: Callable[[str], Pipeline]) -> None:
    counts = device.allocate((4,), vp.u32)
    x, y = device.upload(np.array([130], np.uint32)), device.upload(np.zeros(1000, np.uint32))
    lines = next(body for language, body in BLOCK.findall(PAGE) if language == "python")
    exec(lines, {"vp": vp, "device": device, "counts": counts, "x": x, "y": y, "count": compiled("count"), "counted": compiled("counted")})
    assert device.download(y).tolist() == [1] * 192 + [0] * 808  # three workgroups


def test_a_program_that_goes_on_behind_another(compiled: Callable[[str], Pipeline]) -> None:
    page = (np.arange(200) * 7 % 8).astype(np.uint32)
    data = np.arange(8, dtype=np.float32) + 1
    there = np.arange(8) % 3 != 0
    first = compiled("before").dispatch({"page": page, "there": there, "data": data * there, "y": np.full(200, -1, np.float32)})
    np.testing.assert_array_equal(first["stopped"], ~there[page])
    np.testing.assert_array_equal(first["y"], np.where(there[page], data[page] * 2, -1))
    second = compiled("behind").dispatch({"page": page, "data": data, "stopped": first["stopped"], "y": first["y"]})
    np.testing.assert_array_equal(second["y"], data[page] * 2)
