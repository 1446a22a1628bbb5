"""Descriptions of boxes among a launch's arguments, over a stand-in for the driver: of which buffer, and right after whatever changes that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_cuda import CUresult, described
from fake_device import installed, opened
from fake_graphs import FakeGraphDriver

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.launch.launch import CudaLaunch
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.layout import SlotKind
from vyre_py.lowering.target import parse_target

M, N, K = 96, 128, 192
BOXES, WIDE, PLAIN = "vyre_matmul_boxes", "vyre_matmul_x1", "vyre_matmul"


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    """A product of bf16, made without a GPU, and read from its file."""
    made = compile_for(vp.ops.matmul(vp.bf16, tiles=(64, 64, 64)), [parse_target("compute_90a")], vp.CompileOptions(opt=2))
    return Artifact.from_bytes(made.to_bytes())


def test_workgroups_that_walk_by_themselves_read_their_grid() -> None:
    """The kernel with boxes walks as it does over any grid, and the others are walked; none is told the grid but by the buffer."""
    made = compile_for(vp.ops.matmul(vp.bf16, tiles=(128, 128, 64)), [parse_target("compute_90a")], vp.CompileOptions(indirect=True))
    (step,) = Artifact.from_bytes(made.to_bytes()).parts[0].steps
    assert [(entry.boxes, entry.walks) for entry in step.entries] == [(2, True), (0, False), (0, False)]
    assert [slot.kind for slot in step.layout.slots][-3:] == [SlotKind.BOXES, SlotKind.BOXES, SlotKind.GRID] and not step.has_groups
    for kernel in step.images[0].code.decode().split(".visible .entry ")[1:]:
        head, loop = kernel[: kernel.index("%ctaid.x;")], kernel[kernel.index("%ctaid.x;") :]
        assert "ld.shared" in head and "%nctaid.x;" in loop, kernel[:60]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeGraphDriver:
    driver = installed(monkeypatch, FakeGraphDriver(total=1 << 28))
    driver.ran = []
    driver.kernels = {name: lambda block, name=name: driver.ran.append((name, block)) for name in (BOXES, WIDE, PLAIN)}
    return driver


@pytest.fixture
def device(fake: FakeGraphDriver) -> Iterator[CudaDevice]:
    with opened(fake) as made:
        yield made


@pytest.fixture
def pipeline(device: CudaDevice, artifact: Artifact) -> vp.Pipeline:
    return device.load(artifact)


def matrices(device: CudaDevice, m: int = M, n: int = N, k: int = K) -> list[vp.Buffer]:
    return [device.allocate(shape, vp.bf16) for shape in ((m, k), (k, n), (m, n))]


def taken(fake: FakeGraphDriver, pipeline: vp.Pipeline) -> list[tuple[str, list[Any]]]:
    """The launches since this was last asked: the kernel, and what the descriptions that it takes are of."""
    made = []
    for name, block in fake.ran:
        slots = pipeline.part.steps[0].layout.boxes
        found = [described(block[slot.offset_bytes : slot.offset_bytes + 128]) for slot in slots] if name == BOXES else []
        made.append((name, found))
    fake.ran.clear()
    return made


def of(pipeline: vp.Pipeline, a: vp.Buffer, b: vp.Buffer) -> list[tuple[str, list[Any]]]:
    """One launch over these factors."""
    boxes = {
        "a": (a.handle + a.offset_bytes, 2, 128, a.shape[::-1], (2 * a.shape[1],), (64, 64)),
        "b": (b.handle + b.offset_bytes, 2, 128, b.shape[::-1], (2 * b.shape[1],), (64, 64)),
    }
    return [(BOXES, [boxes[slot.memory.name] for slot in pipeline.part.steps[0].layout.boxes if slot.memory is not None])]


def test_a_bound_launch_takes_what_describes_its_buffers(fake: FakeGraphDriver, device: CudaDevice, pipeline: vp.Pipeline) -> None:
    a, b, c = matrices(device)
    launch = pipeline.bind(a=a, b=b, c=c)
    launch()
    launch()
    assert taken(fake, pipeline) == of(pipeline, a, b) * 2
    pipeline.bind(a=a, b=b, c=c)()  # as another launch of these shapes was
    a2, b2, c2 = matrices(device)
    pipeline.bind(a=a2, b=b2, c=c2)()
    assert taken(fake, pipeline) == of(pipeline, a, b) + of(pipeline, a2, b2)


@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
def test_set_of_a_buffer_describes_it_anew(
    fake: FakeGraphDriver, device: CudaDevice, pipeline: vp.Pipeline, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    a, b, c = matrices(device)
    a2, b2, c2 = matrices(device)
    pipeline.bind(a=a2, b=b2, c=c2)  # so that native code knows all buffers
    launches = [pipeline.bind(a=a, b=b, c=c) for _ in range(2)]  # the second is made as the first was
    if native:
        monkeypatch.setattr(CudaLaunch, "_set", None)  # what Python would do
    for launch in launches:
        for changed in ({"a": a2}, {"c": c2, "b": b2}, {"c": c}, {"b": b, "a": a}):
            (launch.set(**changed) if native else launch.set(changed))()
        assert taken(fake, pipeline) == of(pipeline, a2, b) + of(pipeline, a2, b2) * 2 + of(pipeline, a, b)


def test_where_memory_does_not_allow_boxes_another_entry_is_launched(fake: FakeGraphDriver, device: CudaDevice, pipeline: vp.Pipeline) -> None:
    a, b, c = matrices(device)
    odd = device.allocate(M * K + 1, vp.bf16)[1:].reshape(M, K)
    launch = pipeline.bind(a=a, b=b, c=c)
    for first, name in ((odd, PLAIN), (a, BOXES), (odd, PLAIN)):
        launch.set(a=first)()
        found = taken(fake, pipeline)
        assert found == (of(pipeline, a, b) if name == BOXES else [(PLAIN, [])])
    b2 = matrices(device)[1]
    launch.set(b=b2)()
    launch.set(a=a)()
    assert taken(fake, pipeline) == [(PLAIN, []), *of(pipeline, a, b2)]  # b was set while boxes were out of use


@pytest.mark.parametrize(("m", "n", "k", "name"), [(M, N + 4, K, PLAIN), (M, N, K + 4, PLAIN), (M + 1, N, K, BOXES), (M, N, 0, WIDE), (1, 8, 8, BOXES)])
def test_sizes_choose_the_entry(fake: FakeGraphDriver, device: CudaDevice, pipeline: vp.Pipeline, m: int, n: int, k: int, name: str) -> None:
    a, b, c = matrices(device, m, n, k)
    entry = pipeline.callable()
    for launch in (pipeline.bind(a=a, b=b, c=c), lambda: entry(a, b, c), lambda: entry(a, b, c)):
        launch()
        assert taken(fake, pipeline) == (of(pipeline, a, b) if name == BOXES else [(name, [])])


def test_sequences_and_graphs_follow(fake: FakeGraphDriver, device: CudaDevice, pipeline: vp.Pipeline) -> None:
    a, b, c = matrices(device)
    a2, b2, _ = matrices(device)
    launch = pipeline.bind(a=a, b=b, c=c)
    sequence = device.sequence(launch, launch)
    graph = device.capture(launch)
    sequence()
    graph()
    assert taken(fake, pipeline) == of(pipeline, a, b) * 3
    launch.set(a=a2)
    sequence()
    graph()  # which has the arguments that it was captured with
    assert taken(fake, pipeline) == of(pipeline, a2, b) * 2 + of(pipeline, a, b)
    graph.update()
    graph()
    launch.set(b=b2)
    graph.update()
    graph()
    assert taken(fake, pipeline) == of(pipeline, a2, b) + of(pipeline, a2, b2)


def test_calls_describe_boxes_in_native_code(fake: FakeGraphDriver, device: CudaDevice, pipeline: vp.Pipeline, slow: list[Any]) -> None:
    entry = pipeline.callable()
    for a, b, c in (matrices(device), matrices(device), matrices(device, 64, 192, 320)):
        for one in (a, b, c):
            entry._learn(one)
        assert entry.explain(a, b, c) == []
        entry(a, b, c)
        assert taken(fake, pipeline) == of(pipeline, a, b)
    assert not slow


def test_a_driver_that_refuses_boxes_is_heard(fake: FakeGraphDriver, device: CudaDevice, pipeline: vp.Pipeline) -> None:
    a, b, c = matrices(device)
    a2, b2, _ = matrices(device)
    launch, entry = pipeline.bind(a=a, b=b, c=c), pipeline.callable()
    fake.fail["cuTensorMapEncodeTiled"] = [CUresult.CUDA_ERROR_INVALID_VALUE]
    with pytest.raises(vp.LaunchError, match="boxes of 'a'"):
        launch.set(a=a2)
    launch()
    assert taken(fake, pipeline) == of(pipeline, a, b)  # nothing was changed
    launch.set(a=a2, b=b2)()
    assert taken(fake, pipeline) == of(pipeline, a2, b2)
    for one in (a, b, c):
        entry._learn(one)
    fake.fail["cuTensorMapEncodeTiled"] = [CUresult.CUDA_ERROR_INVALID_VALUE]
    entry(a, b, c)
    assert taken(fake, pipeline) == [(WIDE, [])]  # native code takes the next entry


def test_a_driver_without_boxes_never_gets_them(fake: FakeGraphDriver, device: CudaDevice, artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vyre_py.drivers.cuda.device.encoder", lambda context: 0)
    pipeline = device.load(artifact)
    a, b, c = matrices(device)
    pipeline.bind(a=a, b=b, c=c)()
    pipeline.callable()(a, b, c)
    assert [entry.symbol for entry in pipeline.part.steps[0].entries] == [WIDE, PLAIN]
    assert taken(fake, pipeline) == [(WIDE, [])] * 2


def test_a_launch_for_c_takes_no_boxes(fake: FakeGraphDriver, device: CudaDevice, pipeline: vp.Pipeline) -> None:
    """C may write another buffer's address to the argument block."""
    a, b, c = matrices(device)
    launch = pipeline.bind(a=a, b=b, c=c)
    assert launch.c_address
    launch()
    launch.set(a=matrices(device)[0])()
    assert taken(fake, pipeline) == [(WIDE, [])] * 2


def test_exported_c_takes_no_boxes(artifact: Artifact, tmp_path: Path) -> None:
    """Its block is as long as the kernels' arguments, and what describes boxes stays zero in it."""
    vp.export_c(artifact, tmp_path)
    source = (tmp_path / "matmul.c").read_text(encoding="utf-8")
    size_bytes = artifact.parts[0].steps[0].layout.size_bytes
    assert f'"{WIDE}", "{PLAIN}"' in source and f'"{BOXES}"' not in source and f"bytes[{size_bytes}]" in source


def test_boxes_are_left_out_where_somebody_says_so(artifact: Artifact) -> None:
    (part,) = compile_for(vp.ops.matmul(vp.bf16, tiles=(64, 64, 64)), [parse_target("compute_90a")], vp.CompileOptions(opt=2, boxes=False)).parts
    assert [entry.symbol for entry in part.steps[0].entries] == [WIDE, PLAIN] and not part.steps[0].layout.boxes


@pytest.fixture(scope="module")
def walking() -> Artifact:
    """A product of which other invocations copy than compute."""
    made = compile_for(vp.ops.matmul(vp.bf16, tiles=(128, 64, 64)), [parse_target("compute_90a")], vp.CompileOptions(opt=2))
    return Artifact.from_bytes(made.to_bytes())


CLUSTER = 4  # the number of the attribute


@pytest.mark.parametrize(
    ("m", "n", "grid", "cluster"), [(1280, 136, 8, True), (1152, 136, 8, False), (128, 136, 3, False), (200, 136, 6, True), (1280, 128, 8, False)]
)
def test_a_kernel_that_walks_is_launched_with_the_invocations_that_copy(
    fake: FakeGraphDriver, device: CudaDevice, walking: Artifact, m: int, n: int, grid: int, cluster: bool
) -> None:
    """As many workgroups as run at once; in clusters where the grid has an even number of rows, and those of `b` are no whole lines of L2; native code does
    without these."""
    pipeline = device.load(walking)
    a, b, c = matrices(device, m, n)
    (boxes, *_), groups = pipeline.part.steps[0].entries, [slot.offset_bytes for slot in pipeline.part.steps[0].layout.slots if slot.axis is not None]
    assert (boxes.walks, boxes.cluster, boxes.rows_beside) == (True, 2, 4)
    launch, entry = pipeline.bind(a=a, b=b, c=c), pipeline.callable()
    for call, clustered in ((launch, cluster), (lambda: entry(a, b, c), False), (device.sequence(launch), cluster)):
        fake.launches.clear()
        fake.extended.clear()
        call()
        ((size, workgroup, *_),), ((name, block),) = fake.launches, fake.ran
        fake.ran.clear()
        assert (name, size, workgroup) == (BOXES, (grid, 1, 1), (32, 12, 1))
        assert [int.from_bytes(block[at : at + 4], "little") for at in groups] == [-(-n // 64), -(-m // 128), 1]
        assert fake.extended == ([{CLUSTER: [2, 1, 1]}] if clustered else [])
    odd = device.allocate(m * K + 1, vp.bf16)[1:].reshape(m, K)
    launch.set(a=odd)
    for call in (launch, lambda: entry(odd, b, c)):
        fake.launches.clear()
        call()
        ((size, workgroup, *_),), ((name, _),) = fake.launches, fake.ran
        fake.ran.clear()
        assert (name, size, workgroup) == (PLAIN, (-(-n // 64), -(-m // 128), 1), (32, 8, 1))


@pytest.mark.parametrize("options", [{}, {"persistent": True}, {"interruptible": True}, {"codegen": "nvvm"}], ids=str)
def test_boxes_are_refused_where_they_are_not(options: dict[str, Any]) -> None:
    target = parse_target("compute_90a" if options else "compute_80")
    with pytest.raises(vp.Unsupported, match="boxes=True"):
        compile_for(vp.ops.matmul(vp.bf16, tiles=(64, 64, 64)), [target], vp.CompileOptions(boxes=True, **options))
