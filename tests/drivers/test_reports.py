"""What asserts and prints tell, on every device and through every way of launching: at the next wait, once, and without harm to anything else."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from device_kinds import KINDS, open_device
from fake_cuda import CUresult
from fake_device import installed
from fake_graphs import FakeGraphDriver
from told import TEXT
from walked_kernel import WalkedDevice

import vyre_py as vp
from vyre_py.ir.interpret import Reports as Told
from vyre_py.ir.interpret import interpret
from vyre_py.ir.passes.pipeline import unoptimised
from vyre_py.lowering.kinds import expanded_for
from vyre_py.lowering.reports import FAILED_RECORDS

N = 100
PROGRAM = vp.Program.from_text(TEXT, "tell.vir")
SOUND = np.zeros(N, np.uint32)
FAULTY = SOUND.copy()
FAULTY[[90, 40]] = 7
FAULTY[[70, 3]] = 9
LINES = ["nine at 3", "nine at 70"]


@pytest.fixture(params=[*KINDS, "stand-in"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[vp.Device]:
    if request.param == "stand-in":
        driver = installed(monkeypatch, FakeGraphDriver(total=1 << 28))
        monkeypatch.setenv("VYRE_ASSEMBLER", "driver")
        made: vp.Device = WalkedDevice(0)
        yield made
        made.close()
        assert not driver.misuse and not [what for what in driver.alive_handles.values() if what != "module"]
        return
    made = open_device(request.param)
    yield made
    made.on_print = None


def bound(device: vp.Device, lines: list[str], x: np.ndarray = FAULTY) -> tuple[vp.Launch, vp.Buffer]:
    y = device.allocate(N, vp.u32)
    config = vp.DispatchConfig(on_print=lines.append)
    return device.compile_native(PROGRAM).bind({"x": device.upload(x), "y": y}, config=config), y


def test_a_dispatch_tells(device: vp.Device) -> None:
    pipeline, lines, out = device.compile_native(PROGRAM), [], {"y": np.zeros(N, np.uint32)}
    with pytest.raises(vp.KernelAssertion, match=r"^an assert of 'tell' failed on .*: x\[40\] is 7\n  tell.vir:6:3\n") as caught:
        pipeline.dispatch(x=FAULTY, out=out, config=vp.DispatchConfig(on_print=lines.append))
    error = caught.value
    assert (error.message, error.values, error.where, error.others) == ("x[40] is 7", (40, 7), "tell.vir:6:3", 0)
    assert (error.global_id, error.workgroup_id, error.local_id) == ((40, 0, 0), (1, 0, 0), (8, 0, 0))
    assert lines == LINES and np.array_equal(out["y"], FAULTY + 1)  # the launch went on
    again = copy.deepcopy(error)
    assert str(again) == str(error) and vars(again) == vars(error) and isinstance(error, vp.DriverError)
    assert np.array_equal(pipeline.dispatch(x=SOUND)["y"], SOUND + 1)


def test_lines_go_to_the_device_or_the_standard_output(device: vp.Device, capsys: pytest.CaptureFixture[str]) -> None:
    program = vp.Program.from_text('program p() over(2) { buffer y: u32[2] write\n print "a\\u{1b}[31m\\t{}", global_id.x\n y[global_id.x] = 1 }')
    pipeline, lines = device.compile_native(program), []
    pipeline.dispatch()
    assert capsys.readouterr().out == "a\ufffd[31m\t0\na\ufffd[31m\t1\n"
    device.on_print = lines.append
    pipeline.dispatch()
    assert lines == ["a\x1b[31m\t0", "a\x1b[31m\t1"] and capsys.readouterr().out == ""


def test_every_wait_tells_once(device: vp.Device) -> None:
    lines: list[str] = []
    launch, y = bound(device, lines)
    waits = [
        device.synchronize, y.read, lambda: device.download_ranges([(y, 0, 4)]), lambda: device.record_event().wait(),
        lambda: y.read(after=device.record_event()),
    ]  # fmt: skip
    for wait in waits:
        launch()
        assert lines == []
        with pytest.raises(vp.KernelAssertion, match=r"x\[40\] is 7"):
            wait()
        assert lines == LINES
        lines.clear()
        wait()
        assert lines == []
    launch.set(x=device.upload(SOUND))()
    assert np.array_equal(y.read(), SOUND + 1)


def test_launches_between_two_waits(device: vp.Device) -> None:
    lines: list[str] = []
    launch, _ = bound(device, lines)
    launch()
    launch()
    with pytest.raises(vp.KernelAssertion, match=r"x\[40\] is 7") as caught:
        device.synchronize()
    if device.kind in ("cpu", "reference"):  # which hear each launch by itself
        assert lines == LINES * 2 and caught.value.others == 1 and "1 other launches" in str(caught.value)
    else:
        assert lines == sorted(LINES * 2) and caught.value.others == 0


def test_a_launch_that_was_dropped_is_heard(device: vp.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("vyre_py.drivers.reports._UNREAD", 3)
    for _ in range(6):
        launch, _ = bound(device, lines)
        launch()
    del launch
    assert len(device.reports._watched) >= 6
    with pytest.raises(vp.KernelAssertion) as caught:
        device.synchronize()
    assert lines == LINES * 6 and caught.value.others == 5
    device.synchronize()
    assert device.reports._watched == []


def test_sequences_graphs_and_chains(device: vp.Device) -> None:
    lines: list[str] = []
    launch, y = bound(device, lines)
    turn = device.sequence(vp.fill_step(y, 1), launch)
    turn()
    with pytest.raises(vp.KernelAssertion):
        device.synchronize()
    graph = device.capture(turn)
    device.synchronize()
    assert lines == LINES
    graph()
    with pytest.raises(vp.KernelAssertion):
        y.read()
    assert lines == LINES * 2
    del launch, turn  # the graph's own launch is heard, too
    graph()
    with pytest.raises(vp.KernelAssertion):
        device.synchronize()
    assert lines == LINES * 3
    device.on_print = lines.append
    chain = device.chain([(PROGRAM, {"x": "x", "y": "t"}), (PROGRAM, {"x": "t", "y": "z"})], inputs={"x": SOUND + 6}, outputs=["z"])
    chain()
    with pytest.raises(vp.KernelAssertion, match=r"x\[0\] is 7"):
        device.synchronize()


@pytest.mark.parametrize("device", ["stand-in"], indirect=True)
def test_streams_loops_and_captures_of_cuda(device: vp.Device) -> None:
    lines: list[str] = []
    launch, y = bound(device, lines)
    with device.stream() as stream:
        launch.on(stream)()
        with pytest.raises(vp.KernelAssertion):
            stream.synchronize()
        launch()
        event = device.record_event(stream)
        with pytest.raises(vp.KernelAssertion):
            event.wait()
        launch()
        with pytest.raises(vp.KernelAssertion):
            y.read()
    assert lines == LINES * 3
    launch, y = bound(device, lines)
    flag = device.upload(np.ones(1, np.uint32))
    graph = device.capture_while(flag, lambda: (launch(), vp.fill_step(flag, 0)()))
    graph()
    with pytest.raises(vp.KernelAssertion):
        device.synchronize()
    assert lines == LINES * 4
    pipeline, x = device.compile_native(PROGRAM), device.upload(SOUND)

    def binds() -> None:
        pipeline.bind(x=x, y=y)()

    with pytest.raises(vp.LaunchError, match="cannot allocate memory"):  # which would be the graph's
        device.capture(binds)
    device.synchronize()


@pytest.mark.parametrize("device", ["stand-in"], indirect=True)
def test_memory_and_devices_that_are_gone(device: vp.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, x, y = device.compile_native(PROGRAM), device.upload(FAULTY), device.allocate(N, vp.u32)
    device.trim()
    driver = device.context.cuda  # type: ignore[attr-defined]  # of CUDA
    short = ["cuMemAllocFromPoolAsync", "cuMemAllocAsync", "cuMemAlloc"]
    driver.fail |= {name: [CUresult.CUDA_ERROR_OUT_OF_MEMORY] * 8 for name in short}
    with pytest.raises(vp.OutOfMemory):
        pipeline.bind(x=x, y=y)
    for name in short:
        driver.fail.pop(name)
    launch = pipeline.bind(x=x, y=y)
    launch()
    driver.fail["cuStreamSynchronize"] = [CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    with pytest.raises(vp.DeviceLost):
        device.synchronize()
    with pytest.raises(vp.DeviceLost):
        device.synchronize()


def test_pending_and_timed_results(device: vp.Device) -> None:
    pipeline, lines = device.compile_native(PROGRAM), []
    config = vp.DispatchConfig(on_print=lines.append)
    sound, faulty = pipeline.submit(x=SOUND), pipeline.submit(x=FAULTY, config=config)
    assert np.array_equal(sound.result()["y"], SOUND + 1)
    for _ in range(2):  # a result is the same again
        with pytest.raises(vp.KernelAssertion, match=r"x\[40\] is 7"):
            faulty.result()
    assert lines == LINES
    with pytest.raises(vp.KernelAssertion):
        pipeline.dispatch_timed(x=FAULTY, config=config)
    resident = device.upload(FAULTY)
    with pytest.raises(vp.KernelAssertion):
        pipeline.submit(x=resident, y=device.allocate(N, vp.u32), config=config).result()


def test_left_out_they_cost_nothing(device: vp.Device) -> None:
    bare = vp.Program.from_text(TEXT[: TEXT.index("  assert")] + "}\n")
    options = vp.CompileOptions(asserts=False, print_bytes=0)
    made, plain = device.compile_native(PROGRAM, options), device.compile_native(bare)
    (step,), (other,) = made.part.steps, plain.part.steps
    assert [s.kind for s in step.layout.slots] == [s.kind for s in other.layout.slots]
    assert [image.code for image in step.images] == [image.code for image in other.images]
    assert np.array_equal(made.dispatch(x=FAULTY)["y"], FAULTY + 1)
    lines: list[str] = []
    device.compile_native(PROGRAM, vp.CompileOptions(asserts=False)).dispatch(x=FAULTY, config=vp.DispatchConfig(on_print=lines.append))
    assert lines == LINES
    with pytest.raises(vp.KernelAssertion):
        device.compile_native(PROGRAM, vp.CompileOptions(print_bytes=0)).dispatch(x=FAULTY)
    assert plain.bind(x=device.upload(SOUND), y=device.allocate(N, vp.u32)).plan.report is None


@pytest.mark.parametrize("size", [4, 16, 40, 43, 60])
def test_what_finds_no_room_is_counted(device: vp.Device, size: int) -> None:
    program = vp.Program.from_text("""program p() workgroup(4) over(8) {
  buffer y: u32[8] write
  let i = global_id.x
  print "{}", i
  print "none"
  y[i] = i
}""")
    lines: list[str] = []
    device.compile_native(program, vp.CompileOptions(print_bytes=size)).dispatch(config=vp.DispatchConfig(on_print=lines.append))
    dropped = int(re.match(r"\.\.\. (\d+) more prints of 'p' found no room", lines.pop())[1])
    assert dropped + len(lines) == 16 and len(lines) == {4: 0, 16: 0, 40: 2, 43: 2, 60: 3}[size]
    assert set(lines) <= {*map(str, range(8)), "none"}


def test_of_many_failures_the_least(device: vp.Device) -> None:
    # In falling order of invocations within a workgroup, and over many workgroups in whatever order the device runs them.
    program = vp.Program.from_text("""program p(n) workgroup(16) over(n) {
  buffer y: u32[n] write
  let i = global_id.x
  for k in 0u32..16 {
    assert local_index != 15 - k || i < 40, "{}", i
  }
  y[i] = i
}""")
    with pytest.raises(vp.KernelAssertion) as caught:
        device.compile_native(program).dispatch(n=5000)
    least = caught.value.global_id[0]
    assert caught.value.message == str(least) and least >= 40
    if device.kind in ("cpu", "reference") or FAILED_RECORDS >= 5000 // 16:
        assert least == 40


def test_artifacts_hold_what_is_told() -> None:
    targets = {"reference": "reference", "cpu": "cpu", "wgpu": "wgsl"}
    artifact = vp.Artifact.from_bytes(vp.compile_native(PROGRAM, targets=list(targets.values())).to_bytes())
    assert [(form.asserts, form.message) for form in artifact.interface.reports] == [(True, "x[{}] is {}"), (False, "nine at {}")]
    for kind in targets:
        lines: list[str] = []
        with pytest.raises(vp.KernelAssertion, match=r"x\[40\] is 7\n  tell.vir:6:3\n  meaning"):
            open_device(kind).load(artifact).dispatch(x=FAULTY, config=vp.DispatchConfig(on_print=lines.append))
        assert lines == LINES


def test_equal_programs_of_other_lines_have_their_own() -> None:
    device = open_device("cpu")
    lower = vp.Program.from_text("// a line\n" + TEXT, "lower.vir")
    assert lower == PROGRAM
    for program, where in ((PROGRAM, "tell.vir:6:3"), (lower, "lower.vir:7:3")):
        with pytest.raises(vp.KernelAssertion) as caught:
            device.compile_native(program).dispatch(x=FAULTY)
        assert caught.value.where == where


def test_what_a_handler_raises_comes_second() -> None:
    def refuse(line: str) -> None:
        raise RuntimeError(line)

    pipeline = open_device("cpu").compile_native(PROGRAM)
    with pytest.raises(vp.KernelAssertion) as caught:
        pipeline.dispatch(x=FAULTY, config=vp.DispatchConfig(on_print=refuse))
    assert isinstance(caught.value.__context__, RuntimeError)
    with pytest.raises(RuntimeError, match="nine at 5"):
        pipeline.dispatch(x=np.where(np.arange(N) == 5, np.uint32(9), SOUND), config=vp.DispatchConfig(on_print=refuse))
    with pytest.raises(vp.Unsupported, match="on_print='no' \\(it is a function"):
        vp.DispatchConfig(on_print="no")  # type: ignore[arg-type]  # which is refused


def test_a_timeout_says_what_failed() -> None:
    program = vp.Program.from_text("""program p() workgroup(1) over(1) {
  buffer y: u32[1] read_write
  assert y[0] == 1, "it would never end"
  loop { if y[0] == 1 { break } }
}""")
    pipeline = open_device("cpu").compile_native(program, vp.CompileOptions(interruptible=True))
    with pytest.raises(vp.DispatchTimeout) as caught:
        pipeline.dispatch(y=np.zeros(1, np.uint32), config=vp.DispatchConfig(timeout=0.5))
    assert "it would never end" in caught.value.__notes__[0]


def test_what_c_calls_is_refused(tmp_path: Path) -> None:
    device = open_device("cpu")
    launch, _ = bound(device, [])
    with pytest.raises(vp.Unsupported, match=r"launch\.c_address of a Program that asserts or prints \(nobody waits"):
        _ = launch.c_address
    with pytest.raises(vp.Unsupported, match="a Program that asserts or prints"):
        vp.export_c(vp.compile_native(PROGRAM, targets=["cpu"]), tmp_path)
    without = vp.compile_native(PROGRAM, targets=["cpu"], options=vp.CompileOptions(asserts=False, print_bytes=0))
    assert vp.export_c(without, tmp_path)


def test_an_executor_tells() -> None:
    lines: list[str] = []
    config = vp.DispatchConfig(on_print=lines.append)
    with vp.Executor("cpu") as executor:
        for _ in range(2):
            with pytest.raises(vp.KernelAssertion, match=r"tell\.vir:6:3") as caught:
                executor.dispatch(PROGRAM, {"x": FAULTY}, config=config)
            assert (caught.value.values, caught.value.global_id, caught.value.others) == ((40, 7), (40, 0, 0), 0)
        assert lines == LINES * 2
        assert np.array_equal(executor.submit(PROGRAM, {"x": SOUND}).result()["y"], SOUND + 1)
        assert executor.counters.restarts == 0


def test_the_interpreter_hears_a_program_as_it_was_written() -> None:
    # The statements themselves, which no rewrite has touched, beside what devices make of them.
    told, x = Told(), FAULTY.copy()
    interpret(unoptimised(vp.check(PROGRAM), expand=expanded_for("reference")), {"x": x, "y": x.copy()}, {"n": N}, reports=told)
    assert told.failed is not None
    assert (told.failed.message, told.failed.global_id, told.failed.words) == ("x[{}] is {}", (40, 0, 0), (40, 7))
    assert [(said.invocation, said.words) for said in told.printed] == [(3, (3,)), (70, (70,))]
