"""The life of a CUDA device: warming up, trimming, closing and the interpreter's exit in any order, and forks.

What ends a process runs in one. This module is also the program that such a process runs: `python test_cuda_life.py fake|cuda ORDER...` forks
once for each order, before CUDA is initialised, and prints how each child ended.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import inject
import numpy as np
import pytest
import test_cuda_faults as faults
from axpy import AXPY
from children import child_environment
from device_kinds import open_device
from inject import InjectedDriver

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.errors import DeviceLost, DeviceUnavailable

# ---------------------------------------------------------------- orders: each runs in a process of its own, to its end

Made = faults.World
# The stand-in, where there is no GPU.
stand_in: list[InjectedDriver] = []
# What is still there when the interpreter ends.
kept: list[Any] = []


def made() -> Made:
    """One of everything, on a device that was just opened."""
    return faults.World(vp.device("cuda"))  # type: ignore[arg-type]  # a device of this kind is a CudaDevice


def closed(world: Made) -> None:
    """Closes the device, and says what is left."""
    world.device.close()
    require_nothing_left(world)


def require_nothing_left(world: Made) -> None:
    world.__dict__.clear()
    gc.collect()
    for driver in stand_in:
        if left := driver.left():
            print("left:", left)


def everything_dropped_then_closed() -> None:
    world = made()
    device = world.device
    world.__dict__.clear()
    gc.collect()
    device.close()
    world.device = device
    require_nothing_left(world)


def closed_then_everything_dropped() -> None:
    closed(made())


def closed_twice() -> None:
    world = made()
    world.device.close()
    closed(world)


def outlives(*names: str) -> Callable[[], None]:
    """The device is closed while these are held, and only these; then they go."""

    def order() -> None:
        world = made()
        held, device = [getattr(world, name) for name in names], world.device
        world.__dict__.clear()
        gc.collect()
        device.close()
        while held:
            held.pop()
            gc.collect()
        require_nothing_left(world)

    return order


def never_closed() -> None:
    kept.append(made())


def never_closed_in_a_cycle() -> None:
    world = made()
    world.itself = world  # type: ignore[attr-defined]  # that is the point


def never_closed_without_the_collector() -> None:
    gc.disable()
    world = made()
    world.itself = world  # type: ignore[attr-defined]  # that is the point


def dropped_without_the_collector() -> None:
    gc.disable()
    world = made()
    world.__dict__.clear()


def exit_within_an_exception() -> None:
    world = made()
    try:
        {}[world]
    except KeyError:
        raise SystemExit(3) from None


def exit_within_a_capture() -> None:
    world = made()
    world.device.capture(lambda: (world.launch(), sys.exit(4)))


def an_exception_that_nobody_catches() -> None:
    world = made()
    world.launch()
    raise RuntimeError(f"meant, {len(world.x)}")


def a_daemon_launches() -> None:
    world = made()

    def work() -> None:
        while True:
            world.launch()

    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.05)


def a_daemon_dispatches() -> None:
    world = made()

    def work() -> None:
        while True:
            world.pipeline.dispatch(world.given)
            world.pipeline.dispatch(world.large)

    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.05)


def a_daemon_replays() -> None:
    world = made()

    def work() -> None:
        while True:
            world.graph()
            world.sequence()

    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.05)


def a_thread_goes_on_after_the_main_one() -> None:
    world = made()

    def work() -> None:
        time.sleep(0.05)
        inject.expect(world.pipeline.dispatch(world.given)["y"], [1, 3, 5, 7])
        inject.expect(world.pipeline.dispatch(world.large)["y"], 2 * inject.ramp(100_000) + 1)

    threading.Thread(target=work).start()


def used_and_closed_at_exit() -> None:
    kept.append(None)
    atexit.register(lambda: kept[0].device.close())  # noqa: PLW0108 - there is no device yet
    kept[0] = made()
    atexit.register(lambda: inject.expect(kept[0].pipeline.dispatch(kept[0].given)["y"], [1, 3, 5, 7]))


def results_that_nobody_takes() -> None:
    world = made()
    kept.extend(world.pipeline.submit(world.large) for _ in range(5))
    world.pipeline.submit(world.given)


def freed_by_a_destructor_at_exit() -> None:
    class Owner:
        def __init__(self) -> None:
            self.world = made()

        def __del__(self) -> None:
            self.world.x.free()
            self.world.device.close()

    kept.append(Owner())
    kept.append(kept)


def trimmed_then_exit() -> None:
    world = made()
    world.device.trim()
    kept.append(world)


def opened_again() -> None:
    world = made()
    world.device.close()
    again = made()
    assert again.device is not world.device and vp.device("cuda") is again.device
    inject.expect(again.pipeline.dispatch(again.given)["y"], [1, 3, 5, 7])
    again.device.close()
    world.__dict__.clear()
    require_nothing_left(again)


def closed_while_others_launch() -> None:
    world = made()
    seen: list[BaseException] = []

    def work(call: Callable[[], Any]) -> None:
        try:
            while True:
                call()
        except DeviceLost as error:
            seen.append(error)

    calls = (world.launch, world.sequence, world.graph, world.launch)
    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    world.device.close()
    for thread in threads:
        thread.join(20.0)
    assert len(seen) == len(calls) and all("is closed" in str(error) for error in seen), seen
    del seen[:], threads[:], calls
    require_nothing_left(world)


def closed_by_several_threads() -> None:
    world = made()
    threads = [threading.Thread(target=world.device.close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    closed(world)


def lost_then_exit() -> None:
    world = made()
    world.device.lose("meant")
    kept.append(world)


def ended_at_once() -> None:
    kept.append(made())
    os._exit(0)


_HELD = (
    "launch", "x", "y", "pipeline", "flag", "counter", "sequence", "graph", "loop", "pending", "other_pending", "event", "stream", "raw", "artifact", "plan",
    "arena", "constant", "fill_step", "copy_step",
)  # fmt: skip
_ENDS = (
    everything_dropped_then_closed, closed_then_everything_dropped, closed_twice, never_closed, never_closed_in_a_cycle, never_closed_without_the_collector,
        dropped_without_the_collector, exit_within_an_exception, exit_within_a_capture, an_exception_that_nobody_catches, a_daemon_launches,
        a_daemon_dispatches, a_daemon_replays, a_thread_goes_on_after_the_main_one, used_and_closed_at_exit, results_that_nobody_takes,
        freed_by_a_destructor_at_exit, trimmed_then_exit, opened_again, closed_while_others_launch, closed_by_several_threads, lost_then_exit, ended_at_once,
)  # fmt: skip
ORDERS: dict[str, Callable[[], None]] = {
    **{order.__name__: order for order in _ENDS},
    **{f"outlived by {name}": outlives(name) for name in _HELD},
    "outlived by all": outlives(*_HELD),
    "outlived by all, backwards": outlives(*_HELD[::-1]),
}
CODES = {"exit_within_an_exception": 3, "exit_within_a_capture": 4, "an_exception_that_nobody_catches": 1}
# On a GPU, where each takes a second, the holders go together.
ON_GPU = [name for name in ORDERS if not name.startswith("outlived by ") or "all" in name]


# ---------------------------------------------------------------- forks


def in_child(world: Made) -> list[str]:
    """What is wrong in a forked child of a process that has a device."""
    wrong = []
    calls = [driver.made_calls for driver in stand_in]
    for name, call in faults.REFUSED.items():
        try:
            given = call(world)
        except DeviceLost as error:
            if "was opened before this process was forked" not in str(error):
                wrong.append(f"{name}: {error}")
        except BaseException as error:  # noqa: BLE001 - the table says what it has to be
            wrong.append(f"{name}: {error!r}")
        else:
            wrong.append(f"{name} gave {given!r}")
    for again in (lambda: vp.device("cuda"), lambda: vp.device("cuda:0")):
        try:
            wrong.append(f"a device was opened: {again()}")
        except DeviceUnavailable as error:
            if "was forked from one that had used CUDA" not in str(error):
                wrong.append(str(error))
    if vp.is_available("cuda"):
        wrong.append("cuda is said to be there")
    own = vp.device("cpu").compile_native(AXPY).dispatch(world.given)["y"]
    inject.expect(own, [1, 3, 5, 7])
    for name, answer in faults.ANSWERS.items():
        try:
            answer(world)
        except BaseException as error:  # noqa: BLE001 - none is allowed
            wrong.append(f"{name} raised {error!r}")
    world.__dict__.clear()
    gc.collect()
    if calls != [driver.made_calls for driver in stand_in]:
        wrong.append(f"the driver was called: {stand_in[0].log[-10:]}")
    return wrong


def forked(world: Made) -> bool:
    """Forks; in the child says what is wrong, and ends it as a program ends. In the parent whether all is well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 says that forks beside threads are unwise, which is what is looked at
        pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        print("\n".join(in_child(world)), end="", flush=True)
        sys.exit(0)
    return os.waitpid(pid, 0)[1] == 0


def fork() -> None:
    world = made()
    assert forked(world)
    inject.expect(world.pipeline.dispatch(world.given)["y"], [1, 3, 5, 7])
    world.graph()
    world.x.read()
    assert forked(world)
    closed(world)


def fork_while_others_work() -> None:
    """Threads of the parent hold locks, and are in calls, when it forks."""
    world = made()
    over = threading.Event()

    def work(call: Callable[[], Any]) -> None:
        while not over.is_set():
            call()

    calls = (
        world.launch, world.graph, lambda: world.pipeline.dispatch(world.given), lambda: world.device.allocate(100, vp.f32),
        lambda: world.device.record_event().wait(), lambda: world.pipeline.submit(world.given), lambda: world.device.upload(inject.ramp(50_000)).read(),
        lambda: world.device.resident.drop(world.device.resident.put(inject.ramp(4))), lambda: world.device.constant(inject.ramp(5)),
    )  # fmt: skip
    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    try:
        assert all(forked(world) for _ in range(3))
    finally:
        over.set()
        for thread in threads:
            thread.join()
    del threads, calls
    closed(world)


def fork_of_a_child_that_opens_its_own() -> None:
    pid = os.fork()  # before CUDA is used
    if pid == 0:
        world = made()
        inject.expect(world.pipeline.dispatch(world.given)["y"], [1, 3, 5, 7])
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    world = made()
    inject.expect(world.pipeline.dispatch(world.given)["y"], [1, 3, 5, 7])


FORKS: dict[str, Callable[[], None]] = {f.__name__: f for f in (fork, fork_while_others_work, fork_of_a_child_that_opens_its_own)}


# ---------------------------------------------------------------- the program


def main(kind: str, *names: str) -> None:
    """Runs each order in a forked child, to the interpreter's own end, and prints exit codes and what was said."""
    if kind == "fake":
        stand_in.append(driver := InjectedDriver(total=1 << 26))
        driver.kernels = dict(inject.KERNELS)
        bindings = ModuleType("cuda.bindings")
        bindings.driver = driver  # type: ignore[attr-defined]  # a stand-in for the package
        sys.modules["cuda.bindings"] = bindings
    inject.compile_ahead()
    ended = {}
    for name in names:
        with tempfile.TemporaryFile() as said:
            pid = os.fork()
            if pid == 0:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                signal.alarm(100)
                (ORDERS | FORKS)[name]()
                return
            _, status = os.waitpid(pid, 0)
            said.seek(0)
            ended[name] = (os.waitstatus_to_exitcode(status), said.read().decode())
    print(json.dumps(ended))


def ended(kind: str, names: list[str]) -> dict[str, Any]:
    """How processes ended that ran orders: exit code and output, by name."""
    environment = child_environment()
    done = subprocess.run([sys.executable, __file__, kind, *names], capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def problems(found: dict[str, Any]) -> str:
    wrong = []
    for name, (code, said) in found.items():
        is_meant = said.startswith("Traceback") and said.endswith("RuntimeError: meant, 4\n")
        quiet = is_meant if name == "an_exception_that_nobody_catches" else not said
        if code != CODES.get(name, 0) or not quiet:
            wrong.append(f"{name} ended with {code}:\n{said}")
    return "\n".join(wrong)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@needs_fork
def test_any_order_is_quiet() -> None:
    found = ended("fake", list(ORDERS))
    assert set(found) == set(ORDERS) and not problems(found), problems(found)


@needs_fork
@pytest.mark.parametrize("name", FORKS)
def test_a_forked_child_is_refused_by_name(name: str) -> None:
    found = ended("fake", [name])
    assert not problems(found), problems(found)


@needs_fork
def test_any_order_is_quiet_on_a_gpu() -> None:
    open_device("cuda")
    found = ended("cuda", ON_GPU)
    assert set(found) == set(ON_GPU) and not problems(found), problems(found)


@needs_fork
def test_a_forked_child_is_refused_by_name_on_a_gpu() -> None:
    open_device("cuda")
    found = ended("cuda", list(FORKS))
    assert not problems(found), problems(found)


# ---------------------------------------------------------------- warmup and trim


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> InjectedDriver:
    made_driver = InjectedDriver(total=1 << 26)
    made_driver.kernels = dict(inject.KERNELS)
    faults.install(monkeypatch)(made_driver)
    return made_driver


def test_warmup_does_what_the_first_call_would(fake: InjectedDriver) -> None:
    device = CudaDevice(0)
    device.warmup()
    pipeline, given = device.compile_native(AXPY), {"x": inject.ramp(4), "y": np.ones(4, np.float32), "a": 2.0}
    fake.log.clear()
    pipeline.dispatch(given)
    assert not {"cuStreamCreate", "cuModuleLoadDataEx", "cuMemPoolCreate"} & set(fake.log)
    device.warmup()
    device.trim()
    assert not inject.idle_problems(device)
    device.close()
    assert not fake.left()


def test_trim_keeps_what_is_resident_bound_and_captured(fake: InjectedDriver) -> None:
    device = CudaDevice(0)
    world = faults.World(device)
    world.pending.result()
    world.other_pending.result()
    before = world.x.read()
    handles = dict(fake.alive_handles)
    device.trim()
    left = [what for handle, what in fake.alive_handles.items() if handle in handles]
    assert left.count("executable") == 1  # of the graph whose memory is there
    assert left.count("stream") == 3 and left.count("event") == 1  # two of the device's, one that the user holds
    assert device.memory.cached_bytes == device.pinned_pool.cached_bytes == device.arenas.kept_bytes == len(device._pipelines) == 0
    assert not world.pipeline._prepared.sets
    assert np.array_equal(world.x.read(), before) and np.array_equal(world.constant.read(), inject.ramp(4))
    world.launch()
    world.sequence()
    world.graph()
    world.graph.update()
    assert np.array_equal(device.resident.get(world.handle).read(), inject.ramp(4)) and world.arena["a"].read().size == 4
    inject.expect(world.pipeline.dispatch(world.given)["y"], [1, 3, 5, 7])
    device.resident.clear()
    world.__dict__.clear()
    gc.collect()
    device.trim()
    assert not inject.idle_problems(device), inject.idle_problems(device)
    assert sorted(fake.alive_handles.values()) == ["pool", "stream", "stream"]
    device.close()
    assert not fake.left()


def test_trim_lets_go_of_words(fake: InjectedDriver) -> None:
    device = CudaDevice(0)
    launch = device.compile_native(inject.LOOP, vp.CompileOptions(interruptible=True)).bind(y=device.allocate(4, vp.u32))
    device.trim()
    assert len(fake.blocks) == 2  # the buffer, and the words of which the launch has one
    launch()
    del launch
    gc.collect()
    device.trim()
    assert not fake.blocks
    device.close()


def test_a_closed_or_trimmed_device_in_a_capture(fake: InjectedDriver) -> None:
    device = CudaDevice(0)
    world = faults.World(device)
    for call in (device.trim, device.warmup, device.close):
        with pytest.raises(vp.LaunchError, match="captured"):
            device.capture(lambda call=call: (world.launch(), call()))
    world.launch()
    device.close()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except AssertionError:
        traceback.print_exc()
        sys.exit(9)
