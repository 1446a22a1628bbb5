"""Strided copies against NumPy's `as_strided`, on every device."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory import strided
from vyre_py.drivers.memory.strided import Axis, Move, simplified

DTYPES = (np.uint8, np.int16, np.float32, np.float64)


def layout(rng: random.Random, shape: list[int], broadcast: bool) -> tuple[int, list[int], int]:
    """An offset, strides, and how many elements they reach: axes in any order, with gaps, backward at times."""
    order = list(range(len(shape)))
    if rng.random() < 0.6:
        rng.shuffle(order)
    else:
        order.reverse()
    strides, step = [0] * len(shape), rng.choice([1, 1, 1, 2, 4])
    for axis in order:
        if broadcast and rng.random() < 0.15:
            continue
        strides[axis] = step
        step = step * shape[axis] + rng.choice([0, 0, 0, 1, 4, 8])
    offset = rng.choice([0, 0, 1, 4, 8])
    for axis, size in enumerate(shape):
        if rng.random() < 0.2:
            offset += (size - 1) * strides[axis]
            strides[axis] = -strides[axis]
    return offset, strides, offset + sum(max(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True)) + 1


def over(array: np.ndarray[Any, Any], offset: int, strides: list[int], shape: list[int]) -> np.ndarray[Any, Any]:
    return as_strided(array[offset:], shape, [s * array.itemsize for s in strides])


def one_case(device: Device, rng: random.Random, shape: list[int], dtype: Any) -> int:
    """Copies once, and gives the bytes that were to be copied."""
    source_offset, source_strides, source_count = layout(rng, shape, True)
    target_offset, target_strides, target_count = layout(rng, shape, False)
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    source = numbers.integers(0, 250, source_count + rng.randrange(4)).astype(dtype)
    expected = numbers.integers(0, 250, target_count + rng.randrange(4)).astype(dtype)
    x, y = device.upload(source), device.upload(expected)
    device.copy_strided(x, source_offset, source_strides, y, target_offset, target_strides, shape)
    over(expected, target_offset, target_strides, shape)[...] = over(source, source_offset, source_strides, shape)
    wrong = np.flatnonzero(y.read() != expected)
    assert not wrong.size, f"{shape} {dtype} {source_offset} {source_strides} {target_offset} {target_strides}: elements {wrong[:5]}"
    return int(prod(shape) * source.itemsize)


@pytest.mark.parametrize("seed", range(4))
def test_random_copies(device: Device, seed: int) -> None:
    rng, size = random.Random(seed), 0
    before = device.telemetry.snapshot()
    for _ in range(12):
        shape = [rng.randint(1, 6) for _ in range(rng.randint(0, 4))]
        size += one_case(device, rng, shape, rng.choice(DTYPES))
    counted = device.telemetry.snapshot() - before
    assert (counted["copies"], counted["bytes_copied"]) == (12, size)


@pytest.mark.parametrize("rank", [5, 8])
def test_many_axes(device: Device, rank: int) -> None:
    rng = random.Random(rank)
    for _ in range(2):
        one_case(device, rng, [rng.randint(2, 3) for _ in range(rank)], np.float32)


def test_long_runs(device: Device) -> None:
    """A contiguous inner axis: full tiles, the rest of a tile, several tiles a run, and words of every width."""
    rng = random.Random(3)
    for inner, dtype in product((31, 512, 5000), (np.uint8, np.float32)):
        one_case(device, rng, [3, inner], dtype)
    x = np.arange(6 * 4096, dtype=np.float32).reshape(6, 4096)
    source, target = device.upload(x), device.allocate(4 * 2048, vp.f32)
    device.copy_strided(source, 4096 + 1024, [4096, 1], target, 0, [2048, 1], [4, 2048])
    assert np.array_equal(target.read().reshape(4, 2048), x[1:5, 1024:3072])


def test_vectors_are_copied_whole(device: Device) -> None:
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    source, target = device.upload(x, vp.f32x3), device.allocate((4, 5), vp.f32x3)
    device.copy_strided(source, 0, [1, 4], target, 0, [5, 1], [4, 5])
    assert np.array_equal(target.read(), x.reshape(5, 4, 3).transpose(1, 0, 2))


def test_parts_of_one_buffer(device: Device) -> None:
    x = np.arange(100, dtype=np.int32)
    buffer = device.upload(x)
    device.copy_strided(buffer, 0, [2], buffer, 50, [1], [25])
    x[50:75] = x[0:50:2]
    assert np.array_equal(buffer.read(), x)
    with pytest.raises(BindingError, match="overlap"):
        device.copy_strided(buffer, 0, [1], buffer, 10, [1], [20])
    with pytest.raises(BindingError, match="overlap"):
        device.copy_strided(buffer, 0, [2], buffer, 1, [2], [20])


def test_nothing_is_copied_for_an_axis_of_none(device: Device) -> None:
    source, target = device.allocate(1, vp.u8), device.allocate(0, vp.u8)
    device.copy_strided(source, 0, [100, 1], target, 0, [1, 100], [0, 50])
    device.copy_strided(device.upload(np.array([7], np.uint8)), 0, [], source, 0, [], [])
    assert source.read().tolist() == [7]


def test_what_does_not_fit_is_refused(device: Device) -> None:
    x, y = device.allocate(10, vp.f32), device.allocate(10, vp.f32)
    refused: list[tuple[str, tuple[Any, ...]]] = [
        ("elements 0 to 18 of 'source', which has 10", (x, 0, [2], y, 0, [1], [10])),
        ("elements -3 to 0 of 'target'", (x, 0, [1], y, 0, [-1], [4])),
        ("elements 9 to 12 of 'source'", (x, 9, [1], y, 0, [1], [4])),
        ("write an element twice", (x, 0, [1], y, 0, [0], [4])),
        ("write an element twice", (x, 0, [2, 1], y, 0, [1, 1], [2, 2])),
        ("one rank up to 8", (x, 0, [1], y, 0, [1, 1], [4])),
        ("one rank up to 8", (x, 0, [0] * 9, y, 0, [0] * 9, [1] * 9)),
        ("source_offset is a whole number", (x, -1, [1], y, 0, [1], [4])),
        ("shape is a list of whole numbers from 0", (x, 0, [1], y, 0, [1], [-4])),
        ("target_strides is a list", (x, 0, [1], y, 0, [1.5], [4])),
        ("copied as they are", (x, 0, [1], device.allocate(10, vp.u32), 0, [1], [4])),
        ("'target' must be a buffer", (x, 0, [1], np.zeros(4), 0, [1], [4])),
    ]
    for message, arguments in refused:
        with pytest.raises(BindingError, match=message):
            device.copy_strided(*arguments)
    y.free()
    with pytest.raises(BindingError, match="freed"):
        device.copy_strided(x, 0, [1], y, 0, [1], [4])


def test_numbers_that_only_equal_whole_ones_are_refused_every_time(device: Device) -> None:
    x, y = device.upload(np.arange(10, dtype=np.float32)), device.allocate(4, vp.f32)
    for shape in ([4], (4,), [np.int64(4)]):
        device.copy_strided(x, np.uint8(1), [np.int16(2)], y, 0, [1], shape)
        assert y.read().tolist() == [1, 3, 5, 7]
    for wrong in (2.0, True, "2", None):
        with pytest.raises(BindingError, match="source_strides is a list of whole numbers"):
            device.copy_strided(x, 1, [wrong], y, 0, [1], [4])
    for wrong in (1.0, True, -1, None):
        with pytest.raises(BindingError, match="source_offset is a whole number from 0"):
            device.copy_strided(x, wrong, [2], y, 0, [1], [4])
    with pytest.raises(BindingError, match="shape is a list"):
        device.copy_strided(x, 1, [2], y, 0, [1], np.array([4]))


def test_the_same_numbers_in_smaller_buffers_are_looked_at_again(device: Device) -> None:
    x, y = device.upload(np.arange(10, dtype=np.float32)), device.allocate(4, vp.f32)
    device.copy_strided(x, 1, [2], y, 0, [1], [4])
    with pytest.raises(BindingError, match="elements 1 to 7 of 'source', which has 7"):
        device.copy_strided(x[:7], 1, [2], y, 0, [1], [4])
    with pytest.raises(BindingError, match="elements 0 to 3 of 'target', which has 3"):
        device.copy_strided(x, 1, [2], y[:3], 0, [1], [4])
    half = device.upload(np.arange(16, dtype=np.int16))
    device.copy_strided(half, 1, [2], device.allocate(4, vp.i16), 0, [1], [4])


def test_copies_beyond_the_words_that_32_bits_count_are_divided(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strided, "_SPAN_WORDS", 50)
    rng = random.Random(11)
    for _ in range(3):
        one_case(device, rng, [3, 4, 9], np.float32)
    one_case(device, rng, [200], np.uint8)


def test_a_captured_copy_has_its_numbers_by_value(device: Device) -> None:
    x = np.arange(600, dtype=np.float32).reshape(20, 30)
    source, target, plain = device.upload(x), device.allocate((15, 10), vp.f32), device.allocate(50, vp.f32)
    for _ in range(2):  # compiled and loaded before the capture
        device.copy_strided(source, 0, [30, 2], target, 0, [1, 10], [10, 15])
    target.fill(0)

    def copies() -> None:
        device.copy_strided(source, 0, [30, 2], target, 0, [1, 10], [10, 15])
        device.copy_strided(source, 100, [1], plain, 0, [1], [50])

    graph = device.capture(copies)
    assert not target.read().any() and graph.nodes == 2
    for turn in range(2):
        source.write(x + turn)
        graph()
        assert np.array_equal(target.read(), (x + turn)[:10, ::2].T)
        assert np.array_equal(plain.read(), (x + turn).reshape(-1)[100:150])


# ---- the arithmetic alone


AXES = st.lists(st.tuples(st.integers(1, 4), st.integers(-30, 30), st.integers(-30, 30)), max_size=5)


def places(move: Move) -> set[tuple[int, int]]:
    """Every pair of places that a copy makes equal."""
    found = set()
    for index in product(*[range(a.size) for a in move.axes]):
        steps = list(zip(index, move.axes, strict=True))
        found.add((move.source + sum(i * a.source for i, a in steps), move.target + sum(i * a.target for i, a in steps)))
    return found


@given(st.integers(-9, 9), st.integers(-9, 9), AXES)
def test_simplified_copies_the_same(source: int, target: int, axes: list[tuple[int, int, int]]) -> None:
    move = Move(source, target, tuple(Axis(*axis) for axis in axes))
    simple = simplified(move)
    assert places(simple) == places(move) and simplified(simple) == simple
    assert all(axis.size > 1 and axis.target >= 0 for axis in simple.axes) and len(simple.axes) <= len(move.axes)
    spans = [sorted(pair[side] for pair in places(move)) for side in (0, 1)]
    assert (move.span("source"), move.span("target")) == tuple((s[0], s[-1]) for s in spans)
    if not strided._repeats(simple):
        assert len({t for _, t in places(move)}) == prod(axis.size for axis in move.axes)


@given(st.integers(1, 60), AXES)
def test_divided_copies_the_same_in_small_parts(limit: int, axes: list[tuple[int, int, int]]) -> None:
    move = simplified(Move(5, 5, tuple(Axis(*axis) for axis in axes)))
    parts = list(strided._in_spans(move, limit))
    assert set().union(*map(places, parts)) == places(move) and sum(prod(a.size for a in p.axes) for p in parts) == prod(a.size for a in move.axes)
    assert all(last - first < limit for part in parts for first, last in (part.span("source"), part.span("target")))


WIDE_AXES = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([-64, -8, 8, 16, 24, 33]), st.sampled_from([64, 128, 256, 512])), max_size=3)


@given(st.integers(0, 64), st.integers(0, 64), WIDE_AXES, st.integers(1, 64))
def test_words_are_aligned_and_copy_the_same_bytes(source: int, target: int, axes: list[tuple[int, int, int]], run: int) -> None:
    move = simplified(Move(source, target, (*(Axis(*axis) for axis in axes), Axis(run, 1, 1))))
    width, words = strided.widened(move, (0, 0), strided._WORDS)
    again = replace(words.scaled(width), axes=(*words.scaled(width).axes, Axis(width, 1, 1)))
    assert places(again) == places(move)
    # No wider word would do.
    if width < 8:
        wider = 2 * width
        last = move.axes[-1] if move.axes and move.axes[-1].source == move.axes[-1].target == 1 else Axis(1, 1, 1)
        parts = [move.source, move.target, last.size, *(s for a in move.axes if a is not last for s in (a.source, a.target))]
        assert any(part % wider for part in parts)
