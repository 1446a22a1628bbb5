"""What only some adapters have: 64-bit integers, atomics on them, atomic sums of f32. With them and without, the same results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

from vyre_py.drivers.device import Device
from vyre_py.drivers.wgpu import device as module
from vyre_py.drivers.wgpu import open_device as open_own
from vyre_py.drivers.wgpu import trials
from vyre_py.drivers.wgpu.library import adapters
from vyre_py.ir.language.types import Type, i64, u64
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.compile import compile_for, emit_text
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.target import parse_target

MIXED = """program mixed(n) {
  param k: i64
  buffer x: u64[n] read
  buffer y: i64[n] read_write
  let i = global_id.x
  var v: i64 = y[i]
  for j in 0u32..3 { v = v * k + cast(popcount(x[i]) ^ mul_hi(x[i], x[i]), i64) }
  y[i] = v / (cast(x[i] >> 60u64, i64) - 7i64) ^ cast(cast(v, f32), i64)
}"""
SUMS = """program sums(n) over(n) {
  buffer x: f32[n] read
  buffer y: f32[4] read_write
  buffer z: f32[4] read_write
  let i = global_id.x
  atomic_add(y[i % 4], x[i])
  atomic_add(z[i % 4], x[i])
  atomic_max(z[i % 4], x[i])
}"""
GROUPS = """program groups(n) workgroup(64) over(n) {{
  buffer x: {t}[n] read
  buffer y: {t}[2] read_write
  workgroup w: {t}[2]
  if local_index < 2 {{ w[local_index] = x[local_index] }}
  barrier
  atomic_{op}(w[local_index % 2], x[global_id.x])
  atomic_{op}(y[global_id.x % 2], x[global_id.x])
  barrier
  if local_index < 2 {{ atomic_{op}(y[local_index], w[local_index]) }}
}}"""


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("wgpu")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """A device whose adapter lacks what some features need."""
    made: list[Any] = []

    def without(*features: str) -> Any:
        for name in features:
            monkeypatch.setitem(module._FEATURES, name, frozenset({"no-such-feature"}))
        made.append(open_own(0))
        return made[-1]

    yield without
    for own in made:
        own.close()


def require(device: Device, feature: str) -> None:
    if not device.target.has(feature):
        assert not getattr(device, "is_software", False), "drivers in software have all of them"
        pytest.skip(f"the adapter has nothing for {feature}")


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("buffer y: u32[n] read_write\n y[global_id.x] = 1", ""),
        ("buffer y: u64[n] read_write\n y[global_id.x] = 1", "i64"),
        ("buffer y: f32[n] read_write\n y[global_id.x] = cast(cast(y[global_id.x], i64) * 3i64, f32)", "i64"),
        ("buffer y: f64[n] read_write\n y[global_id.x] = 1.0", "f64"),
        ("buffer y: u64[n] read_write\n atomic_add(y[global_id.x], 1u64)", "i64 i64atomics"),
        ("buffer y: f32[n] read_write\n atomic_add(y[global_id.x], 1.0f32)", "f32atomics"),
        ("buffer y: f16[n] read_write\n y[global_id.x] = y[global_id.x] * 2.0f16", "f16"),
    ],
)
def test_code_asks_for_no_more_than_a_program_uses(device: Device, text: str, features: str) -> None:
    pipeline = device.compile_native(parse(f"program p(n) {{ {text} }}"))
    assert pipeline.part.target.features == {name for name in features.split() if device.target.has(name)}


def test_the_part_with_most_of_what_is_there_runs(device: Device, opened: Callable[..., Any]) -> None:
    """One artifact of both ways, on devices with the feature and without; the same numbers."""
    require(device, "i64")
    targets = [parse_target("wgsl"), parse_target("wgsl:i64")]
    rng = np.random.default_rng(5)
    given = {"x": rng.integers(0, 1 << 63, 300).astype(np.uint64) * 2, "y": rng.integers(-(1 << 63), (1 << 63) - 1, 300), "k": -(1 << 40) - 3}
    want = open_device("reference").compile_native(parse(MIXED)).dispatch(given)["y"]
    plain = opened("i64", "f64", "i64atomics")
    assert not plain.target.has("i64")
    for order in (targets, targets[::-1]):
        artifact = Artifact.from_bytes(compile_for(parse(MIXED), order).to_bytes())
        for on, name in ((device, "wgsl:i64"), (plain, "wgsl")):
            pipeline = on.load(artifact)
            assert pipeline.part.target.name == name
            np.testing.assert_array_equal(pipeline.dispatch(given)["y"], want)
    with pytest.raises(Unsupported, match="code for wgsl:i64"):
        plain.load(compile_for(parse(MIXED), targets[1:]))


@pytest.mark.parametrize("type_", [i64, u64], ids=str)
def test_atomics_on_64_bits(device: Device, type_: Type) -> None:
    """In buffers and in workgroups' memory; those whose result no order decides."""
    require(device, "i64atomics")
    reference = open_device("reference")
    x = np.random.default_rng(7).integers(type_.minimum, type_.maximum, 64, type_.dtype)
    for op in ("add", "sub", "min", "max", "and", "or", "xor"):
        program = parse(GROUPS.format(t=type_, op=op))
        given = {"x": x, "y": x[:2].copy()}
        got, want = (d.compile_native(program).dispatch(given)["y"] for d in (device, reference))
        np.testing.assert_array_equal(got, want, err_msg=op)
    with pytest.raises(Unsupported, match=f"atomic add on {type_}"):
        emit_text(parse(GROUPS.format(t=type_, op="add")), "wgsl:i64")


@pytest.mark.parametrize("type_", [i64, u64], ids=str)
def test_exchanges_of_64_bits(device: Device, type_: Type) -> None:
    """A lock by compare and exchange, nand, and an exchange that every invocation sees once."""
    require(device, "i64atomics")
    program = parse(f"""program p(n) workgroup(64) over(n) {{
  buffer y: {type_}[4] read_write
  buffer seen: {type_}[n] write
  let i = global_id.x
  seen[i] = atomic_exchange(y[0u32], cast(i, {type_}) + 1{type_})
  atomic_nand(y[1u32], y[3u32])
  if i == 5 {{ atomic_compare_exchange(y[2u32], 77{type_}, 78{type_}) }}
  if i == 6 {{ atomic_compare_exchange(y[3u32], 1{type_}, 0{type_}) }}
}}""")
    y = np.array([0, 0b1100, 77, -6 if type_ is i64 else (1 << 64) - 6], type_.dtype)
    got = device.compile_native(program).dispatch(y=y, seen=np.zeros(128, type_.dtype))
    assert sorted([*got["seen"], got["y"][0]]) == list(range(129))
    assert (got["y"][2], got["y"][3]) == (78, y[3])
    want = y[1]
    for _ in range(128):
        want = ~(want & y[3])
    assert got["y"][1] == want


def test_atomic_sums_of_f32(device: Device, opened: Callable[..., Any]) -> None:
    """By the adapter's own where a buffer is only added to; what it lacks is a loop. Whole numbers, whose sums no order changes."""
    require(device, "f32atomics")
    text = emit_text(parse(SUMS), "wgsl:f32atomics")
    assert "b1: array<atomic<f32>>" in text and "b2: array<atomic<u32>>" in text
    assert "atomic<f32>" not in emit_text(parse(SUMS), "wgsl") + emit_text(parse(GROUPS.format(t="f32", op="max")), "wgsl:f32atomics")
    x = np.random.default_rng(9).integers(-50, 50, 5000).astype(np.float32)
    given: dict[str, Any] = {"x": x, "y": np.ones(4, np.float32), "z": np.zeros(4, np.float32)}
    plain = opened("f32atomics")
    for on, has in ((device, True), (plain, False)):
        pipeline = on.compile_native(parse(SUMS))
        assert pipeline.part.target.has("f32atomics") is has
        np.testing.assert_array_equal(pipeline.dispatch(given)["y"], [1 + x[k::4].sum() for k in range(4)])
    summed = parse(GROUPS.format(t="f32", op="add"))
    got, want = (d.compile_native(summed).dispatch(x=x[:256], y=np.zeros(2, np.float32))["y"] for d in (device, open_device("reference")))
    np.testing.assert_array_equal(got, want)


def test_tables_params_and_private_arrays_of_64_bits(device: Device) -> None:
    """Where words of memory become numbers of 64 bits, and where one lane tells its subgroup."""
    program = parse("""program p(n) workgroup(64) over(n) {
  param k: u64
  table t: i64[3] = [-9223372036854775808, 5, 9223372036854775807]
  buffer y: i64[n] read_write
  buffer w: u64[1] read
  private a: u64[4]
  workgroup s: i64[64]
  let i = global_id.x
  a[i % 4] = k + w[0u32]
  s[local_index] = t[i % 3]
  barrier
  y[i] = y[i] ^ s[63 - local_index] ^ cast(a[i % 4] + a[(i + 1) % 4], i64) ^ cast(uniform_load(w[0u32]), i64)
}""")
    given = {"k": (1 << 64) - 5, "y": np.arange(-100, 100, dtype=np.int64) << 33, "w": np.array([1 << 63], np.uint64)}
    want = open_device("reference").compile_native(program).dispatch(given)["y"]
    np.testing.assert_array_equal(device.compile_native(program).dispatch(given)["y"], want)
    plain = device.load(compile_for(program, [parse_target("wgsl")]))
    np.testing.assert_array_equal(plain.dispatch(given)["y"], want)


HALVES = """program halves(n) workgroup(64) {
  param k: f16
  buffer x: f16[n] read
  buffer y: f16[n] read_write
  buffer z: f16[n] write
  let i = global_id.x
  let v = x[i]
  y[i] = fma(y[i], k, v) + sqrt(abs(v))
  if i % 2 == 1 { z[i] = cast(cast(v, f32) * 3.0f32, f16) } else { z[i] = 1.5f16 }
}"""
MOVED = """program moved(n) {
  buffer x: f16[n] read
  buffer y: f16[n] write
  y[global_id.x] = x[global_id.x]
}"""


def test_halves_round_as_the_language_does(device: Device, opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every f16, subnormal ones, infinities and NaNs too, by the device's own conversions and by integers; an odd number of them, from the middle of words."""
    require(device, "f16")
    patterns = np.arange(1 << 16, dtype=np.uint16)
    x, y = patterns[1:].view(np.float16), patterns[:0:-1].copy().view(np.float16)
    reference = open_device("reference").compile_native(parse(HALVES))
    want = reference.dispatch(x=x, y=y, k=1.5)
    monkeypatch.setattr(trials, "_known", {(trials.HALVES, found): 0 for found in adapters()})
    plain = opened()
    assert not plain.target.has("f16")
    for on in (device, plain):
        pipeline = on.compile_native(parse(HALVES))
        assert pipeline.part.target.has("f16") is (on is device)
        held = {name: on.upload(np.concatenate([values[:1], values])) for name, values in (("x", x), ("y", y), ("z", y))}
        pipeline.bind({name: buffer[1:] for name, buffer in held.items()} | {"k": 1.5})()
        for name in "yz":
            got = on.download(held[name])[1:]
            nans = np.isnan(want[name])
            np.testing.assert_array_equal(np.isnan(got), nans)
            np.testing.assert_array_equal(got[~nans].view(np.uint16), want[name][~nans].view(np.uint16))
    text = emit_text(parse(HALVES), "wgsl:f16")
    assert "b1: array<f16>" in text and "atomic" not in text and "atomic" in emit_text(parse(HALVES), "wgsl")


def test_moved_halves_keep_their_bits(device: Device) -> None:
    """NaNs with their payloads: such buffers are words."""
    x = np.arange(1 << 16, dtype=np.uint16)
    got = device.compile_native(parse(MOVED)).dispatch(x=x.view(np.float16))["y"]
    np.testing.assert_array_equal(got.view(np.uint16), x)
    assert "array<f16>" not in emit_text(parse(MOVED), "wgsl:f16")


@pytest.mark.parametrize("flaw", ["toward zero", "flushed", "wraps", "refused"])
def test_conversions_of_another_meaning_are_not_used(device: Device, flaw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device might do, in the place of what this one does."""
    require(device, "f16")
    right = trials._converted(device.package, device.gpu)  # type: ignore[attr-defined]  # WebGPU's
    assert trials._are_exact(right)

    def found(package: Any, gpu: Any) -> Any:
        made = right.copy()
        match flaw:
            case "toward zero":
                made[2, 2] -= 1
            case "flushed":
                made[1:1024, 1] = 0
            case "wraps":
                made[0xFBFF, 3] = 0xFBFF
            case "refused":
                raise RuntimeError("no f16 in buffers")
        return made

    monkeypatch.setattr(trials, "_known", {})
    monkeypatch.setattr(trials, "_converted", found)
    own = open_own(0)
    assert not own.target.has("f16")  # type: ignore[attr-defined]  # WebGPU's
    own.close()
