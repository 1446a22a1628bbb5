"""Which entry of a kernel is launched on CUDA, over the stand-in for the driver: chosen at bind, and again by whatever changes the arguments."""

from __future__ import annotations

import struct
import threading

import numpy as np
import pytest
from axpy import AXPY, axpy_kernel
from device_kinds import open_device
from fake_device import installed, opened
from fake_graphs import FakeGraphDriver

import vyre_py as vp

N = 1030
PLAIN, WIDE = "vyre_axpy", "vyre_axpy_x4"


@pytest.fixture
def fake(monkeypatch):
    driver = installed(monkeypatch, FakeGraphDriver(total=1 << 28))
    driver.ran = []

    def wide(block):
        assert all(address % 16 == 0 for address in struct.unpack_from("<QQ", block))
        driver.ran.append(WIDE)
        axpy_kernel(block)

    def plain(block):
        driver.ran.append(PLAIN)
        axpy_kernel(block)

    driver.kernels = {WIDE: wide, PLAIN: plain}
    return driver


@pytest.fixture
def device(fake):
    with opened(fake) as made:
        yield made


def arrays(device):
    """x, one element on from where it begins, and y: each with N elements."""
    whole = device.upload(np.arange(N + 4, dtype=np.float32))
    return whole[:N], whole[1 : N + 1], device.upload(np.zeros(N, np.float32))


def taken(fake):
    names, fake.ran = fake.ran, []
    return names


def test_bind_chooses(device, fake):
    pipeline = device.compile_native(AXPY)
    x, shifted, y = arrays(device)
    for given, config, name, groups in (
        (x, None, WIDE, 2), (shifted, None, PLAIN, 5), (x, vp.DispatchConfig(grid=(5, 1, 1)), PLAIN, 5), (x, vp.DispatchConfig(cluster=(5, 1, 1)), PLAIN, 5),
    ):  # fmt: skip
        fake.launches.clear()
        pipeline.bind(x=given, y=y, a=1.0, config=config)()
        assert taken(fake) == [name] and fake.launches[-1][0] == (groups, 1, 1)
    np.testing.assert_array_equal(y.read(), 4 * np.arange(N) + 1)


def test_set_chooses_again(device, fake):
    x, shifted, y = arrays(device)
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=1.0)
    for given, name in ((shifted, PLAIN), (shifted, PLAIN), (x, WIDE), (x, WIDE), (shifted, PLAIN), (x, WIDE)):
        assert launch.set(x=given) is launch
        launch()
        assert taken(fake) == [name]
    assert launch.kernel.calls.frozen == 0, "buffers are set by native code again"
    launch.set(a=2.0)()
    assert taken(fake) == [WIDE] and launch.raw.function in {handle for handle, found in fake.functions.items() if found == WIDE}
    counted = device.telemetry.snapshot()
    assert counted["launches"] == 7 and counted["elements_launched"] == 7 * N


def test_needs_of_fewer_bytes(device, fake):
    """Memory that begins on a multiple of 4 is not like memory that begins anywhere, although neither begins on one of 16."""
    fake.kernels = {"vyre_p_x4": lambda block: fake.ran.append("wide"), "vyre_p": lambda block: fake.ran.append("plain")}
    widened = vp.Program.from_text("""program p(n) workgroup(64) {
  buffer x: u8[n] read
  buffer y: f32[n] write
  let i = global_id.x
  y[i] = cast(x[i], f32)
}""")
    whole, y = device.upload(np.zeros(N + 64, np.uint8)), device.allocate(N, vp.f32)
    launch = device.compile_native(widened).bind(x=whole[4 : 4 + N], y=y)
    for begin, name in ((4, "wide"), (1, "plain"), (2, "plain"), (8, "wide"), (16, "wide"), (3, "plain"), (20, "wide")):
        launch.set(x=whole[begin : begin + N])()
        assert taken(fake) == [name], begin


def test_an_entry_that_cannot_be_entered_changes_nothing(device, fake, monkeypatch):
    x, shifted, y = arrays(device)
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=1.0)
    real = launch.kernel._choose

    def refuses(plan):
        real(plan)
        raise vp.LaunchError("it does not fit")

    monkeypatch.setattr(type(launch.kernel), "_choose", lambda kernel, plan: refuses(plan))
    for _ in range(2):
        with pytest.raises(vp.LaunchError, match="does not fit"):
            launch.set(x=shifted)
    monkeypatch.undo()
    launch()
    assert taken(fake) == [WIDE] and launch.kernel.calls.frozen == 0
    assert launch.set(x=shifted)() is None and taken(fake) == [PLAIN]


def test_views_of_a_launch_with_one_entry_are_set_as_before(device, fake):
    x, shifted, y = arrays(device)
    launch = device.compile_native(AXPY, vp.CompileOptions(opt=1)).bind(x=x, y=y, a=1.0)
    for given in (shifted, x, shifted):
        launch.set(x=given)()
    assert taken(fake) == [PLAIN] * 3


def test_sequences_and_graphs_follow(device, fake):
    x, shifted, y = arrays(device)
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=1.0)
    sequence = device.sequence(launch, launch)
    graph = device.capture(launch)
    sequence()
    graph()
    assert taken(fake) == [WIDE] * 3
    launch.set(x=shifted)
    sequence()
    graph()  # as it was captured
    assert taken(fake) == [PLAIN, PLAIN, WIDE]
    assert graph.update(launch) == 1
    graph()
    launch.set(x=x)
    graph()
    sequence()
    assert taken(fake) == [PLAIN, PLAIN, WIDE, WIDE]
    assert graph.update() == 1 and graph.update() == 0
    graph()
    assert taken(fake) == [WIDE]


def test_threads_that_set_and_launch(device, fake):
    """A launch is all of one entry: the wide one never sees an address that it cannot take (`fake` looks)."""
    x, shifted, y = arrays(device)
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=0.0)
    wrong: list[BaseException] = []

    def work(number):
        try:
            for turn in range(60):
                if number % 2:
                    launch.set(x=(x, shifted)[turn % 2])
                launch()
        except BaseException as error:  # noqa: BLE001 - shown below
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(taken(fake)) == 240


# ---- on a GPU

BODIES = {
    "axpy": "param a: f32; buffer x: f32[n] read; buffer y: f32[n] read_write; let i = global_id.x; y[i] = a * x[i] + y[i]",
    "bytes": "buffer x: u8[n] read; buffer y: u8[n] read_write; let i = global_id.x; y[i] = x[i] * 3u8 + y[i]",
    "halves": "buffer x: f16[n] read; buffer y: f16[n] read_write; let i = global_id.x; y[i] = x[i] + y[i]",
    "doubles": "buffer x: f64[n] read; buffer y: f64[n] read_write; let i = global_id.x; y[i] = x[i] * 0.5 + y[i]",
    "some": "buffer x: i32[n] read; buffer y: i32[n] read_write; let i = global_id.x; if x[i] > 20i32 { y[i] = x[i] }",
}


@pytest.mark.parametrize("name", BODIES)
def test_views_on_a_gpu(name):
    device, reference = open_device("cuda"), vp.device("reference")
    made = vp.Program.from_text("program p(n) workgroup(128) {\n" + "\n".join(BODIES[name].split(";")) + "\n}")
    x_type, y_type = (memory.type.dtype for memory in made.buffers)
    numbers = np.random.default_rng(5)
    pipeline, oracle = device.compile_native(made), reference.compile_native(made)
    scalars = {"a": np.float32(1.5)} if made.params else {}
    for n in (1, 2, 15, 16, 17, 1000, 4099):
        for x_from, y_from in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 8), (16, 32)):
            x, y = numbers.integers(0, 50, n + 64).astype(x_type), numbers.integers(0, 50, n + 64).astype(y_type)
            xd, yd = device.upload(x), device.upload(y)
            launch = pipeline.bind({"x": xd[x_from : x_from + n], "y": yd[y_from : y_from + n], **scalars})
            launch()
            want = y.copy()
            want[y_from : y_from + n] = oracle.dispatch({"x": x[x_from : x_from + n], "y": y[y_from : y_from + n], **scalars})["y"]
            np.testing.assert_array_equal(yd.read(), want, err_msg=f"{name} {n} {x_from} {y_from}")
            launch.set(x=xd[3 : 3 + n])()  # a bind's choice that no longer holds
            want[y_from : y_from + n] = oracle.dispatch({"x": x[3 : 3 + n], "y": want[y_from : y_from + n], **scalars})["y"]
            np.testing.assert_array_equal(yd.read(), want, err_msg=f"{name} {n} {x_from} {y_from} after set")


def test_whole_vectors_are_for_memory_that_begins_on_a_multiple_of_their_size(device, fake):
    """A gather, whose places nobody knows before: the vectors' memory alone decides, at bind and by set."""
    fake.kernels = {name: (lambda block, name=name: fake.ran.append(name)) for name in ("vyre_gather", "vyre_gather_x1")}
    pipeline = device.compile_native(vp.Program.from_text("""program gather(n, m) workgroup(64) {
  buffer places: u32[n] read
  buffer x: f32x4[m] read
  buffer y: f32x4[n] write
  let i = global_id.x
  y[i] = x[places[i]]
}"""))
    words, y = device.upload(np.zeros(4 * N + 4, np.float32)), device.allocate(N, vp.f32x4)
    whole, shifted = words[: 4 * N].view(vp.f32x4), words[1 : 4 * N + 1].view(vp.f32x4)
    places = device.upload(np.zeros(N + 1, np.uint32))[1:]
    launch = pipeline.bind(places=places, x=whole, y=y)
    for x, name in ((whole, "vyre_gather_x1"), (shifted, "vyre_gather"), (whole, "vyre_gather_x1")):
        launch.set(x=x)()
        pipeline.bind(places=places, x=x, y=y)()
        assert taken(fake) == [name, name]
