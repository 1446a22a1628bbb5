"""`pipeline.callable().c_address`: pipelines as functions for C, called by ctypes without Python's lock. Exported C of the same Programs is the oracle."""

from __future__ import annotations

import ctypes
import random
import threading

import numpy as np
import pytest
from axpy import TEXT_64 as AXPY
from device_kinds import open_device
from exported_c import Exported, artifact_of

import vyre_py as vp
from vyre_py.drivers.cpu.device import CpuDevice
from vyre_py.drivers.sharing.c_callable import CCallableWords
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.statuses import CStatus

SIZES = """program sizes(n, m, k) workgroup(8, 4) over(m, n - 1) {
  param u: u8
  param w: bool
  param v: i64x2
  buffer p: f32[n, m] read
  buffer q: i16x2[n - 1, max(m, k)] read_write
  buffer r: u8[ceil_div(min(n, k) * 3, 2) + 1] write
  let i = global_id.y
  let j = global_id.x
  if w { q[i, j] = q[i, j] + vec2(cast(k, i16), cast(k, i16)) }
  r[j] = u + cast(n, u8) + cast(v.x, u8)
}"""
HUGE = """program huge(n, m) workgroup(1) grid(min(n * m * m * m, 3), 1 + 0 * ceil_div(n, m)) {
  buffer x: u32[n] read
  buffer y: u32[4] read_write
  y[workgroup_id.x] = n + x[0u32]
}"""


def call(address, addresses, sizes, params=b"", stream=None):
    """Calls a function as C does."""
    words = CCallableWords.from_address(address)
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(words.call)
    held = (ctypes.c_void_p * max(1, len(addresses)))(*addresses), (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
    return function(address, held[0], held[1], params, stream)


def arguments_of(address):
    words = CCallableWords.from_address(address)
    return {argument.name.decode(): argument for argument in words.arguments[: words.argument_count]}


def given_to(exported, made):
    """What a struct of exported C says, as the function takes it."""
    interface, addresses, sizes, params = exported.interface, [], [], b""
    for number, memory in enumerate(interface.buffers):
        addresses.append(getattr(made, f"buffer{number}"))
        sizes += [size if size < 1 << 63 else size - (1 << 64) for size in getattr(made, f"shape{number}")[: memory.rank]]
    for number, param in enumerate(interface.params):
        params += bytes(getattr(made, f"param{number}"))[: param.type.size_bytes]
    known = {axis for memory in interface.buffers for axis in memory.shape}
    sizes += [-1 if dim in known else getattr(made, f"dim{number}") for number, dim in enumerate(interface.dims)]
    return addresses, sizes, params


def test_a_function_of_any_sizes():
    entry = open_device("cpu").compile_native(parse(AXPY)).callable()
    words = CCallableWords.from_address(entry.c_address)
    assert (words.device, words.name, words.address_count, words.size_count, words.params_bytes) == (1, b"axpy", 2, 3, 4)
    a, x, n = (arguments_of(entry.c_address)[name] for name in "axn")
    assert (a.kind, a.type, a.offset_bytes, x.kind, x.part_bytes, x.offset_bytes, n.kind, n.offset_bytes) == (2, b"f32", 0, 1, 1, 0, 3, 2)
    for count in (0, 1, 64, 1000, 70_000):
        x, y = np.arange(count, dtype=np.float32), np.ones(count, np.float32)
        sizes = [count, count, -1]
        assert call(entry.c_address, [x.ctypes.data, y.ctypes.data], sizes, np.float32(2).tobytes()) == CStatus.OK
        np.testing.assert_array_equal(y, 2 * x + 1)


def roomy(shape, dtype):
    """An array with memory behind it: a buffer may get another's address, and only what has elements can overlap."""
    room = np.ones(int(np.prod(shape)) + (1 << 16), dtype)
    return room[: int(np.prod(shape))].reshape(shape)


def changed(rng, made, exported):
    """Breaks one thing of a struct, or none."""
    interface = exported.interface
    number = rng.randrange(len(interface.buffers))
    shape = getattr(made, f"shape{number}")
    kind = rng.randrange(7)
    if kind == 0:
        setattr(made, f"buffer{number}", None)
    elif kind == 1:
        setattr(made, f"buffer{number}", (getattr(made, f"buffer{number}") or 0) + rng.choice([1, 2]))
    elif kind == 2:
        setattr(made, f"buffer{number}", getattr(made, f"buffer{rng.randrange(len(interface.buffers))}"))
    elif kind == 3:
        axis = rng.randrange(interface.buffers[number].rank)
        shape[axis] = rng.choice([0, shape[axis] + 1, 1 << 32, 1 << 47, 1 << 63, (1 << 64) - 2])
    elif kind == 4 and hasattr(made, f"dim{len(interface.dims) - 1}"):
        setattr(made, f"dim{len(interface.dims) - 1}", rng.choice([0, 1, 1 << 31, 1 << 40]))


@pytest.mark.parametrize("text", [AXPY, SIZES, HUGE])
def test_random_arguments_get_the_status_of_exported_c(text, tmp_path):
    """A broken rule has the same status in both; where nothing is broken both write the same."""
    exported, entry = Exported(artifact_of(text), tmp_path), open_device("cpu").compile_native(parse(text)).callable()
    rng, seen, interface = random.Random(11), set(), exported.interface
    for _ in range(600):
        n, m, k = (rng.choice([0, 1, 2, 3, 7, 17, 64]) for _ in range(3))
        shapes = {"x": (n,), "y": (4,) if "huge" in text else (n,), "p": (n, m), "q": (max(n - 1, 0), max(m, k), 2), "r": ((min(n, k) * 3 + 1) // 2 + 1,)}
        memories = {memory.name: memory for memory in interface.buffers}
        arrays = {name: roomy(shapes[name], memory.type.dtype) for name, memory in memories.items()}
        made = exported.pack(a=2.0, u=3, w=True, v=(1, 2), m=rng.choice([0, 5, 1 << 20, 1 << 31]), k=k, **arrays)
        changed(rng, made, exported)
        before = {name: array.copy() for name, array in arrays.items()}
        addresses, sizes, params = given_to(exported, made)
        if any(size < 0 for size in sizes[: -len(interface.dims)]):  # a size of C is unsigned
            assert call(entry.c_address, addresses, sizes, params) in (CStatus.SIZE, CStatus.SHAPE)
            continue
        status = exported.run(ctypes.byref(made))
        wanted = {name: array.copy() for name, array in arrays.items()}
        for name, array in before.items():
            arrays[name][...] = array
        assert call(entry.c_address, addresses, sizes, params) == status
        seen.add(CStatus(status))
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, wanted[name] if status == 0 else before[name])
    assert seen >= {CStatus.OK, CStatus.SHAPE} and len(seen) >= 4, seen


def test_what_the_device_says():
    device = CpuDevice(0)
    entry = device.compile_native(parse(AXPY)).callable()
    given = ([0, 0], [0, 0, -1], bytes(4))
    assert call(entry.c_address, *given) == CStatus.OK
    assert call(entry.c_address, *given, stream=8) == CStatus.STREAM
    x, y = device.upload(np.ones(5, np.float32)), device.upload(np.ones(5, np.float32))
    seen = []

    def capture() -> None:
        seen.append(call(entry.c_address, *given))
        entry(x, y, 1.0)

    device.capture(capture)
    assert seen == [CStatus.BUSY] and call(entry.c_address, *given) == CStatus.OK
    device.close()
    assert call(entry.c_address, *given) == CStatus.LOST


def test_what_needs_more_than_arguments_has_none():
    with pytest.raises(Unsupported, match=r"callable\(\).c_address"):
        _ = open_device("reference").compile_native(parse(AXPY)).callable().c_address
    with pytest.raises(Unsupported, match="code that can be ended"):
        _ = open_device("cpu").compile_native(parse(AXPY), vp.CompileOptions(interruptible=True)).callable().c_address


def test_kernels_are_run_by_others():
    """As a caller with threads of its own does: the plan, then ranges of workgroups."""
    entry = open_device("cpu").compile_native(parse(AXPY)).callable()
    words = CCallableWords.from_address(entry.c_address)
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    addresses, sizes = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data), (ctypes.c_int64 * 3)(1000, 1000, -1)
    block, grid = (ctypes.c_char * words.block_bytes)(), (ctypes.c_int64 * 7)()
    number = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(words.plan)(addresses, sizes, np.float32(3).tobytes(), block, grid)
    assert number >= 0 and list(grid) == [16, 1, 1, 16, 1, 1, 1000] and list(words.workgroup) == [64, 1, 1]
    kernel = words.kernels[number]
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_uint32] * 3)(kernel.function)
    rooms = [ctypes.create_string_buffer(kernel.scratch_bytes + 64) for _ in range(2)]
    aligned = [ctypes.addressof(room) + 63 & ~63 for room in rooms]
    threads = [threading.Thread(target=run, args=(block, aligned[part], 8 * part, 8 * part + 8, 16, 1, 1)) for part in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(y, 3 * x + 1)
