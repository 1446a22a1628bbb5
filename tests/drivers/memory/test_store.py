"""The resident store, and ranges of buffers, on every device."""

from __future__ import annotations

import gc
import threading
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import BindingError, OutOfMemory
from vyre_py.drivers.memory.store import ResidentStore


@pytest.fixture
def store(device: Device) -> ResidentStore:
    return ResidentStore(device)


def floats(count: int, start: int = 0) -> np.ndarray[Any, Any]:
    return np.arange(start, start + count, dtype=np.float32)


def test_put_get_drop(device: Device, store: ResidentStore) -> None:
    first, second = store.put(floats(4)), store.put(floats(6).reshape(3, 2), "table")
    third = store.put(np.ones((2, 3), np.float32), type_=vp.f32x3)
    assert isinstance(first, int) and second == "table" and first != third
    assert store.get("table").shape == (3, 2) and store.get(third).type is vp.f32x3
    assert store.get(first).read().tolist() == [0, 1, 2, 3]
    assert list(store) == ["table", third, first]  # the one used longest ago first
    shot = store.snapshot()
    assert (shot.entries, shot.bytes, shot.in_use, shot.evictable_bytes, shot.budget_bytes) == (3, 16 + 24 + 24, 0, 0, None)
    buffer = store.get(first)
    store.drop(first)
    assert buffer.allocation.freed and first not in store and store.snapshot().bytes == 48
    for wrong in (first, "nothing", None, 3.5):
        with pytest.raises(BindingError, match="not there"):
            store.get(wrong)  # type: ignore[arg-type]  # that is the point
    store.clear()
    assert len(store) == 0 and store.snapshot().bytes == 0
    assert device.resident is device.resident


def test_a_buffer_of_somebody_else_is_not_freed(device: Device, store: ResidentStore) -> None:
    mine = device.upload(floats(8))
    store.put(mine, "mine")
    store.drop("mine")
    assert not mine.allocation.freed and mine.read()[7] == 7
    mine.free()
    with pytest.raises(BindingError, match="freed"):
        store.put(mine)


def test_names_and_values_that_do_not_fit(device: Device, store: ResidentStore) -> None:
    store.put(floats(1), "a")
    with pytest.raises(BindingError, match="already"):
        store.put(floats(1), "a")
    with pytest.raises(BindingError, match="a name is text"):
        store.put(floats(1), 7)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(BindingError, match="dtype"):
        store.put(np.array(["x"]))
    with pytest.raises(BindingError, match="not u8"):
        store.put(floats(1), type_=vp.u8)
    with pytest.raises(BindingError, match="its own type"):
        store.put(device.upload(floats(1)), type_=vp.f32)
    assert store.snapshot().bytes == 4 and len(store) == 1


def test_a_budget_refuses(store: ResidentStore) -> None:
    store.budget_bytes = 100
    store.put(floats(10), "a")
    store.put(floats(10), "b")
    with pytest.raises(OutOfMemory, match="budget is 100 bytes") as caught:
        store.put(floats(10), "c")
    assert (caught.value.asked, caught.value.held, caught.value.limit) == (40, 80, 100)
    assert sorted(map(str, store)) == ["a", "b"] and store.snapshot().bytes == 80
    with pytest.raises(OutOfMemory):
        store.budget_bytes = 50
    assert store.budget_bytes == 100
    store.budget_bytes = None
    store.put(floats(10), "c")
    with pytest.raises(BindingError, match="whole number"):
        store.budget_bytes = -1


def test_evictable_entries_make_room_the_oldest_first(store: ResidentStore) -> None:
    store.budget_bytes = 120
    for name in "abc":
        store.put(floats(10), name, evictable=name != "b")
    store.get("a")
    store.put(floats(10), "d", evictable=True)
    assert sorted(map(str, store)) == ["a", "b", "d"] and store.snapshot().evictions == 1
    with pytest.raises(BindingError, match="'c' was evicted"):
        store.get("c")
    with store.using("a") as (held,):
        with pytest.raises(OutOfMemory):
            store.put(floats(20), "e")
        assert "d" in store and held.read()[9] == 9  # nothing was evicted for what does not fit anyway
        store.put(floats(10), "e", evictable=True)
        assert "d" not in store and "a" in store
        assert store.evict() == 40 and sorted(map(str, store)) == ["a", "b"]
    assert store.evict() == 40
    store.put(floats(10), "c")
    assert store.get("c").read()[1] == 1


def test_what_is_in_use_stays_until_its_last_use_ends(store: ResidentStore) -> None:
    store.put(floats(10), "a")
    with store.using("a") as (outer,):
        with store.using("a", "a") as (x, y):
            assert x is y is outer and store.snapshot().in_use == 1
            store.drop("a")
            assert "a" not in store and not outer.allocation.freed
        assert outer.read()[3] == 3 and store.snapshot().bytes == 40
        store.put(floats(5), "a")
    assert outer.allocation.freed and store.snapshot().bytes == 20
    with pytest.raises(BindingError, match="not there"), store.using("a", "b"):
        pass
    assert store.snapshot().in_use == 0


def test_threads_put_use_and_drop(store: ResidentStore) -> None:
    store.budget_bytes = 40 * 12
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(40):
            name = f"{number}.{turn}"
            try:
                store.put(floats(10, turn), name, evictable=True)
            except OutOfMemory:
                continue
            try:
                with store.using(name) as (buffer,):
                    if buffer.read()[0] != turn:
                        wrong.append(name)
            except BindingError:  # evicted by another thread
                continue
            if turn % 2 and name in store:
                with suppress(BindingError):  # the same
                    store.drop(name)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shot = store.snapshot()
    assert not wrong and shot.in_use == 0 and shot.bytes == 40 * shot.entries <= 480


# ---- ranges


def test_ranges_come_and_go_in_few_transfers(device: Device) -> None:
    x, y = device.upload(np.zeros(100, np.float32)), device.upload(np.zeros((10, 3), np.int32), vp.i32x3)
    before = device.telemetry.snapshot()
    device.upload_ranges([
        (x, 10, floats(5, 10)), (y, 2, np.full((2, 3), 7, np.int32)), (x, 15, floats(20, 15)), (x, 50, floats(0)), (x, 90, floats(20, 90)[:10]),
    ])  # fmt: skip
    moved = device.telemetry.snapshot() - before
    assert moved.uploads == 3 and moved.bytes_uploaded == (25 + 10) * 4 + 24
    expected = np.zeros(100, np.float32)
    expected[10:35], expected[90:] = floats(25, 10), floats(10, 90)
    assert np.array_equal(x.read(), expected) and y.read().sum() == 42
    before = device.telemetry.snapshot()
    got = device.download_ranges([(x, 20, 30), (x, 10, 20), (y, 2, 4), (x, 5, 5), (x[30:], 0, 5), (x, 12, 14)])
    moved = device.telemetry.snapshot() - before
    for array, wanted in zip(got, [expected[20:30], expected[10:20], np.full((2, 3), 7), expected[5:5], expected[30:35], expected[12:14]], strict=True):
        assert array.shape == wanted.shape and np.array_equal(array, wanted)
    assert moved.downloads in (3, 4) and moved.syncs == 1
    assert device.download_ranges([]) == []
    device.upload_ranges([])


def test_ranges_against_numpy(device: Device) -> None:
    rng = np.random.default_rng(7)
    model = rng.integers(0, 255, 4000).astype(np.uint8)
    buffer = device.upload(model)
    for _ in range(10):
        cuts = np.unique(rng.integers(0, 4000, 9))
        parts = [(int(a), int(b)) for a, b in pairwise(cuts) if rng.random() < 0.6]
        rng.shuffle(parts)
        ups = [(buffer[: 4000 - 5], a, rng.integers(0, 255, (b - a) * 2).astype(np.uint8)[::2]) for a, b in parts if b < 3995]
        device.upload_ranges(ups)
        for (_, start, array) in ups:
            model[start : start + len(array)] = array
        for array, (a, b) in zip(device.download_ranges([(buffer, a, b) for a, b in parts]), parts, strict=True):
            assert np.array_equal(array, model[a:b])
    assert np.array_equal(buffer.read(), model)


def test_ranges_that_do_not_fit(device: Device) -> None:
    x, gone = device.upload(floats(10)), device.upload(floats(10))
    gone.free()
    wrong: list[Any] = [
        (x, 8, floats(3)), (x, 0, np.zeros(2)), (gone, 0, floats(1)), (x, -1, floats(1)), (x, 0, np.zeros((2, 2), np.float32)), (3, 0, floats(1)),
    ]  # fmt: skip
    with pytest.raises(BindingError) as caught:
        device.upload_ranges(wrong)
    assert [p.split(":")[0] for p in caught.value.problems] == [f"range {n}" for n in range(6)]
    with pytest.raises(BindingError, match="overlap another range"):
        device.upload_ranges([(x, 0, floats(4)), (x[2:], 1, floats(4))])
    with pytest.raises(BindingError, match="do not lie within"):
        device.download_ranges([(x, 4, 3)])
    assert np.array_equal(x.read(), floats(10))


def test_arrays_of_ranges_outlive_their_buffers(device: Device) -> None:
    x = device.upload(floats(10))
    (part,) = device.download_ranges([(x, 3, 5)])
    x.free()
    del x
    gc.collect()
    assert part.tolist() == [3, 4]


# ---- fills, and copies to other devices


@pytest.mark.parametrize("name", ["bool", "u8", "i16", "u32", "i64", "u64", "f16", "f32", "f64", "u8x3", "i16x3", "f32x2", "f32x3", "f64x4"])
def test_fill(device: Device, name: str) -> None:
    type_ = vp.bool_ if name == "bool" else getattr(vp, name)
    value: Any = True if name == "bool" else 3
    if type_.is_vector:
        value = list(range(1, type_.lanes + 1))
    for count in (1, 2, 7, 1000):
        buffer = device.allocate(count + 2, type_)
        buffer[1 : count + 1].fill(value)
        got = buffer.read()
        assert not got[0].any() and not got[-1].any() and (got[1:-1] == np.array(value, type_.dtype)).all()
    before = device.telemetry.snapshot()
    buffer.fill(value)
    device.allocate(0, type_).fill(value)
    moved = device.telemetry.snapshot() - before
    assert (moved.fills, moved.bytes_filled) == (1, buffer.size_bytes)


def test_fill_refuses_what_does_not_fit(device: Device) -> None:
    buffer = device.allocate(4, vp.u8)
    for wrong in (256, 1.5, "x", [1, 2], None):
        with pytest.raises(BindingError):
            buffer.fill(wrong)
    buffer.free()
    with pytest.raises(BindingError, match="freed"):
        buffer.fill(1)


def test_copies_between_devices(device: Device) -> None:
    other = vp.device("cpu" if device.kind != "cpu" else "reference")
    source, target = other.upload(floats(1000)), device.allocate(1000, vp.f32)
    device.copy_peer(source, target)
    device.copy_peer(source[:10], target[990:])
    assert np.array_equal(target.read(), np.concatenate([floats(990), floats(10)]))
    device.copy_peer(target, second := device.allocate(1000, vp.f32))
    assert second.read()[999] == 9
    with pytest.raises(BindingError, match="'source' must be"):
        device.copy_peer(source[1:], target)
    with pytest.raises(BindingError, match="'target' must be"):
        device.copy_peer(target, source)
