"""Counters, snapshots, and the text for Prometheus."""

from __future__ import annotations

import ctypes
import gc
import json
import math
import re
import threading
import time
import typing
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from axpy import AXPY
from device_kinds import KINDS, open_device

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.drivers.observe.metrics import METRICS, RATIOS, STORED
from vyre_py.drivers.observe.snapshot import Snapshot, prometheus_name
from vyre_py.drivers.observe.telemetry import Telemetry
from vyre_py.ir.travel import Stationary

READ = [name for name in METRICS if name not in STORED and name not in RATIOS]  # gauges that others keep


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry("cuda:3")


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


# ---- the table


@pytest.mark.parametrize("name", METRICS)
def test_every_figure_is_documented_and_can_be_counted(name: str, telemetry: Telemetry) -> None:
    row = METRICS[name]
    assert row.kind in ("counter", "gauge") and row.unit in ("count", "bytes", "ns", "ratio") and row.doc and "\n" not in row.doc
    assert telemetry.snapshot()[name] == 0
    if name in RATIOS:
        part, whole = RATIOS[name]
        setattr(telemetry, part, 3)
        setattr(telemetry, whole, 4)
        assert telemetry.snapshot()[name] == 0.75
    elif name in STORED:
        setattr(telemetry, name, getattr(telemetry, name) + 7)
        ctypes.c_uint64.from_address(telemetry.address(name)).value += 5
        assert getattr(telemetry, name) == telemetry.snapshot()[name] == 12
    else:
        telemetry.gauge(name, lambda: 9)
        assert telemetry.snapshot()[name] == 9
    others = {other: value for other, value in telemetry.snapshot().items() if other != name and other not in RATIOS.get(name, ())}
    assert not any(others.values())


def test_attributes_are_declared_for_type_checkers() -> None:
    declared = typing.get_type_hints(Telemetry).keys() - typing.get_type_hints(Stationary).keys()
    assert {name for name in declared if not name.startswith("_")} == set(STORED)
    assert {row.kind for name, row in METRICS.items() if name in READ or name in RATIOS} == {"gauge"}


def test_names_that_are_none_are_refused(telemetry: Telemetry) -> None:
    with pytest.raises(AttributeError):
        telemetry.launchs += 1  # type: ignore[attr-defined]  # the mistake under test
    for wrong in ("launchs", "occupancy", "streams"):
        with pytest.raises(vp.DriverError, match="has no word"):
            telemetry.address(wrong)
    for wrong in ("launchs", "occupancy", "launches", "bytes_allocated"):
        with pytest.raises(vp.DriverError, match="not read from a function"):
            telemetry.gauge(wrong, lambda: 0)
    for wrong in ("launchs", "streams", "bytes_allocated"):
        with pytest.raises(vp.DriverError, match="is not a counter"):
            telemetry.record(launches=1, **{wrong: 1})
    assert not any(telemetry.snapshot().values())


# ---- snapshots


def test_a_snapshot_is_a_mapping_that_nobody_changes(telemetry: Telemetry) -> None:
    telemetry.launches += 2
    taken = telemetry.snapshot()
    telemetry.launches += 1
    assert taken.launches == taken["launches"] == dict(taken)["launches"] == 2 and taken.device == "cuda:3"
    assert list(taken) == list(METRICS) and len(taken) == len(METRICS) and "launches" in taken and "launchs" not in taken
    assert {"launches", "occupancy", "to_json"} <= set(dir(taken))
    with pytest.raises(AttributeError, match="launchs"):
        _ = taken.launchs
    with pytest.raises(KeyError):
        _ = taken["launchs"]
    with pytest.raises((FrozenInstanceError, AttributeError)):
        taken.device = "other"  # type: ignore[misc]  # the mistake under test
    with pytest.raises(TypeError):
        taken.figures["launches"] = 0  # type: ignore[index]  # the mistake under test
    assert repr(taken) == "<Snapshot of cuda:3: launches 2>"


def test_the_difference_counts_what_was_between(telemetry: Telemetry) -> None:
    held = 100
    telemetry.gauge("device_pool_held_bytes", lambda: held)
    telemetry.launches, telemetry.bytes_allocated = 5, 4096
    telemetry.threads_occupied, telemetry.threads_scheduled = 100, 100
    earlier = telemetry.snapshot()
    held = 70
    telemetry.launches += 3
    telemetry.bytes_allocated -= 1024
    telemetry.threads_occupied += 50
    telemetry.threads_scheduled += 200
    between = telemetry.snapshot() - earlier
    assert between.launches == 3 and between.device_pool_held_bytes == 70 and between.bytes_allocated == 3072
    assert earlier.occupancy == 1.0 and between.occupancy == 0.25 and telemetry.snapshot().occupancy == 0.5
    assert (earlier - earlier).launches == 0
    with pytest.raises(TypeError):
        _ = earlier - 1  # type: ignore[operator]  # the mistake under test


def test_a_snapshot_prints_what_is_not_zero(telemetry: Telemetry) -> None:
    assert str(telemetry.snapshot()) == "nothing was counted"
    telemetry.bytes_uploaded, telemetry.launches = 12345, 3
    telemetry.threads_occupied, telemetry.threads_scheduled = 1, 3
    lines = [line.split() for line in str(telemetry.snapshot()).splitlines()]
    assert ["launches", "3"] in lines and ["bytes_uploaded", "12,345", "bytes"] in lines and ["occupancy", "0.333", "ratio"] in lines
    assert len(lines) == 5


def test_json_has_every_figure(telemetry: Telemetry) -> None:
    telemetry.device_ns = 2**63 + 1
    assert json.loads(telemetry.snapshot().to_json()) == {"device": "cuda:3", **dict.fromkeys(METRICS, 0), "device_ns": 2**63 + 1}


# ---- records


def test_a_record_adds_its_amounts_a_call(telemetry: Telemetry) -> None:
    record = telemetry.record(launches=3, elements_launched=1000, threads_scheduled=1024, threads_occupied=512, bytes_copied=0)
    record.count()
    record.count(4)
    ctypes.c_uint64.from_address(record.address).value += 5  # as native code does
    taken = telemetry.snapshot()
    assert (taken.launches, taken.elements_launched, taken.threads_scheduled, taken.occupancy) == (30, 10_000, 10_240, 0.5)
    assert telemetry.snapshot() == taken


def test_what_a_dead_record_counted_stays(telemetry: Telemetry) -> None:
    records = [telemetry.record(launches=1, parameter_bytes=number) for number in range(100)]
    for record in records:
        record.count()
    del record, records[::2]
    gc.collect()
    assert telemetry.snapshot().launches == 100 and telemetry.snapshot().parameter_bytes == sum(range(100))
    assert telemetry.launches == 50  # moved into the word itself
    records.clear()
    assert telemetry.snapshot().launches == telemetry.launches == 100


def test_records_that_come_and_go_do_not_pile_up(telemetry: Telemetry) -> None:
    for _ in range(10_000):
        telemetry.record(launches=1).count()
    assert len(telemetry._cells) <= 2 and telemetry.snapshot().launches == 10_000


def test_a_record_outlives_its_telemetry() -> None:
    record = Telemetry().record(launches=1)
    gc.collect()
    record.count()
    del record
    gc.collect()


# ---- reset


def test_reset_gives_what_was_and_leaves_gauges(telemetry: Telemetry) -> None:
    telemetry.gauge("streams", lambda: 4)
    record = telemetry.record(launches=2)
    record.count(5)
    telemetry.syncs, telemetry.bytes_allocated = 3, 512
    was = telemetry.reset()
    assert (was.launches, was.syncs, was.bytes_allocated, was.streams) == (10, 3, 512, 4)
    now = telemetry.snapshot()
    assert (now.launches, now.syncs, now.bytes_allocated, now.streams, telemetry.launches) == (0, 0, 512, 4, 0)
    record.count()
    assert telemetry.snapshot().launches == 2


def test_what_a_record_counts_in_the_midst_of_a_reset_is_in_the_next(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    record = telemetry.record(elements_launched=3)
    record.count()
    fold = telemetry._fold

    def interrupted() -> None:
        monkeypatch.undo()
        record.count()
        fold()

    monkeypatch.setattr(Telemetry, "_fold", lambda self: interrupted())
    assert telemetry.reset().elements_launched == 3
    assert telemetry.reset().elements_launched == 3
    assert telemetry.reset().elements_launched == 0


def test_reset_while_threads_add_loses_nothing(telemetry: Telemetry) -> None:
    turns, threads = 20_000, 4
    taken: list[Snapshot] = []
    done = threading.Event()

    def add() -> None:
        record = telemetry.record(elements_launched=3)
        for turn in range(turns):
            while turn == turns // 2 and len(taken) < 3:  # a busy machine may not have let the other thread run until now
                time.sleep(0.001)
            telemetry.launches += 1
            record.count()
            if turn % 100 == 0:
                telemetry.record(syncs=1).count()

    def reset() -> None:
        while not done.is_set():
            taken.append(telemetry.reset())

    adders, resetter = [threading.Thread(target=add) for _ in range(threads)], threading.Thread(target=reset)
    for thread in (*adders, resetter):
        thread.start()
    for thread in adders:
        thread.join()
    done.set()
    resetter.join()
    gc.collect()
    taken.append(telemetry.reset())
    assert len(taken) > 3
    assert sum(s.launches for s in taken) == turns * threads
    assert sum(s.elements_launched for s in taken) == 3 * turns * threads
    assert sum(s.syncs for s in taken) == turns // 100 * threads


# ---- Prometheus


def parsed(text: str) -> tuple[dict[str, tuple[str, str]], dict[tuple[str, tuple[tuple[str, str], ...]], float]]:
    """Heads (type, help) and samples of the text exposition format, by a reader that shares nothing with the writer."""
    assert text.endswith("\n")
    heads: dict[str, tuple[str, str]] = {}
    helps: dict[str, str] = {}
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, text_ = line.split(" ", 3)
            assert name not in helps
            helps[name] = re.sub(r"\\(.)", lambda m: {"n": "\n", "\\": "\\"}[m[1]], text_)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name in helps and name not in heads
            heads[name] = kind, helps[name]
        else:
            found = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)", line)
            assert found is not None and found[1] in heads, line
            pairs = re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)', found[2] or "")
            labels = tuple((name, re.sub(r"\\(.)", lambda m: {"n": "\n", "\\": "\\", '"': '"'}[m[1]], value)) for name, value in pairs)
            assert (found[1], labels) not in samples
            samples[found[1], labels] = float(found[3])
    return heads, samples


def test_prometheus_reads_every_figure(telemetry: Telemetry) -> None:
    for number, name in enumerate(STORED):
        setattr(telemetry, name, 1000 + number)
    telemetry.device_ns = 1_500_000_000
    taken = telemetry.snapshot()
    heads, samples = parsed(taken.to_prometheus())
    assert list(heads) == [prometheus_name(name) for name in METRICS] and len(heads) == len(METRICS)
    for name, row in METRICS.items():
        full = prometheus_name(name)
        assert heads[full] == (row.kind, row.doc)
        assert full.endswith("_total") == (row.kind == "counter") and not full.removesuffix("_total").endswith("_ns")
        assert row.unit == "count" or full.removesuffix("_total").endswith({"bytes": "_bytes", "ns": "_seconds", "ratio": "_ratio"}[row.unit])
        value = taken[name] / 1e9 if row.unit == "ns" else taken[name]
        assert math.isclose(samples[full, (("device", "cuda:3"),)], value, rel_tol=1e-15)
    assert samples["vyre_device_seconds_total", (("device", "cuda:3"),)] == 1.5
    assert prometheus_name("bytes_uploaded") == "vyre_uploaded_bytes_total" and prometheus_name("bytes_allocated") == "vyre_allocated_bytes"


@pytest.mark.parametrize("value", ["plain", 'a "b" c', "back\\slash", "two\nlines", "\\n", 'x="1",y="2"}', "naïve 🎉", ""])
def test_labels_are_escaped(value: str, telemetry: Telemetry) -> None:
    telemetry.launches = 3
    text = telemetry.snapshot().to_prometheus("my:app", {"device": value, "_job": "x"})
    assert parsed(text)[1]["my:app_launches_total", (("device", value), ("_job", "x"))] == 3


def test_several_devices_are_one_text(telemetry: Telemetry) -> None:
    telemetry.launches = 3
    other = Telemetry("cpu:0")
    text = vp.prometheus_text([(telemetry.snapshot(), {"device": "a"}), (other.snapshot(), {"device": "b"})], "x")
    samples = parsed(text)[1]
    assert samples["x_launches_total", (("device", "a"),)] == 3 and samples["x_launches_total", (("device", "b"),)] == 0
    assert parsed(telemetry.snapshot().to_prometheus(labels={}))[1]["vyre_launches_total", ()] == 3


@pytest.mark.parametrize("labels", [{"1st": "x"}, {"a-b": "x"}, {"": "x"}, {"__name__": "x"}, {"a": 1}, {1: "x"}, "device", [("a", "b")], {"é": "x"}])
def test_labels_that_prometheus_refuses(labels: typing.Any, telemetry: Telemetry) -> None:
    with pytest.raises(vp.BindingError, match="label"):
        telemetry.snapshot().to_prometheus(labels=labels)


@pytest.mark.parametrize("prefix", ["", "9", "a b", "é", "a\n", None])
def test_prefixes_that_prometheus_refuses(prefix: typing.Any, telemetry: Telemetry) -> None:
    with pytest.raises(vp.BindingError, match="prefix"):
        telemetry.snapshot().to_prometheus(prefix)


# ---- devices


def test_a_device_counts_what_it_does(device: Device) -> None:
    pipeline = device.compile_native(AXPY)
    before = device.telemetry.snapshot()
    x, y = device.upload(np.ones(300, np.float32)), device.upload(np.ones(300, np.float32))
    launch = pipeline.bind({"x": x, "y": y, "a": 2.0})
    threads = math.prod(launch.plan.grid) * math.prod(launch.plan.step.workgroup)
    for _ in range(5):
        launch()
    y.read()
    pipeline.dispatch({"x": x, "y": y, "a": 2.0})
    counted = device.telemetry.snapshot() - before
    assert counted.launches == 6 and counted.dispatches == 1, str(counted)
    assert counted.elements_launched == 6 * 300 and counted.threads_scheduled == 6 * threads and threads >= 300, str(counted)
    assert counted.parameter_bytes == 6 * len(launch.plan.block), str(counted)
    assert counted.uploads == 2 and counted.bytes_uploaded == 2400 and counted.downloads == 1 and counted.bytes_downloaded == 1200, str(counted)
    assert counted.syncs >= 2 and counted.pipelines >= 1 and counted.compiles == 0 and counted.device == device.name, str(counted)
    assert 0.0 <= counted.occupancy <= 1.0, str(counted)
    del launch
    gc.collect()
    assert (device.telemetry.snapshot() - before).elements_launched == 6 * 300


def test_a_grid_beyond_the_program_asks_for_what_lies_within_it(device: Device) -> None:
    pipeline = device.compile_native(AXPY)
    arguments = {"x": np.ones(300, np.float32), "y": np.ones(300, np.float32), "a": 2.0}
    (width, _, _) = pipeline.part.steps[0].workgroup
    for groups, asked in ((1, min(300, width)), (7, 300)):
        before = device.telemetry.snapshot()
        pipeline.dispatch(arguments, config=vp.DispatchConfig(grid=(groups, 1, 1)))
        counted = device.telemetry.snapshot() - before
        assert counted.elements_launched == asked and counted.threads_scheduled == groups * width, str(counted)


def test_an_empty_launch_counts_nothing(device: Device) -> None:
    pipeline = device.compile_native(AXPY)
    before = device.telemetry.snapshot()
    pipeline.dispatch({"x": np.ones(0, np.float32), "y": np.ones(0, np.float32), "a": 2.0})
    counted = device.telemetry.snapshot() - before
    assert counted.launches == counted.threads_scheduled == counted.elements_launched == counted.bytes_uploaded == 0


def test_pools_and_streams_of_a_gpu_are_read() -> None:
    device = open_device("cuda")
    device.compile_native(AXPY).dispatch({"x": np.ones(300, np.float32), "y": np.ones(300, np.float32), "a": 2.0})
    taken = device.telemetry.snapshot()
    assert 2 <= taken.streams - taken.streams_idle <= taken.streams <= 128 and 0 <= taken.events_idle <= taken.events <= 128, str(taken)
    assert taken.device_pool_hits + taken.device_pool_misses > 0 and taken.device_pool_bytes_asked > 0, str(taken)
    assert taken.device_pool_held_bytes >= taken.device_pool_cached_bytes >= 0, str(taken)
    assert taken.pinned_pool_held_bytes >= taken.pinned_pool_cached_bytes >= 0, str(taken)
    assert 0.0 < taken.occupancy <= 1.0, str(taken)
