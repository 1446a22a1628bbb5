"""Subgroups on WebGPU: by its built-ins where the device's subgroups are the Program's, through workgroup memory elsewhere. Both mean what the interpreter
does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device
from generator import WHOLE_TYPES, Seeded, generate
from test_generated import assert_agrees

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.drivers.wgpu import device as device_module
from vyre_py.drivers.wgpu import open_device as open_own
from vyre_py.drivers.wgpu import trials
from vyre_py.ir.language.ops import SUBGROUPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import SCALARS, Type, bool_, f64
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.compile import compile_for, emit_text
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.target import SUBGROUP_SIZES, Target, parse_target, wgsl_target
from vyre_py.lowering.wgsl.subgroups import has_builtins

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(scope="module")
def device() -> Device:
    made = open_device("wgpu")
    if not made.target.subgroup:
        assert not getattr(made, "is_software", False), "processors in software have subgroups of one size"
        pytest.skip("the device's subgroups are not known to be neighbours")
    return made


def without(target: Target) -> Target:
    """The target without built-ins."""
    return wgsl_target(name for name in target.features if not name.startswith("subgroup"))


def all_ops(type_: Type, lanes_: int) -> Program:
    """Each op over a type, in workgroups of several subgroups; shuffles by numbers that are known, vary, and lead outside."""
    moves = [f"subgroup_{name}({{x}}, {by})" for name in ("shuffle", "shuffle_xor", "shuffle_up", "shuffle_down") for by in ("j", "0", "1", lanes_ - 1, lanes_)]
    moves += [f"subgroup_broadcast({{x}}, {by})" for by in ("k", "2", lanes_)]
    given = [m.format(x="v") for m in moves]
    given += [f"subgroup_{name}(v)" for name, row in SUBGROUPS.items() if row.fold and type_ in row.of]
    masks = [f"subgroup_{name}({'v' if type_ in SUBGROUPS[name].of else 'j < 3'})" for name in ("ballot", "match")]
    masks += [f"cast(subgroup_{name}(j {test}), u32)" for name in ("all", "any") for test in ("< 3", "> 900")]
    lines = [f"y[i, {k}u32] = {text}" for k, text in enumerate(given)] + [f"z[i, {k}u32] = {text}" for k, text in enumerate(masks)]
    body = "\n  ".join(lines)
    return parse(f"""program all_ops(n) workgroup(64) subgroup({lanes_}) over(n) {{
  buffer x: {type_}[n] read
  buffer by: u32[n] read
  buffer y: {type_}[n, {len(given)}] write
  buffer z: u32[n, {len(masks)}] write
  let i = global_id.x
  let v = x[i]
  let j = by[i]
  let k = subgroup_broadcast(j, 1)
  {body}
}}""")


def some(type_: Type, n: int) -> Array:
    """Small numbers, whose sums round where they are floats of no more than 32 bits."""
    rng = np.random.default_rng(type_.size_bytes)
    if type_ is bool_:
        return rng.integers(0, 2, n).astype(np.bool_)
    return (rng.random(n) * 1.5 + 0.5 if type_.is_float else rng.integers(0, 100, n)).astype(type_.dtype)


def bits(values: Array) -> Array:
    return values.view(np.dtype(f"u{values.dtype.itemsize}"))


@pytest.mark.parametrize("type_", list(SCALARS.values()), ids=str)
def test_every_op_over_every_type(device: Device, type_: Type) -> None:
    if type_ is f64 and not device.target.has_f64:
        pytest.skip("the device has no f64, which is refused by name")
    n, program = 128 + 17, all_ops(type_, device.target.subgroup)
    given = {"x": some(type_, n), "by": np.random.default_rng(1).integers(0, 2 * device.target.subgroup, n).astype(np.uint32)}
    want = open_device("reference").compile_native(program).dispatch(given)
    got = device.compile_native(program).dispatch(given)
    for name in "yz":
        np.testing.assert_array_equal(bits(got[name]), bits(want[name]), err_msg=str(program))


def test_shuffles_keep_the_bits_of_floats(device: Device) -> None:
    """NaNs with their payloads, infinities and subnormals; of f64 where there is one."""
    size = device.target.subgroup
    for name in ("f32", "f16", "bf16", "f8e4m3", "f8e5m2", *["f64"] * device.target.has_f64):
        type_ = SCALARS[name]
        x = np.random.default_rng(3).integers(0, 256, (64, type_.size_bytes), np.uint8)
        x[::2, -1] |= 0x7F
        program = parse(f"""program p(n) workgroup({size}) subgroup({size}) over(n) {{
  buffer x: {name}[n] read
  buffer y: {name}[n, 2] write
  y[global_id.x, 0u32] = subgroup_shuffle_xor(x[global_id.x], 1)
  y[global_id.x, 1u32] = subgroup_shuffle(x[global_id.x], subgroup_lane ^ 2)
}}""")
        got = bits(device.compile_native(program).dispatch({"x": x.view(type_.dtype)[:, 0]})["y"])
        raw = x.view(f"u{type_.size_bytes}")[:, 0]
        for k, mask in enumerate((1, 2)):
            np.testing.assert_array_equal(got[:, k], raw[np.arange(64) ^ mask], err_msg=name)


@pytest.mark.parametrize("batch", range(2))
def test_generated_programs_agree(device: Device, batch: int) -> None:
    """Also where only subgroups come to an op."""
    made = (generate(Seeded(50_000 + 1000 * batch + k), budget=24, subgroups="apart", types=WHOLE_TYPES, wide_atomics=False) for k in count())
    for case in islice((case for case in made if has_builtins(case.program, device.target)), 5):
        assert_agrees(device, case)


BLOCKS = """program blocks(n) workgroup(64) subgroup({}) over(n) {{
  buffer x: f32[n] read_write
  buffer y: u32[n] write
  let i = global_id.x
  let s = subgroup_reduce_add(x[i])
  if subgroup_any(x[i] > 1.5) {{
    x[i] = subgroup_inclusive_add(x[i]) / s
  }}
  y[i] = subgroup_exclusive_add(i)
}}"""


def together(size: int, workgroup: str = "64") -> Program:
    """The same, but that whole workgroups come to each op."""
    text = BLOCKS.format(size).replace("workgroup(64)", f"workgroup({workgroup})")
    return parse(text.replace("if subgroup_any(x[i] > 1.5)", "if n > 3"))


def texts(device: Device) -> Callable[[], list[str]]:
    """Keeps the code that the driver is given from now on; gives it."""
    seen: list[str] = []
    create = device.gpu.create_shader_module  # type: ignore[attr-defined]  # a WgpuDevice's

    def kept(*, code: str) -> Any:
        seen.append(code)
        return create(code=code)

    device.gpu.create_shader_module = kept  # type: ignore[attr-defined]  # as above
    return lambda: [text for text in seen if "fn main" in text]


def test_the_built_ins_are_what_runs(device: Device) -> None:
    """Both ways of one Program, one beside the other on one device, and in one artifact."""
    both = [without(device.target), device.target]
    program, x = together(device.target.subgroup), some(SCALARS["f32"], 200)
    want = open_device("reference").compile_native(program).dispatch({"x": x})
    for targets in (both, both[::-1], both[:1]):
        own, made = open_own(0), Artifact.from_bytes(compile_for(program, targets).to_bytes())
        seen = texts(own)
        pipeline = own.load(made)
        got = pipeline.dispatch({"x": x})
        np.testing.assert_allclose(got["x"], want["x"], rtol=1e-6)  # a quotient is the device's own
        np.testing.assert_array_equal(got["y"], want["y"])
        assert pipeline.part.target == both[len(targets) - 1]
        (text,) = seen()
        assert ("subgroupShuffleXor" in text) is (len(targets) == 2) is ("workgroupBarrier" not in text)
        own.close()


@pytest.mark.parametrize("gone", ["feature", "size", "lanes", "driver"])
def test_without_built_ins_memory_is_the_way(device: Device, gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the feature is not there, sizes vary, lanes lie in another order, or the driver refuses the kernel that looks."""

    def refused(*_: Any) -> int:
        raise RuntimeError("not this kernel")

    monkeypatch.setattr(trials, "_known", {})
    match gone:
        case "feature":
            monkeypatch.setattr(device_module, "SUBGROUPS", "no-such-feature")
        case "size":
            monkeypatch.setattr(trials, "has_one_size", lambda adapter: False)
        case "lanes":
            monkeypatch.setattr(trials, "_PROBE", trials._PROBE.replace("(lanes, lane,", "(lanes, lane ^ 1u,"))
        case "driver":
            monkeypatch.setattr(trials, "_seen", refused)
    own, size = open_own(0), device.target.subgroup
    assert own.target == without(device.target)
    seen = texts(own)
    program = together(size)
    x = some(SCALARS["f32"], 200)
    got, want = (d.compile_native(program).dispatch({"x": x}) for d in (own, device))
    for name in "xy":
        np.testing.assert_array_equal(bits(got[name]), bits(want[name]))
    assert "workgroupBarrier" in seen()[-1] and "subgroupShuffle" not in seen()[-1]
    with pytest.raises(Unsupported, match="where only a subgroup agrees"):
        own.compile_native(parse(BLOCKS.format(size)))
    with pytest.raises(Unsupported, match=f"code for {device.target}"):
        own.load(compile_for(program, [device.target]))
    own.close()


def test_what_a_subgroup_decides_for_itself(device: Device) -> None:
    program, x = parse(BLOCKS.format(device.target.subgroup)), some(SCALARS["f32"], 200)
    x[: device.target.subgroup] = 1
    got, want = (d.compile_native(program).dispatch({"x": x}) for d in (device, open_device("reference")))
    assert (got["x"][: device.target.subgroup] == 1).all()
    np.testing.assert_allclose(got["x"], want["x"], rtol=1e-6)


def test_which_programs_have_built_ins() -> None:
    """Those of the target's size whose workgroups lie along x."""
    for target, workgroup, size, has in [
        ("wgsl:subgroup32", "64", 32, True), ("wgsl:f64:subgroup32", "64", 32, True), ("wgsl:subgroup32", "32, 2", 32, False),
        ("wgsl:subgroup16", "64", 32, False), ("wgsl:subgroup32", "64", 16, False), ("wgsl", "64", 32, False),
        ("wgsl:subgroup64", "64", 64, True), ("wgsl:subgroup128", "128", 128, True),
    ]:  # fmt: skip
        text = emit_text(together(size, workgroup), target)
        assert ("subgroupAdd" in text or "subgroupExclusiveAdd" in text) is has is ("workgroupBarrier" not in text), target


def test_code_without_subgroups_is_for_every_device(device: Device) -> None:
    size = device.target.subgroup
    for lanes_, target in ((0, "wgsl"), (size // 2, "wgsl"), (size, f"wgsl:subgroup{size}")):
        program = parse(f"program p(n) workgroup(64) {f'subgroup({lanes_})' * (lanes_ > 0)} {{ buffer x: u32[n] read_write\n x[global_id.x] = 1 }}")
        assert device.compile_native(program).part.target.name == target


def test_names_of_targets() -> None:
    for size in SUBGROUP_SIZES:
        for f64_ in (False, True):
            target = wgsl_target([*["f64"] * f64_, f"subgroup{size}"])
            assert parse_target(target.name) == target and (target.subgroup, target.has_f64) == (size, f64_)
    assert parse_target("wgsl").subgroup == parse_target("wgsl:f64").subgroup == parse_target("sm_90").subgroup == 0
    orders = ("wgsl:i64:f64", "wgsl:i64:i64", "wgsl:subgroup4:subgroup8", "wgsl:")
    for name in (*orders, "wgsl:subgroup2", "wgsl:subgroup32:f64", "wgsl:subgroup", "wgsl:subgroup256"):
        with pytest.raises(Unsupported, match="targets are"):
            parse_target(name)


@pytest.mark.parametrize(
    ("info", "one"),
    [
        ({"adapter_type": "CPU", "vendor_id": 0x10005}, True), ({"adapter_type": "DiscreteGPU", "vendor_id": 0x10DE}, True),
        ({"adapter_type": "IntegratedGPU", "vendor_id": 0x8086}, False),
        ({"adapter_type": "DiscreteGPU", "vendor_id": 0x1002, "subgroup_min_size": 32, "subgroup_max_size": 64}, False),
        ({"adapter_type": "DiscreteGPU", "vendor_id": 0x1002, "subgroup_min_size": 64, "subgroup_max_size": 64}, True),
    ],
)  # fmt: skip
def test_adapters_of_one_size(info: dict[str, Any], one: bool) -> None:
    assert trials.has_one_size(SimpleNamespace(info=info)) is one


def test_a_barrier_under_what_a_subgroup_agrees_on(device: Device) -> None:
    """Where it is the whole workgroup."""
    size = device.target.subgroup
    program = parse(f"""program p(n) workgroup({size}) subgroup({size}) over(n) {{
  workgroup t: u32[{size}]
  buffer x: u32[n] read_write
  let i = global_id.x
  if subgroup_any(x[i] == 7) {{
    t[local_index] = x[i]
    barrier
    x[i] = t[{size}u32 - 1 - local_index]
  }}
}}""")
    x = np.arange(8 * size, dtype=np.uint32)
    x[3 * size + 2] = 7
    rows = x.reshape(8, size)
    turned = (rows == 7).any(axis=1)
    assert turned.sum() == 2
    want = np.where(turned[:, None], rows[:, ::-1], rows)
    np.testing.assert_array_equal(device.compile_native(program).dispatch({"x": x})["x"].reshape(8, size), want)


def test_block_primitives(device: Device) -> None:
    with vp.ProgramBuilder("sums", workgroup=64, subgroup=device.target.subgroup) as b:
        n = b.dim("n")
        x, y, z = b.read("x", vp.u32, n), b.write("y", vp.u32, n), b.write("z", vp.u32, n)
        y[b.global_id(0)] = b.workgroup_reduce("add", x[b.global_id(0)])
        z[b.global_id(0)] = b.workgroup_scan("max", x[b.global_id(0)], exclusive=True)
    assert "subgroup" in emit_text(b.program, device.target.name)
    x_ = some(SCALARS["u32"], 64 * 3)
    got = device.compile_native(b.program).dispatch({"x": x_})
    rows = x_.reshape(3, 64)
    np.testing.assert_array_equal(got["y"].reshape(3, 64), np.repeat(rows.sum(axis=1, dtype=np.uint32)[:, None], 64, axis=1))
    np.testing.assert_array_equal(got["z"].reshape(3, 64)[:, 1:], np.maximum.accumulate(rows, axis=1)[:, :-1])
