"""Scans over the grid: what the builder takes and refuses, the forms of a Program, and runs of many workgroups. `tests/filetests/run/grid_scans.vir`
has values."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator

import numpy as np
import ptxas
import pytest
import simt_host
from device_kinds import open_device
from fake_device import installed
from fake_graphs import FakeGraphDriver
from walked_kernel import WalkedDevice

import vyre_py as vp
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.errors import DispatchTimeout, LaunchError
from vyre_py.drivers.many.stepped import SteppedLaunch
from vyre_py.drivers.wgpu.launch import WgpuLaunch
from vyre_py.ir.check import check
from vyre_py.ir.check.facts import has_grid_scan
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.errors import ValidationError
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import unoptimised
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.compile import compile_for, emit_text, prepare
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.layout import SlotKind
from vyre_py.lowering.legal.grid_steps import grid_steps
from vyre_py.lowering.llvm.gpu.grid_scan import columns_of
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target, parse_target

GROUP = 64
TARGET = Target("ptx", "sm_90")


def prefix_sum(type_: vp.Type = vp.u32, *, group: int = GROUP, any_order: bool = False) -> Program:
    """y[i] = x[0] + ... + x[i]."""
    with vp.ProgramBuilder("prefix_sum", workgroup=group) as b:
        n = b.dim("n")
        x, y = b.read("x", type_, n), b.write("y", type_, n)
        i = b.global_id(0)
        v = x[i]
        y[i] = b.grid_scan("add", b.workgroup_reduce("add", v), any_order=any_order) + b.workgroup_scan("add", v)
    return b.program


def test_forms() -> None:
    program = prefix_sum(vp.f32, any_order=True)
    assert "grid_scan(add any_order, " in str(program)
    assert parse(str(program)) == program == Program.from_bytes(program.to_bytes()) == Program.from_json(program.to_json())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("let a = grid_scan(add, 1.0f32)", "say that any order will do: grid_scan(add any_order, x)"),
        ("let a = grid_scan(add any_order, 1)", "nothing here fixes the type"),
        ("let a = grid_scan(max any_order, 1u32)", "grid_scan: max has the same result in any order"),
        ("let a = grid_scan(add any_order, 1u32)", "leave any_order out"),
        ("let a = grid_scan(or, 1.0f32)", "grid_scan(or, f32): it takes i32, i64, u32, u64"),
        ("let a = grid_scan(add, cast(1u32, u8))", "convert it: cast(x, u32)"),
        ("let a = grid_scan(sum, 1u32)", "grid_scan does not fold with sum"),
        ("grid_scan(add)", "expected `,`"),
    ],
)
def test_text_that_is_refused(text: str, message: str) -> None:
    with pytest.raises(vp.ProgramError) as caught:
        parse(f"program p() grid(1) {{\n  {text}\n}}")
    assert message in str(caught.value)


def test_calls_that_are_refused() -> None:
    with vp.ProgramBuilder("p") as b:
        y = b.write("y", vp.u32, b.dim("n"))
        with pytest.raises(ValidationError, match="V201 grid_scan does not fold with 'sum'"):
            b.grid_scan("sum", b.workgroup_id(0))
        with pytest.raises(ValidationError, match="any_order=True"):
            b.grid_scan("add", vp.cast(b.workgroup_id(0), vp.f32))
        with pytest.raises(ValidationError, match="B106"):
            b.grid_scan("add", 1)  # type: ignore[arg-type]  # a number has no type of its own, which is what the error says
        y[b.global_id(0)] = b.workgroup_id(0)


@pytest.mark.parametrize("options", [CompileOptions(), CompileOptions(interruptible=True)], ids=["plain", "interruptible"])
def test_the_cpu_runs_workgroups_in_order(options: CompileOptions) -> None:
    x = np.arange(GROUP * 2000 + 5, dtype=np.uint32)
    pipeline = vp.device("cpu").compile_native(prefix_sum(), options)
    for _ in range(2):
        assert np.array_equal(pipeline.dispatch({"x": x})["y"], np.cumsum(x, dtype=np.uint32))


def test_batches_of_the_interpreter_go_on_where_the_last_one_ended() -> None:
    x = np.arange(GROUP * 2000 + 5, dtype=np.uint32)
    assert np.array_equal(vp.device("reference").compile_native(prefix_sum()).dispatch({"x": x})["y"], np.cumsum(x, dtype=np.uint32))


# ---------------------------------------------------------------- the code for GPUs


@pytest.mark.parametrize(
    ("type_", "group", "count", "options"),
    [
        (vp.u32, 4, 39, CompileOptions()),  # one invocation looks back
        (vp.i64, 4, 39, CompileOptions(interruptible=True)),
        (vp.f32, 40, 90, CompileOptions()),  # a warp does
        (vp.f64, 32, 90, CompileOptions(interruptible=True)),
    ],
    ids=["one looks back", "one, of 64 bits", "a warp looks back", "a warp, of 64 bits"],
)
def test_workgroups_at_once(type_: vp.Type, group: int, count: int, options: CompileOptions) -> None:
    """A thread for each invocation of the grid; the words that a launch leaves are right for the next."""
    program = prefix_sum(type_, group=group, any_order=type_.is_float)
    prepared, groups = prepare(program, TARGET, options), -(-count // group)
    words = np.zeros(1 + columns_of(program) * groups, np.uint64)
    for turn in range(3):
        x = np.arange(count).astype(type_.dtype) * (turn + 1)
        y = np.zeros_like(x)
        simt_host.run(prepared, {"x": x, "y": y}, {"n": count}, options=options, scans=words)
        assert np.array_equal(y, np.cumsum(x, dtype=x.dtype)) and words[0] == turn + 1 << 32


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_the_assembler_takes_it(arch: str) -> None:
    for type_ in (vp.u32, vp.f64):
        ptx = emit_text(prefix_sum(type_, any_order=type_.is_float), arch, CompileOptions(interruptible=True))
        assert ptx.count("atom.global.add.u64") == 2 and ptx.count("st.relaxed.gpu") == (2 if type_ is vp.u32 else 4)
        ptxas.assemble(ptx, arch, 3)


def test_what_goes_with_no_scan_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="option persistent=True with a grid_scan"):
        emit_text(prefix_sum(), "sm_90", CompileOptions(persistent=True))
    with pytest.raises(Unsupported, match="wgsl does not support grid_scan of i64"):
        emit_text(prefix_sum(vp.i64), "wgsl")
    artifact = compile_for(prefix_sum(), [TARGET, parse_target("cpu")])
    with pytest.raises(Unsupported, match="a Program with a grid_scan"):
        vp.export_c(artifact, "nowhere", target="compute_90")
    (entry,) = artifact.parts[0].steps[0].entries  # none that does several elements an invocation
    assert entry.elements == 1 and Artifact.from_bytes(artifact.to_bytes()).parts[0].steps[0].entries == (entry,)


# ---------------------------------------------------------------- launches


@pytest.fixture(params=["cuda", "stand-in"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[vp.Device]:
    if request.param == "cuda":
        yield open_device("cuda")
        return
    driver = installed(monkeypatch, FakeGraphDriver(total=1 << 28))
    monkeypatch.setenv("VYRE_ASSEMBLER", "driver")
    made = WalkedDevice(0)
    yield made
    made.close()
    assert not driver.misuse and not driver.blocks


def test_launches_replays_and_dispatches(gpu: vp.Device) -> None:
    pipeline = gpu.compile_native(prefix_sum(group=8))
    for count in (1, 9, 32, 9):  # words are used again for as many workgroups
        x = np.arange(count, dtype=np.uint32)
        want = np.cumsum(x, dtype=np.uint32)
        xd, yd = gpu.upload(x), gpu.allocate(count, vp.u32)
        launch = pipeline.bind(x=xd, y=yd)
        graph = gpu.capture(launch)
        for call in (launch, graph, launch, gpu.sequence(launch, launch), graph):
            yd.write(np.zeros_like(x))
            call()
            assert np.array_equal(yd.read(), want)
        assert np.array_equal(pipeline.dispatch({"x": x})["y"], want)
        del launch, graph, call
        gc.collect()


def test_words_of_a_launch_that_was_ended_are_reset(gpu: vp.Device) -> None:
    pipeline = gpu.compile_native(prefix_sum(group=8), CompileOptions(interruptible=True))
    x = np.arange(24, dtype=np.uint32)
    yd = gpu.allocate(x.size, vp.u32)
    launch = pipeline.bind(x=gpu.upload(x), y=yd)
    launch()
    gpu.synchronize()
    one = ctypes.c_uint64((1 << 32) + 1)  # of the second epoch, as if one workgroup had begun
    context = gpu.context
    with context.entered():
        place = launch.kernel._words[SlotKind.SCANS][0]
        context.ok(context.cuda.cuMemcpyHtoDAsync(place, ctypes.addressof(one), 8, context.stream), "a test writes a word")
    gpu.synchronize()
    launch.kernel.reset_flags()
    launch()
    assert np.array_equal(yd.read(), np.cumsum(x, dtype=np.uint32))


def over_workgroups(type_: str, base: int) -> vp.Program:
    """The sums of base + number over the workgroups before each."""
    number = "workgroup_id.x" if type_ == "u32" else f"cast(workgroup_id.x, {type_})"
    return vp.Program.from_text(
        f"program over_workgroups(n) workgroup(8) over(n) {{ buffer y: {type_}[n] write\ny[global_id.x] = grid_scan(add, {number} + {base}{type_}) }}"
    )


def test_words_of_one_launch_mean_nothing_to_another(gpu: vp.Device) -> None:
    """As many words, of which the first Program's hold sums of 64 bits where the second one's hold epochs and flags."""
    base = 5 << 30  # the fourth prefix reads as {epoch 1, flag 1}
    for type_, groups in (("u64", 8), ("u32", 24)):
        first = base if type_ == "u64" else 7
        yd = gpu.allocate(8 * groups, vp.u64 if type_ == "u64" else vp.u32)
        launch = gpu.compile_native(over_workgroups(type_, first)).bind(y=yd)
        launch()
        y = yd.read()
        values = np.arange(groups, dtype=y.dtype) + first
        assert np.array_equal(y, np.repeat(np.cumsum(values) - values, 8))
        del launch
        gc.collect()
        if isinstance(gpu, WalkedDevice):  # which runs one workgroup after another, and so never looks at what has not been published
            block = gpu.words.take(SlotKind.SCANS, 25)
            assert not any((ctypes.c_uint64 * 25).from_address(block))
            gpu.words.give(SlotKind.SCANS, block, 25)


# ---------------------------------------------------------------- in steps

MANY = """program many(n) workgroup(4, 2) over(n, 3, 2) {
  param on: bool
  workgroup t: u32[8]
  buffer x: u32[n] read
  buffer y: u32[2, 3, n] write
  let i = global_id.x
  t[local_index] = x[i] + global_id.y
  let first = grid_scan(add, uniform_load(t[5u32]))
  y[global_id.z, global_id.y, i] = first
  var v: u32 = first * 3
  if on {
    region inner {
      let second = grid_scan(max, first ^ 21)
      v = v + second
    }
  } else {
    let third = grid_scan(xor, first)
    v = v ^ third
  }
  y[global_id.z, global_id.y, i] = v + t[local_index]
}"""


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("count", [1, 37, 1300])
def test_steps_mean_the_same(on: bool, count: int) -> None:
    checked = check(parse(MANY))
    given = {"x": np.arange(count, dtype=np.uint32) * 7 % 1000, "on": on}
    want = {**given, "y": np.zeros((2, 3, count), np.uint32)}
    interpret(unoptimised(checked, expand=EXPANDED_ONLY), want, {"n": count})
    groups = -(-count // 4) * 2 * 2
    got = {**given, "y": np.zeros((2, 3, count), np.uint32), "grid_scan.0": np.full(3 * groups, 77, np.uint32)}
    steps = grid_steps(checked, "wgsl")
    assert len(steps) == 7 and not any(has_grid_scan(step.program) for step in steps)
    for step in steps:
        names = {thing.name for thing in (*step.program.buffers, *step.program.params)}
        interpret(unoptimised(step, expand=EXPANDED_ONLY), {name: value for name, value in got.items() if name in names}, {"n": count})
    assert np.array_equal(got["y"], want["y"])


FIVE = """program five(n) workgroup(64) over(n) {
  buffer a: u32[n] read
  buffer b: i32[n] read
  buffer c: f32[n] read
  buffer y: u32[n, 5] write
  let i = global_id.x
  y[i, 0u32] = grid_scan(add, uniform_load(a[workgroup_id.x]))
  y[i, 1u32] = bitcast(grid_scan(min, uniform_load(b[workgroup_id.x])), u32)
  y[i, 2u32] = bitcast(grid_scan(max, uniform_load(c[workgroup_id.x])), u32)
  y[i, 3u32] = grid_scan(xor, uniform_load(a[workgroup_id.x]))
  y[i, 4u32] = bitcast(grid_scan(add, uniform_load(b[workgroup_id.x])), u32)
}"""


def test_scans_of_several_types_share_a_buffer() -> None:
    """WebGPU promises eight: those of a Program, and one for all of its scans, however many workgroups there are to fold."""
    program, n, rng = parse(FIVE), 300 * 64 + 5, np.random.default_rng(5)
    part = compile_for(program, [parse_target("wgsl")]).parts[0]
    assert {len(step.layout.buffers) for step in part.steps} == {5}
    given = {"a": rng.integers(0, 1 << 32, n, np.uint32), "b": rng.integers(-1000, 1000, n, np.int32), "c": rng.normal(size=n).astype(np.float32)}
    got, want = (open_device(kind).compile_native(program).dispatch(given)["y"] for kind in ("wgpu", "reference"))
    np.testing.assert_array_equal(got, want)


def test_wgpu_runs_the_steps_of_one_artifact() -> None:
    device = open_device("wgpu")
    x = np.arange(300 * GROUP + 3, dtype=np.uint32)
    pipeline = device.load(Artifact.from_bytes(device.compile_native(prefix_sum()).artifact.to_bytes()))
    assert len(pipeline.part.steps) == 3
    yd = device.allocate(x.size, vp.u32)
    launch = pipeline.bind(x=device.upload(x), y=yd)
    graph = device.capture(launch)
    for call in (launch, graph, device.sequence(launch, launch)):
        yd.fill(0)
        call()
        assert np.array_equal(yd.read(), np.cumsum(x, dtype=np.uint32))
    graph.set(launch, x=device.upload(x + 1))()
    assert np.array_equal(yd.read(), np.cumsum(x + 1, dtype=np.uint32))
    assert pipeline.dispatch({"x": x[:0]})["y"].size == 0
    with pytest.raises(Unsupported, match="dispatch option grid"):
        pipeline.dispatch({"x": x}, config=DispatchConfig(grid=(2, 1, 1)))


def test_one_launch_of_several_steps_from_two_threads() -> None:
    """No thread's steps come between those of the other, nor between those of a copy for a graph."""
    device = open_device("wgpu")
    x = np.arange(9 * GROUP + 3, dtype=np.uint32)
    want = np.cumsum(x, dtype=np.uint32)
    yd = device.allocate(x.size, vp.u32)
    launch = device.compile_native(prefix_sum()).bind(x=device.upload(x), y=yd)
    graph = device.capture(launch)
    wrong: list[object] = []

    def work(call: Callable[[], None]) -> None:
        try:
            for _ in range(15):
                call()
                wrong.extend(np.flatnonzero(yd.read() != want))
        except BaseException as error:  # noqa: BLE001 - whatever a thread raises is the test's finding
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(call,)) for call in (launch, launch, graph)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


SCALED = """program scaled(n) workgroup(64) over(n) {
  param by: u32
  buffer x: u32[n] read
  buffer y: u32[n] write
  y[global_id.x] = grid_scan(add, uniform_load(x[workgroup_id.x])) * by + uniform_load(x[workgroup_id.x]) * by
}"""


@pytest.mark.parametrize("step", range(3))
def test_a_set_that_a_step_refuses_changes_nothing(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_device("wgpu")
    x = np.ones(3 * 64, np.uint32)
    xd, yd, other = device.upload(x), device.allocate(x.size, vp.u32), device.upload(x + 1)
    launch = device.compile_native(parse(SCALED)).bind(x=xd, y=yd, by=3)
    assert isinstance(launch, SteppedLaunch)
    want = np.repeat(np.arange(1, 4, dtype=np.uint32), 64)
    with monkeypatch.context() as patch:
        failing = launch._launches[step]
        assert isinstance(failing, WgpuLaunch)
        patch.setattr(WgpuLaunch, "_write", refuse_to(failing, WgpuLaunch._write))
        with pytest.raises(LaunchError):
            launch.set(x=other, by=5)
    launch()
    assert np.array_equal(yd.read(), want * 3)
    launch.set(x=other, by=5)()
    assert np.array_equal(yd.read(), want * 10)


def refuse_to(failing: WgpuLaunch, write: Callable[[WgpuLaunch, int, bytes], None]) -> Callable[[WgpuLaunch, int, bytes], None]:
    """A `write` that fails for one launch."""

    def refuse(self: WgpuLaunch, word: int, data: bytes) -> None:
        if self is failing:
            raise self._errors[0]("refused")
        write(self, word, data)

    return refuse


COUNTED = """program counted(n) workgroup(64) over(n) {
  buffer x: u32[4] read_write
  buffer y: u32[n] write
  workgroup t: u32[64]
  t[local_index] = atomic_load(x[workgroup_id.x])
  let v = uniform_load(t[5u32])
  y[global_id.x] = grid_scan(add, v) + v
}"""


def test_atomic_loads_before_a_scan_in_steps() -> None:
    """They are made twice, and give the same where no atomic changes the memory; one that follows the scan may, before other workgroups load."""
    x = np.array([3, 5, 7, 9], np.uint32)
    result = open_device("wgpu").compile_native(parse(COUNTED)).dispatch({"x": x, "n": 256})
    assert np.array_equal(result["y"], np.repeat(np.cumsum(x, dtype=np.uint32), 64))
    changed = COUNTED.replace("+ v\n", "+ v\n  atomic_add(x[0], 1)\n")
    with pytest.raises(Unsupported, match="an atomic on 'x' before a grid_scan"):
        emit_text(parse(changed), "wgsl")


# ---------------------------------------------------------------- on a GPU


@pytest.mark.parametrize("group", [1, 33, 64, 256, 1024])
@pytest.mark.parametrize("type_", [vp.u32, vp.i64, vp.f32], ids=str)
def test_many_workgroups_on_a_gpu(type_: vp.Type, group: int) -> None:
    device, count = open_device("cuda"), (1 << 14) * group + 17
    x = np.random.default_rng(group).integers(0, 2 if type_ is vp.f32 else 1 << 30, count).astype(type_.dtype)
    x[1 << 20 :] = 0 if type_ is vp.f32 else x[1 << 20 :]  # sums that f32 holds
    yd = device.allocate(count, type_)
    launch = device.compile_native(prefix_sum(type_, group=group, any_order=type_.is_float)).bind(x=device.upload(x), y=yd)
    want = np.cumsum(x, dtype=x.dtype)
    for _ in range(20):
        launch()
        assert np.array_equal(yd.read(), want)


def test_two_launches_at_the_same_time() -> None:
    device, count = open_device("cuda"), 1 << 21
    pipeline = device.compile_native(prefix_sum())
    x = np.random.default_rng(1).integers(0, 99, count).astype(np.uint32)
    outs = [device.allocate(count, vp.u32) for _ in range(2)]
    with device.stream() as first, device.stream() as second:
        launches = [pipeline.bind(x=device.upload(x), y=y).on(stream) for y, stream in zip(outs, (first, second), strict=True)]
        for _ in range(50):
            for launch in launches:
                launch()
        device.synchronize()
        for y in outs:
            assert np.array_equal(y.read(), np.cumsum(x, dtype=np.uint32))


def test_workgroups_that_wait_for_an_endless_one_are_ended() -> None:
    device = open_device("cuda")
    text = """program endless(n) workgroup(64) over(n) {
  param stop: bool
  buffer y: u32[n] write
  if workgroup_id.x == 3 {
    loop {
      if stop {
        break
      }
    }
  }
  y[global_id.x] = grid_scan(add, workgroup_id.x)
}"""
    pipeline = device.compile_native(parse(text), CompileOptions(interruptible=True))
    want = np.repeat(np.cumsum(np.arange(500), dtype=np.uint32) - np.arange(500, dtype=np.uint32), 64)
    for _ in range(3):
        with pytest.raises(DispatchTimeout):
            pipeline.dispatch({"n": want.size, "stop": False}, config=DispatchConfig(timeout=0.1))
        assert np.array_equal(pipeline.dispatch({"n": want.size, "stop": True})["y"], want)
