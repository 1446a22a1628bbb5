"""Options of a launch: what `DispatchConfig` takes, and the table of launch attributes."""

from __future__ import annotations

import ctypes
import struct
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from fake_cuda import CONTEXT, FakeDriver
from fake_device import installed, opened
from fake_graphs import FakeGraphDriver

from vyre_py.drivers import registry
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.launch.attributes import Attribute, launch_attributes
from vyre_py.drivers.cuda.launch.persistent import launched_grid
from vyre_py.drivers.errors import BindingError, DriverError, LaunchError
from vyre_py.ir.language.types import u32
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.layout import SlotKind
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

HOPPER, AMPERE = (9, 0), (8, 6)
PLAIN = "program p(n) workgroup(32) { buffer x: u32[n] read_write\n x[global_id.x] = 1 }"
MEETING = "program p(n) workgroup(32) { buffer x: u32[n] read_write\n x[global_id.x] = 1\n grid_barrier\n x[global_id.x] = x[n - 1] }"


def step_of(text=PLAIN, **options):
    return compile_for(parse(text), [Target("ptx", "sm_90")], CompileOptions(**options)).parts[0].steps[0]


@pytest.mark.parametrize(
    ("name", "values"),
    [("fixpoint_limit", (0, -1, True, 1.5, "3")), ("cluster", ((2, 1), (0, 1, 1), [2, 1, 1], 2, (2, 1, True)))],
)
def test_values_that_no_device_takes(name, values):
    for value in values:
        with pytest.raises(Unsupported, match=f"dispatch option {name}="):
            DispatchConfig(**{name: value})


def test_steps_say_what_they_were_compiled_with():
    plain = step_of()
    assert not (plain.persistent or plain.dependent or plain.cooperative or plain.interruptible)
    assert [slot.kind for slot in plain.layout.slots] == [SlotKind.BUFFER, SlotKind.EXTENT]
    indirect = step_of(indirect=True)
    assert indirect.persistent and indirect.indirect and not indirect.has_groups and not plain.indirect
    assert [(slot.kind, slot.name, slot.size_bytes) for slot in indirect.layout.slots][2:] == [(SlotKind.GRID, "grid", 8)]
    made = step_of(persistent=True, dependent=True, interruptible=True)
    assert made.persistent and made.dependent and made.interruptible
    hidden = [slot for slot in made.layout.slots if slot.kind in (SlotKind.CANCEL, SlotKind.GROUPS)]
    assert [(slot.kind, slot.axis, slot.size_bytes) for slot in hidden] == [
        (SlotKind.CANCEL, None, 8), (SlotKind.GROUPS, 0, 4), (SlotKind.GROUPS, 1, 4), (SlotKind.GROUPS, 2, 4),
    ]  # fmt: skip
    assert all(slot.offset_bytes % slot.size_bytes == 0 for slot in made.layout.slots)
    both = step_of(MEETING, interruptible=True)
    assert both.cooperative and [s.kind for s in both.layout.slots][-2:] == [SlotKind.ARRIVALS, SlotKind.CANCEL]


def test_most_launches_have_no_attributes():
    for capability in ((7, 0), AMPERE, HOPPER):
        assert launch_attributes(capability, step_of(), DispatchConfig(), (5, 1, 1)) == ()
        assert launch_attributes(capability, step_of(persistent=True), DispatchConfig(), (5, 1, 1)) == ()


def test_attributes_follow_step_and_config():
    assert launch_attributes(AMPERE, step_of(MEETING), DispatchConfig(), (5, 1, 1)) == (Attribute("COOPERATIVE", 1),)
    assert launch_attributes(AMPERE, step_of(), DispatchConfig(cooperative=True), (5, 1, 1)) == (Attribute("COOPERATIVE", 1),)
    assert launch_attributes(HOPPER, step_of(dependent=True), DispatchConfig(cluster=(2, 1, 1)), (6, 3, 1)) == (
        Attribute("CLUSTER_DIMENSION", (2, 1, 1)), Attribute("PROGRAMMATIC_STREAM_SERIALIZATION", 1),
    )  # fmt: skip
    assert launch_attributes(HOPPER, step_of(), DispatchConfig(cluster=(1, 2, 4)), (3, 4, 8)) == (Attribute("CLUSTER_DIMENSION", (1, 2, 4)),)


def test_what_a_device_lacks_is_refused_by_name():
    with pytest.raises(Unsupported) as caught:
        launch_attributes(AMPERE, step_of(dependent=True), DispatchConfig(cluster=(2, 1, 1)), (4, 1, 1))
    text = str(caught.value)
    assert "vyre_p" in text and "dispatch option cluster on compute capability 8.6" in text and "option dependent=True on compute capability 8.6" in text


def test_what_does_not_go_together_is_refused():
    with pytest.raises(Unsupported, match="cooperative launch of a kernel compiled with dependent=True"):
        launch_attributes(HOPPER, step_of(MEETING, dependent=True), DispatchConfig(), (4, 1, 1))
    with pytest.raises(Unsupported, match="cluster of a persistent kernel"):
        launch_attributes(HOPPER, step_of(persistent=True), DispatchConfig(cluster=(2, 1, 1)), (4, 1, 1))


def test_clusters_divide_the_grid():
    with pytest.raises(BindingError) as caught:
        launch_attributes(HOPPER, step_of(), DispatchConfig(cluster=(2, 3, 4)), (5, 3, 6))
    assert len(caught.value.problems) == 3 and "5 workgroups along x" in caught.value.problems[0] and "8 is the most" in caught.value.problems[2]


def test_persistent_grids_are_as_many_workgroups_as_run_at_once():
    cuda = FakeDriver()
    cuda.current.context = CONTEXT
    answers = [8]
    cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor = lambda function, threads, dynamic_bytes: (0, answers[-1] if threads <= 64 else 0)
    context = SimpleNamespace(cuda=cuda, name="cuda:0", entered=nullcontext, ok=lambda result, doing: result[1], attribute=lambda name: cuda.attributes[name])
    fit = 8 * cuda.attributes["MULTIPROCESSOR_COUNT"]
    assert launched_grid(context, 12, (8, 8, 1), 0, (2**31 - 1, 65535, 1), "p") == (fit, 1, 1)
    assert launched_grid(context, 12, (8, 8, 1), 0, (3, 2, 5), "p") == (30, 1, 1)
    with pytest.raises(LaunchError, match="not one of its workgroups fits") as caught:
        launched_grid(context, 12, (16, 8, 1), 64, (3, 1, 1), "p")
    assert "16 x 8 x 1" in str(caught.value) and isinstance(caught.value, DriverError)


@pytest.fixture
def device(monkeypatch):
    installed(monkeypatch, FakeDriver())
    made = CudaDevice(0)
    yield made
    made.close()


@pytest.mark.parametrize("option", [{"timeout": 1.0}, {"fixpoint": "y"}, {"fixpoint_limit": 3}, {"max_output_bytes": 1 << 20}])
@pytest.mark.parametrize("kind", ["reference", "cuda"])
def test_options_of_a_dispatch_are_refused_where_a_launch_is_bound(device, kind, option):
    chosen = device if kind == "cuda" else registry.device(kind)
    program = parse("program p(n) workgroup(1) {\n  buffer y: u32[n] read_write\n  y[global_id.x] = 1\n}")
    with pytest.raises(Unsupported, match=rf"dispatch option {next(iter(option))}\b"):
        chosen.compile_native(program).bind(y=chosen.allocate(4, u32), config=DispatchConfig(**option))


def test_persistent_launches_carry_the_grid_they_walk(device):
    driver = device.context.cuda
    driver.cuOccupancyMaxActiveBlocksPerMultiprocessor = lambda function, threads, dynamic_bytes: (0, 2)
    seen = []
    driver.kernel = lambda block: seen.append(struct.unpack_from("<QIIII", block))
    pipeline = device.compile_native(parse(PLAIN), CompileOptions(persistent=True))
    x = device.upload(np.zeros(32 * 1000, np.uint32))
    pipeline.bind({"x": x})()
    pipeline.bind({"x": x}, config=DispatchConfig(grid=(1, 3, 1)))()
    device.synchronize()
    assert [launch[0] for launch in driver.launches] == [(2 * driver.attributes["MULTIPROCESSOR_COUNT"], 1, 1), (3, 1, 1)]
    assert [block[1:] for block in seen] == [(32000, 1000, 1, 1), (32000, 1, 3, 1)]


# ---------------------------------------------------------------- grids that are buffers


@pytest.fixture
def graphs(monkeypatch):
    """A device over a stand-in that captures; `ran` has what each kernel found: where x is, its size, and the grid."""
    driver = installed(monkeypatch, FakeGraphDriver(total=1 << 28))
    driver.cuOccupancyMaxActiveBlocksPerMultiprocessor = lambda function, threads, dynamic_bytes: (0, 2)
    driver.ran = []

    def kernel(block):
        x, size, grid = struct.unpack("<QI4xQ", block)
        driver.ran.append((x, size, tuple((ctypes.c_uint32 * 3).from_address(grid))))

    driver.kernel = kernel
    with opened(driver) as made:
        yield made


def test_launches_read_their_grid(graphs):
    driver, x, y = graphs.context.cuda, graphs.allocate(64, u32), graphs.allocate(64, u32)
    grid = graphs.upload(np.array([3, 2, 5], np.uint32))
    pipeline = graphs.compile_native(parse(PLAIN))
    launch = pipeline.bind(x=x, config=DispatchConfig(grid=grid))
    launch()
    grid.write(np.array([0, 1, 1], np.uint32))
    launch.set(x=y)
    launch()
    graph = graphs.capture(launch)
    grid.write(np.array([7, 1, 1], np.uint32))
    launch.set(x=x)
    graph.update()
    graph()
    graphs.sequence(launch)()
    graphs.synchronize()
    assert [(at.handle, 64, groups) for at, groups in ((x, (3, 2, 5)), (y, (0, 1, 1)), (x, (7, 1, 1)), (x, (7, 1, 1)))] == driver.ran
    assert {launch[0] for launch in driver.launches} == {(2 * driver.attributes["MULTIPROCESSOR_COUNT"], 1, 1)}
    assert "as many as a buffer says" in repr(launch)
    compiles = graphs.telemetry.compiles
    pipeline.bind(x=y, config=DispatchConfig(grid=grid))()
    graphs.compile_native(parse(PLAIN)).bind(x=y, config=DispatchConfig(grid=grid))()
    assert graphs.telemetry.compiles == compiles


def test_a_grid_that_is_gone_or_written(graphs):
    whole = graphs.allocate(200, u32)
    x, grid = whole[:64], whole[190:193]
    pipeline = graphs.compile_native(parse(PLAIN))
    with pytest.raises(BindingError, match="'x' is part of it"):
        pipeline.bind(x=whole[130:194], config=DispatchConfig(grid=grid))
    launch = pipeline.bind(x=x, config=DispatchConfig(grid=grid))
    for wrong in (whole[128:192], whole[129:193]):
        with pytest.raises(BindingError, match="'x' is part of it"):
            launch.set(x=wrong)
    for name in ("", "grid"):
        with pytest.raises(BindingError, match="no param or buffer"):
            launch.set(**{name: graphs.allocate(3, u32)})
    launch.set(x=whole[126:190])
    launch()
    assert graphs.context.cuda.ran[-1][0] == whole[126:190].handle + whole[126:190].offset_bytes
    other = graphs.allocate(3, u32)
    gone = pipeline.bind(x=x, config=DispatchConfig(grid=other))
    graph, sequence = graphs.capture(gone), graphs.sequence(gone)
    other.free()
    for run in (gone, graph, sequence, lambda: pipeline.bind(x=x, config=DispatchConfig(grid=other))):
        with pytest.raises(BindingError, match="'grid' was freed"):
            run()
    with pytest.raises(BindingError, match="the buffer is on cpu:0"):
        pipeline.bind(x=x, config=DispatchConfig(grid=registry.device("cpu").allocate(3, u32)))


def test_artifacts_with_code_that_reads_its_grid(graphs):
    program, driver = parse(PLAIN), graphs.context.cuda
    plain, indirect = [graphs.load(compile_for(program, [Target("ptx", "sm_90")], CompileOptions(indirect=one))) for one in (False, True)]
    x, grid = graphs.allocate(64, u32), graphs.upload(np.array([9, 1, 1], np.uint32))
    with pytest.raises(Unsupported, match="indirect=True"):
        plain.bind(x=x, config=DispatchConfig(grid=grid))
    indirect.bind(x=x, config=DispatchConfig(grid=grid))()
    indirect.bind(x=x, config=DispatchConfig(grid=(1, 2, 3)))()
    for _ in range(2):
        indirect.bind(x=x)()
    indirect.callable()(x=x)
    assert driver.ran == [(x.handle, 64, groups) for groups in ((9, 1, 1), (1, 2, 3), (2, 1, 1), (2, 1, 1), (2, 1, 1))]
    assert [launch[0][0] for launch in driver.launches[1:]] == [6, 2, 2, 2]
    for option in ({"cooperative": True}, {"cluster": (1, 1, 1)}):
        with pytest.raises(Unsupported, match=next(iter(option))):
            indirect.bind(x=x, config=DispatchConfig(grid=grid, **option))


def test_launches_carry_their_attributes(device):
    driver = device.context.cuda
    x = device.upload(np.zeros(32 * 12, np.uint32))
    device.compile_native(parse(PLAIN)).bind({"x": x})()  # of whose 12 workgroups three are full ones, of four elements an invocation
    assert not driver.extended
    device.compile_native(parse(PLAIN)).bind({"x": x}, config=DispatchConfig(cluster=(4, 1, 1)))()
    device.compile_native(parse(PLAIN), CompileOptions(dependent=True)).bind({"x": x})()
    device.compile_native(parse(MEETING)).bind({"x": x})()
    device.synchronize()
    assert driver.extended == [{4: [4, 1, 1]}, {6: [1, 0, 0]}, {2: [1, 0, 0]}]
    assert [grid for grid, *_ in driver.launches] == [(3, 1, 1), (12, 1, 1), (3, 1, 1), (12, 1, 1)]
    with pytest.raises(BindingError, match="do not divide"):
        device.compile_native(parse(PLAIN)).bind({"x": x}, config=DispatchConfig(cluster=(5, 1, 1)))


def test_a_kernel_is_told_to_end_past_what_runs(device):
    """The flag goes by a copy on a stream of its own: a fill would be a kernel, which needs room on the device."""
    driver = device.context.cuda
    pipeline = device.compile_native(parse(MEETING), CompileOptions(interruptible=True))
    kernel = pipeline.bind({"x": device.upload(np.zeros(64, np.uint32))}).kernel
    places = [kernel.plan.step.layout.find(kind).offset_bytes for kind in (SlotKind.CANCEL, SlotKind.ARRIVALS)]
    flag, arrivals = [struct.unpack_from("<Q", kernel.block, place)[0] for place in places]
    ctypes.c_uint32.from_address(arrivals).value = 7
    before = len(driver.log)
    kernel.cancel()
    made = driver.log[before:]
    assert "cuMemcpyHtoDAsync" in made and not any(name.startswith("cuMemset") for name in made)
    assert device.context.control_stream not in (device.context.stream, device.context.copy_stream)
    assert ctypes.c_uint32.from_address(flag).value == 1
    kernel.reset_flags()
    assert ctypes.c_uint64.from_address(flag).value == 0 and ctypes.c_uint64.from_address(arrivals).value == 0
