"""Several GPUs: in one process, and one for each of several. `make test-gpus` runs these; with fewer GPUs they are skipped, and say so."""

from __future__ import annotations

import os
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axpy import AXPY
from gpu_jobs import copied, gpu_count
from ranks import run_ranks

import vyre_py as vp

# JAX takes most of a GPU's memory at once unless it is told not to.
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "VYRE_CACHE_LIMIT": "0"}
SOON = 10.0


def required(what: str) -> bool:
    """Whether VYRE_REQUIRE_DEVICES names something."""
    return what in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(",")


def need_gpus(count: int) -> None:
    """Fewer GPUs skip the test, or fail it where `gpus` are required; of more than two only what there is can be required."""
    if (here := gpu_count()) < count:
        said = f"{count} GPUs are needed, and {here} are here"
        if required("gpus") and count <= 2:
            pytest.fail(said)
        pytest.skip(said)


def need(package: str) -> None:
    """A package that is missing skips the test, or fails it where it is required by name."""
    if find_spec(package) is None:
        if required(package):
            pytest.fail(f"{package} is required")
        pytest.skip(f"{package} is not installed")


@pytest.fixture(params=[2, 4])
def count(request: pytest.FixtureRequest) -> int:
    """How many ranks."""
    need_gpus(request.param)
    found: int = request.param
    return found


# ---- in one process


def test_copies_where_gpus_reach_each_other(tmp_path: Path) -> None:
    need_gpus(2)
    first, second = vp.device("cuda:0"), vp.device("cuda:1")
    copied(first, second)
    copied(second, first)
    threads = [threading.Thread(target=copied, args=pair) for pair in ((first, second), (second, first))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_copies_by_the_driver_s_own_way(tmp_path: Path) -> None:
    need_gpus(2)
    run_ranks("gpu_jobs:copies_by_the_driver", 1, tmp_path, seconds=60, environment=SHARED)


def test_buffers_of_two_devices_are_kept_apart() -> None:
    need_gpus(2)
    first, second = vp.device("cuda:0"), vp.device("cuda:1")
    x, y = first.upload(np.arange(1000, dtype=np.float32)), second.upload(np.ones(1000, np.float32))
    with pytest.raises(vp.BindingError, match="cuda:1"):
        first.compile_native(AXPY).bind(x=x, y=y, a=2.0)
    results = []
    for device in (first, second):
        z = device.upload(np.ones(1000, np.float32))
        launch = device.compile_native(AXPY).bind(x=device.upload(np.arange(1000, dtype=np.float32)), y=z, a=2.0)
        graph = device.capture(device.sequence(launch, launch))
        results.append((launch, graph, z))
    for _ in range(10):  # in turns: each on its own device, whichever was used last
        for launch, graph, _ in results:
            launch()
            graph()
    for _, _, z in results:
        np.testing.assert_array_equal(z.read(), 60 * np.arange(1000, dtype=np.float32) + 1)


def test_the_current_device_of_pytorch_stays(tmp_path: Path) -> None:
    """Whatever is done on two devices, and whichever PyTorch has current, in several threads."""
    need_gpus(2)
    need("torch")
    import torch

    devices = [vp.device("cuda:0"), vp.device("cuda:1")]
    entries = [device.compile_native(AXPY).callable() for device in devices]
    failed: list[BaseException] = []

    def work(current: int) -> None:
        try:
            with torch.cuda.device(current):
                tensors = [torch.arange(1000.0, device=f"cuda:{number}") for number in (0, 1)]
                for _ in range(20):
                    for number, device in enumerate(devices):
                        out = torch.zeros(1000, device=f"cuda:{number}")
                        entries[number](tensors[number], out, 2.0)
                        buffer = device.upload(np.ones(10, np.float32))
                        device.synchronize()
                        assert buffer.read().sum() == 10 and torch.cuda.current_device() == current
                        here = torch.ones(4, device="cuda")  # where PyTorch thinks it is
                        assert here.device.index == current and here.sum().item() == 4
                        torch.testing.assert_close(out, 2 * tensors[number])
                    moved = devices[1].upload(np.zeros(10, np.float32))
                    devices[1].copy_peer(devices[0].upload(np.arange(10, dtype=np.float32)), moved)
                    assert moved.read().sum() == 45 and torch.cuda.current_device() == current
                with pytest.raises((vp.BindingError, BufferError)):
                    entries[0](tensors[1], torch.zeros(1000, device="cuda:1"), 1.0)
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in failed:
        raise error


# ---- one process for each GPU


@pytest.mark.parametrize("library", ["nccl", "torch", "cupy"])
def test_collectives(count: int, library: str, tmp_path: Path) -> None:
    if library != "nccl":
        need(library)
    found = run_ranks("rank_jobs:collectives", count, tmp_path, seconds=120, environment=SHARED, library=library)
    assert [one["ranks"] for one in found] == [count] * count


def test_replays_beside_pytorch(count: int, tmp_path: Path, record_property: Any) -> None:
    need("torch")
    for found in run_ranks("rank_jobs:replays", count, tmp_path, seconds=120, environment=SHARED):
        assert found["whole"]
        print("reals have PyTorch's bits:", found["same bits"], "farthest:", found["farthest"])


@pytest.mark.parametrize(("library", "waits"), [("nccl", True), ("nccl", False), ("torch", True), ("cupy", True)])
def test_a_rank_that_is_killed(count: int, library: str, waits: bool, tmp_path: Path) -> None:
    """The others raise within 10 s, whether they wait or enqueue more and more."""
    if library != "nccl":
        need(library)
    found = run_ranks("rank_jobs:lost_rank", count, tmp_path, seconds=75, environment=SHARED, killed=(count - 1,), library=library, waits=waits, timeout=3.0)
    for one in found[:-1]:
        print(f"{one['seconds']:.2f} s: {one['said']}")
        assert one["seconds"] < SOON


def test_a_stencil_has_the_bits_of_one_gpu(count: int, tmp_path: Path) -> None:
    run_ranks("rank_jobs:stencil", count, tmp_path, seconds=90, environment=SHARED, shape=[1000, 777])


# ---- engines


def test_programs_under_shard_map(tmp_path: Path) -> None:
    need_gpus(2)
    need("jax")
    run_ranks("gpu_jobs:jax_shards", 1, tmp_path, seconds=150, environment=SHARED, gpus=gpu_count())


def test_a_worker_of_dask_for_each_gpu(tmp_path: Path) -> None:
    need_gpus(2)
    need("distributed")
    run_ranks("gpu_jobs:dask_workers", 1, tmp_path, seconds=150, environment=SHARED, gpus=gpu_count())
