"""On an NVIDIA GPU: persistent, dependent and interruptible kernels, and clusters."""

from __future__ import annotations

import time

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ir.language.types import u32
from vyre_py.ir.text.parser import parse

INTERRUPTIBLE = vp.CompileOptions(interruptible=True)
PERSISTENT = vp.CompileOptions(persistent=True)
BOTH = vp.CompileOptions(interruptible=True, persistent=True)
OPTIONS = pytest.mark.parametrize("options", [INTERRUPTIBLE, PERSISTENT, BOTH], ids=["interruptible", "persistent", "both"])


@pytest.fixture(scope="module")
def gpu() -> Device:
    return open_device("cuda")


def since_hopper(gpu: Device) -> None:
    if int(gpu.target.arch.strip("smaf_")) < 90:
        pytest.skip(f"{gpu.name} is before sm_90")


# ---------------------------------------------------------------- the same results

REVERSE = """program reverse(n) workgroup(128) {
  workgroup tile: u32[128]
  buffer x: u32[n] read
  buffer y: u32[n] write
  let i = global_id.x
  let l = local_index
  let dirty = tile[127 - l]
  barrier
  tile[l] = x[i]
  barrier
  y[i] = tile[127 - l] + dirty
}"""
PLACES = """program places(n, m, k) workgroup(8, 4, 2) over(n, m, k) {
  buffer y: u32[k, m, n, 3] write
  buffer count: u32[1] read_write
  let x = global_id.x
  let y0 = global_id.y
  let z = global_id.z
  if x >= n || y0 >= m || z >= k { return }
  if (x + y0 + z) % 5 == 0 { return }
  y[z, y0, x, 0] = workgroup_id.x + workgroup_id.y * 1000 + workgroup_id.z * 1000000
  y[z, y0, x, 1] = num_workgroups.x + num_workgroups.y * 1000 + num_workgroups.z * 1000000
  y[z, y0, x, 2] = x + y0 * n + z * n * m
  atomic_add(count[0], 1)
}"""
SUMS = """program sums(n, groups) workgroup(256) over(groups * 256) {
  buffer x: u32[n] read
  buffer total: u32[groups] write
  workgroup partial: u32[256]
  var a: u32 = 0
  for i in global_id.x..n step 1 {
    if (i - global_id.x) % (groups * 256) == 0 { a = a + x[i] }
    if i - global_id.x > groups * 256 * 3 { break }
  }
  partial[local_index] = a
  barrier
  for s in 0u32..8 {
    let half = 128u32 >> s
    let more = partial[local_index + half]
    barrier
    if local_index < half { partial[local_index] = partial[local_index] + more }
    barrier
  }
  if local_index == 0 { total[workgroup_id.x] = partial[0] }
}"""


@OPTIONS
@pytest.mark.parametrize("count", [1, 127, 128, 5000, 1 << 20, (1 << 24) + 77])
def test_workgroup_memory_is_clear_for_each_workgroup(gpu, options, count):
    x = np.arange(count, dtype=np.uint32) * 2654435761
    got = gpu.compile_native(parse(REVERSE), options).dispatch({"x": x})["y"]
    padded = np.zeros(-(-count // 128) * 128, np.uint32)
    padded[:count] = x
    want = padded.reshape(-1, 128)[:, ::-1].reshape(-1)[:count]
    assert (got == want).all(), f"{np.flatnonzero(got != want)[:10]} of {count}"


@OPTIONS
@pytest.mark.parametrize("size", [(1, 1, 1), (9, 5, 3), (64, 64, 64), (300, 200, 100), (3, 5, 3000), (2000, 1, 500)], ids=str)
def test_places_in_grids_of_three_axes(gpu, options, size):
    n, m, k = size
    got = gpu.compile_native(parse(PLACES), options).dispatch({"y": np.zeros((k, m, n, 3), np.uint32), "count": np.zeros(1, np.uint32)}, n=n, m=m, k=k)
    z, y, x = np.indices((k, m, n), np.uint32)
    on = (x + y + z) % 5 != 0
    groups = (-(-n // 8), -(-m // 4), -(-k // 2))
    assert got["count"][0] == on.sum()
    assert (got["y"][..., 0] == np.where(on, x // 8 + y // 4 * 1000 + z // 2 * 1000000, 0)).all(), "workgroup_id"
    assert (got["y"][..., 1] == np.where(on, groups[0] + groups[1] * 1000 + groups[2] * 1000000, 0)).all(), "num_workgroups"
    assert (got["y"][..., 2] == np.where(on, x + y * n + z * n * m, 0)).all(), "global_id"


@OPTIONS
@pytest.mark.parametrize("groups", [1, 3, 700])
def test_barriers_and_loops(gpu, options, groups):
    plain = gpu.compile_native(parse(SUMS))
    x = np.random.default_rng(groups).integers(0, 1 << 20, groups * 700, dtype=np.uint32)
    want = plain.dispatch({"x": x, "groups": groups})["total"]
    got = gpu.compile_native(parse(SUMS), options).dispatch({"x": x, "groups": groups})["total"]
    assert want.any() and (got == want).all()


LOOPS = """program loops(n) workgroup(64) {
  param turns: u32
  buffer y: u32[n] write
  let i = global_id.x
  var a: u32 = i
  for j in 0u32..turns { a = a * 1664525 + 1013904223 }
  var k: u32 = 0
  loop {
    if k >= turns / 2 || a == 77 { break }
    k = k + 1
    if a % 3 == 1 { a = a * 5 + k; continue }
    for j in 0u32..(i % 7) { a = a * 3 + j }
  }
  loop {
    a = a * 22695477 + 1
    k = k + 1
    if k >= turns { break }
  }
  y[i] = a
}"""


@OPTIONS
@pytest.mark.parametrize("turns", [0, 1, 100, 70_000, 400_000])
def test_loops_of_many_turns(gpu, options, turns):
    """More turns than a strip has, and more time than between two looks."""
    want = gpu.compile_native(parse(LOOPS)).dispatch({"turns": turns}, n=3000)["y"]
    got = gpu.compile_native(parse(LOOPS), options).dispatch({"turns": turns}, n=3000)["y"]
    assert (got == want).all()


def test_persistent_launches_are_bound_and_set(gpu):
    text = "program p(n) workgroup(64) { param a: u32\n buffer y: u32[n] read_write\n y[global_id.x] = y[global_id.x] + a }"
    pipeline = gpu.compile_native(parse(text), PERSISTENT)
    y = gpu.upload(np.zeros(1 << 22, np.uint32))
    launch = pipeline.bind({"y": y, "a": 1})
    for a in (1, 2, 3):
        launch.set(a=a)
        launch()
    assert (y.read() == 6).all()
    small = pipeline.dispatch({"y": np.zeros(3, np.uint32), "a": 7}, config=vp.DispatchConfig(grid=(1, 1, 1)))["y"]
    assert small.tolist() == [7, 7, 7]
    assert pipeline.dispatch({"y": np.zeros(0, np.uint32), "a": 7})["y"].size == 0


def test_persistent_kernels_are_called_by_native_code(gpu):
    text = "program p(n) workgroup(64) { param a: u32\n buffer y: u32[n] read_write\n y[global_id.x] = y[global_id.x] + a }"
    entry, y = gpu.compile_native(parse(text), PERSISTENT).callable(), gpu.upload(np.zeros(1 << 22, np.uint32))
    assert not entry.explain(a=3, y=y)
    entry(a=3, y=y)
    assert (y.read() == 3).all()


# ---------------------------------------------------------------- programmatic dependent launch


@pytest.mark.parametrize("options", [vp.CompileOptions(dependent=True), vp.CompileOptions(dependent=True, persistent=True)], ids=["plain", "persistent"])
@pytest.mark.parametrize("count", [100, 1 << 20])
def test_a_chain_of_dependent_launches(gpu, options, count):
    """Each reads, at another place, what the one before has written, by another workgroup."""
    since_hopper(gpu)
    text = """program step(n) workgroup(256) {
  buffer x: u32[n] read
  buffer y: u32[n] write
  workgroup w: u32[256]
  let i = global_id.x
  w[local_index] = x[(i + 4099) % n] * 3 + 1
  barrier
  y[i] = w[local_index] + x[(i * 7) % n]
}"""
    pipeline = gpu.compile_native(parse(text), options)
    start = np.arange(count, dtype=np.uint32)
    buffers = [gpu.upload(start), gpu.allocate(count, u32)]
    launches = [pipeline.bind({"x": buffers[k], "y": buffers[1 - k]}) for k in (0, 1)]
    want, i = start, np.arange(count, dtype=np.uint32)
    ahead, across = (i.astype(np.uint64) + 4099) % count, (i * np.uint32(7)) % np.uint32(count)
    for _ in range(3):
        for k in range(100):
            launches[k % 2]()
        for _ in range(100):
            want = want[ahead] * np.uint32(3) + np.uint32(1) + want[across]
        got = buffers[0].read()
        assert (got == want).all(), f"{(got != want).sum()} of {count} differ"


def test_dependent_and_plain_launches_mix(gpu):
    since_hopper(gpu)
    text = "program p(n) workgroup(64) { buffer x: u32[n] read_write\n x[global_id.x] = x[global_id.x] * 3 + 1 }"
    count = 1 << 20
    x = gpu.upload(np.arange(count, dtype=np.uint32))
    launches = [gpu.compile_native(parse(text), options).bind({"x": x}) for options in (vp.CompileOptions(dependent=True), None)]
    want = np.arange(count, dtype=np.uint32)
    for k in (0, 0, 1, 0, 1, 1, 0, 0, 0, 1):
        launches[k]()
        want = want * np.uint32(3) + np.uint32(1)
    assert (x.read() == want).all()


# ---------------------------------------------------------------- clusters


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (4, 2, 1), (2, 2, 2)], ids=str)
def test_clusters(gpu, cluster):
    since_hopper(gpu)
    n, m, k = 64, 32, 16
    pipeline = gpu.compile_native(parse(PLACES))
    arguments = {"y": np.zeros((k, m, n, 3), np.uint32), "count": np.zeros(1, np.uint32), "n": n, "m": m, "k": k}
    want = pipeline.dispatch(arguments)
    got = pipeline.dispatch(arguments, config=vp.DispatchConfig(cluster=cluster))
    assert (got["y"] == want["y"]).all() and got["count"] == want["count"] > 0


def test_clusters_that_do_not_fit(gpu):
    since_hopper(gpu)
    pipeline = gpu.compile_native(parse(REVERSE))
    x = np.zeros(128 * 9, np.uint32)
    for cluster, words in (((2, 1, 1), "9 workgroups along x"), ((9, 1, 1), "the most")):
        with pytest.raises(vp.BindingError, match=words):
            pipeline.dispatch({"x": x}, config=vp.DispatchConfig(cluster=cluster))
    assert not pipeline.dispatch({"x": x}, config=vp.DispatchConfig(cluster=(3, 1, 1)))["y"].any()


# ---------------------------------------------------------------- endless kernels

TIMEOUT = 0.3
# What a busy machine may add: ten times what is promised.
LATE = 2.0

HEAD = """program endless(n) workgroup(128) over(n) {{
  param zero: u32
  param ten: u32
  buffer out: u32[4] read_write
  buffer more: u32[n] read_write
  workgroup w: u32[128]
  var x: u32 = global_id.x
  {body}
  more[global_id.x] = x
}}"""
ENDLESS = {
    "empty": "loop { }",
    "loop": "loop { x = x * 3 + 1; if x == 0x12345678u32 && ten == 11 { break } }",
    "constant for": "loop { for k in 0u32..10 { x = x * 3 + k } }",
    "for": "loop { for k in 0u32..ten { x = x * 3 + k } }",
    "for of no turns": "loop { for k in 0u32..zero { x = x * 3 + k } }",
    "loop left at once": "loop { loop { x = x + 1; break } }",
    "loop of a few turns": "loop { var k: u32 = 0; loop { k = k + 1; x = x * 5 + k; if k > 3 { break } } }",
    "three deep": "loop { for i in 0u32..ten { for j in 0u32..zero { x = x + j }; if i == 5 { continue }; for j in 0u32..ten { x = x * 7 + j } } }",
    "long for": "for i in 0u32..4294967295 { for j in 0u32..4294967295 { for k in 0u32..4294967295 { x = x * 5 + k + zero } } }",
    "division": "loop { for k in 0u32..4294967295 { x = x / (k | 1) + cast(cast(x, u64) / (cast(k, u64) + 3u64), u32) } }",
    "scattered memory": "loop { x = x * 1664525 + 1013904223; x = x + more[(x >> 8) % n]; more[x % n] = x }",
    "one address": "loop { x = x + atomic_add(out[1], 1) }",
    "workgroup memory": "loop { w[(x * 32) % 128] = x; x = x + w[(x * 32 + 32) % 128] }",
    "barrier": "loop { w[local_index] = x; barrier; x = x + w[127 - local_index]; barrier }",
    "barrier in a for": "loop { for k in 0u32..ten { w[local_index] = x; barrier; x = x + w[(local_index + k) % 128]; barrier } }",
    "one of many": "if local_index == 5 { loop { x = x * 3 + 1 } } else { for k in 0u32..ten { x = x + k } }",
    "one workgroup": "if workgroup_id.x == 1 { loop { x = x * 3 + 1 } }",
}
# One workgroup, as many as the device holds, and far more: those that have yet to begin must not each take their time.
SIZES = {"a workgroup": 128, "all of the device": 1 << 19, "many": 1 << 26}


def interrupted(gpu: Device, body: str, size: int, options: vp.CompileOptions) -> float:
    """Seconds that a dispatch of an endless kernel took over its timeout."""
    pipeline = gpu.compile_native(parse(HEAD.format(body=body)), options)
    more = gpu.allocate(size, u32)
    arguments = {"zero": 0, "ten": 10, "out": np.zeros(4, np.uint32), "more": more}
    begin = time.monotonic()
    with pytest.raises(vp.DispatchTimeout):
        pipeline.dispatch(arguments, config=vp.DispatchConfig(timeout=TIMEOUT))
    taken = time.monotonic() - begin - TIMEOUT
    more.free()
    return taken


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ENDLESS)
def test_endless_kernels_end(gpu, name, size):
    if name == "one workgroup" and size == "a workgroup":
        pytest.skip("there is only workgroup 0")
    late = interrupted(gpu, ENDLESS[name], SIZES[size], INTERRUPTIBLE)
    print(f"{name}, {size}: {late * 1000:.1f} ms after its timeout")
    assert late < LATE, f"{late:.3f} s"
    x = np.arange(5000, dtype=np.uint32)
    assert gpu.compile_native(parse(REVERSE)).dispatch({"x": x})["y"][0] == 127, "the device is good for another Program"


@pytest.mark.parametrize("name", ["loop", "for of no turns", "barrier", "three deep"])
@pytest.mark.parametrize("size", ["all of the device", "many"])
def test_endless_persistent_kernels_end(gpu, name, size):
    assert interrupted(gpu, ENDLESS[name], SIZES[size], BOTH) < LATE


def test_long_walks_end(gpu):
    """Nothing in it loops but the walk through the workgroups."""
    text = "program p(n) workgroup(32) grid(134000000, 60000, 1) { buffer y: u32[n] read_write\n y[global_id.x % n] = global_id.y }"
    pipeline = gpu.compile_native(parse(text), BOTH)
    y = gpu.allocate(1 << 16, u32)
    begin = time.monotonic()
    with pytest.raises(vp.DispatchTimeout):
        pipeline.dispatch({"y": y}, config=vp.DispatchConfig(timeout=TIMEOUT))
    assert time.monotonic() - begin < TIMEOUT + LATE


def test_a_kernel_that_ends_in_time_gives_its_results(gpu):
    x = np.arange(1 << 16, dtype=np.uint32)
    pipeline = gpu.compile_native(parse(REVERSE), INTERRUPTIBLE)
    for _ in range(5):
        got = pipeline.dispatch({"x": x}, config=vp.DispatchConfig(timeout=5.0))["y"]
        assert (got.reshape(-1, 128) == x.reshape(-1, 128)[:, ::-1]).all()


def test_the_same_pipeline_goes_on_after_a_timeout(gpu):
    text = "program p(n) workgroup(64) { param stop: bool\n buffer y: u32[n] read_write\n let i = global_id.x\n loop { y[i] = y[i] + 1\n if stop { break } } }"
    pipeline = gpu.compile_native(parse(text), INTERRUPTIBLE)
    for _ in range(3):
        with pytest.raises(vp.DispatchTimeout):
            pipeline.dispatch({"y": np.zeros(1 << 20, np.uint32), "stop": False}, config=vp.DispatchConfig(timeout=0.1))
        got = pipeline.dispatch({"y": np.zeros(1 << 20, np.uint32), "stop": True}, config=vp.DispatchConfig(timeout=5.0))["y"]
        assert (got == 1).all()
