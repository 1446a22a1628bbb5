"""Handlers for XLA on GPUs, over a stand-in for the driver: called by C, which lays a call frame out as XLA's own header says."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compilers import compile_c
from fake_cuda import FakeDriver
from fake_device import installed

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.ir.passes.stored_params import with_stored_params
from vyre_py.ir.text.parser import parse

try:
    import jax
except ImportError:  # it is among the packages of the extra `dev`
    if "jax" in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
        raise
    pytest.skip("jax is not installed", allow_module_level=True)

from vyre_py.interop.jax import vyre_call, xla_target

AXPY = """program on_gpus(n) workgroup(64) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  let i = global_id.x
  y[i] = a * x[i] + y[i]
}"""

CALL = r"""
#include "xla/ffi/api/c_api.h"
#include <stdio.h>
#include <string.h>

static char message[512];
static int code, refuse_stream;
static void *stream;
static int32_t ordinal;

static XLA_FFI_Error *create(XLA_FFI_Error_Create_Args *args)
{
    snprintf(message, sizeof message, "%s", args->message);
    code = args->errc;
    return (XLA_FFI_Error *)&code;
}

static XLA_FFI_Error *tell_stream(XLA_FFI_Stream_Get_Args *args)
{
    if (args->struct_size < XLA_FFI_Stream_Get_Args_STRUCT_SIZE || args->ctx != (XLA_FFI_ExecutionContext *)77 || refuse_stream)
        return (XLA_FFI_Error *)&refuse_stream;
    args->stream = stream;
    return NULL;
}

static XLA_FFI_Error *tell_ordinal(XLA_FFI_DeviceOrdinal_Get_Args *args)
{
    if (args->struct_size < XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE || args->ctx != (XLA_FFI_ExecutionContext *)77)
        return (XLA_FFI_Error *)&ordinal;
    args->device_ordinal = ordinal;
    return NULL;
}

const char *last_message(void) { return message; }

/* 0: done; 1: XLA's error was made, and its code is in `kind`; 2: the error of XLA's own came back. */
int run(XLA_FFI_Handler *handler, void *x, void *y, void *a, void *result, int64_t n, int64_t *words, int64_t count, int old, int32_t on, void *its_stream,
        int refuse, int *kind)
{
    XLA_FFI_Api api;
    XLA_FFI_Buffer buffers[4];
    XLA_FFI_ArgType types[3] = {XLA_FFI_ArgType_BUFFER, XLA_FFI_ArgType_BUFFER, XLA_FFI_ArgType_BUFFER};
    XLA_FFI_RetType ret_types[1] = {XLA_FFI_RetType_BUFFER};
    XLA_FFI_AttrType attr_types[1] = {XLA_FFI_AttrType_ARRAY};
    XLA_FFI_ByteSpan name = {"words", 5}, *names[1] = {&name};
    XLA_FFI_Array array = {XLA_FFI_DataType_S64, (size_t)count, words};
    void *data[4] = {x, y, result, a}, *args[3], *rets[1], *attrs[1] = {&array};
    XLA_FFI_CallFrame frame;
    XLA_FFI_Error *error;
    int64_t dims[1] = {n};
    int k;
    memset(&api, 0, sizeof api);
    memset(&frame, 0, sizeof frame);
    memset(buffers, 0, sizeof buffers);
    api.struct_size = old ? offsetof(XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get) : sizeof api;
    api.XLA_FFI_Error_Create = create;
    api.XLA_FFI_Stream_Get = tell_stream;
    api.XLA_FFI_DeviceOrdinal_Get = old ? NULL : tell_ordinal;
    for (k = 0; k < 4; k++) {
        buffers[k].struct_size = sizeof buffers[k];
        buffers[k].dtype = XLA_FFI_DataType_F32;
        buffers[k].data = data[k];
        buffers[k].rank = k < 3; /* the last is a scalar */
        buffers[k].dims = dims;
    }
    args[0] = &buffers[0];
    args[1] = &buffers[1];
    args[2] = &buffers[3];
    rets[0] = &buffers[2];
    frame.struct_size = sizeof frame;
    frame.api = &api;
    frame.ctx = (XLA_FFI_ExecutionContext *)77;
    frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
    frame.args.struct_size = sizeof frame.args;
    frame.args.size = a == NULL ? 2 : 3;
    frame.args.types = types;
    frame.args.args = args;
    frame.rets.struct_size = sizeof frame.rets;
    frame.rets.size = 1;
    frame.rets.types = ret_types;
    frame.rets.rets = rets;
    frame.attrs.struct_size = sizeof frame.attrs;
    frame.attrs.size = 1;
    frame.attrs.types = attr_types;
    frame.attrs.names = names;
    frame.attrs.attrs = attrs;
    stream = its_stream;
    ordinal = on;
    refuse_stream = refuse;
    message[0] = 0;
    error = handler(&frame);
    *kind = code;
    return error == NULL ? 0 : error == (XLA_FFI_Error *)&code ? 1 : 2;
}
"""


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The C that calls handlers."""
    folder: Path = tmp_path_factory.mktemp("xla")
    (folder / "call.c").write_text(CALL)
    found = ctypes.CDLL(str(compile_c(folder / "call.so", [folder / "call.c"], f"-I{jax.ffi.include_dir()}", "-shared", "-fPIC")))
    found.last_message.restype = ctypes.c_char_p
    return found


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeDriver, CudaDevice, dict[str, Any]]]:
    """A stand-in for the driver, JAX's one GPU, number 1, and the handlers by platform as they are registered."""
    driver, handlers = FakeDriver(total=1 << 24), dict[str, Any]()
    driver.blocks_seen = []
    driver.kernel = driver.blocks_seen.append
    installed(monkeypatch, driver)
    device = CudaDevice(0)
    monkeypatch.setattr(xla_target, "gpu_ordinals", lambda: [1])
    monkeypatch.setattr(xla_target, "gpu_device", lambda ordinal: device)
    monkeypatch.setattr(xla_target, "_targets", {})
    monkeypatch.setattr(xla_target, "_register", lambda name, handler, platform: handlers.setdefault(platform, handler))
    yield driver, device, handlers
    device.close()


def axpy_target() -> None:
    """Makes the handlers of `AXPY`."""
    xla_target.target_of(vyre_call(parse(AXPY)).pipeline, xla_target.Form())


class Calls:
    """Calls of the handler for GPUs over two buffers of the stand-in."""

    def __init__(self, harness: ctypes.CDLL, handler: int, device: CudaDevice, n: int) -> None:
        self.harness, self.handler, self.n = harness, handler, n
        self.x, self.y, self.a = device.allocate(n, vp.f32), device.allocate(n, vp.f32), device.allocate(1, vp.f32)

    def __call__(
        self, *, n: int | None = None, old: int = 0, on: int = 1, stream: int = 5, refuse: int = 0, result: int | None = None, traced: bool = False,
        params: bytes = struct.pack("<f4x", 2.5),
    ) -> tuple[int, int, str]:
        words = np.frombuffer(struct.pack("<q", -1) + params, np.int64).copy()
        kind, there = ctypes.c_int(), result or self.y.handle
        done = self.harness.run(
            ctypes.c_void_p(self.handler), ctypes.c_void_p(self.x.handle), ctypes.c_void_p(self.y.handle), ctypes.c_void_p(self.a.handle if traced else 0),
            ctypes.c_void_p(there), ctypes.c_int64(self.n if n is None else n), words.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(words.size), old, on,
            ctypes.c_void_p(stream), refuse, ctypes.byref(kind),
        )  # fmt: skip
        return done, kind.value if done == 1 else 0, self.harness.last_message().decode()


def test_a_call_is_the_bound_launch_on_xla_s_stream(harness: ctypes.CDLL, gpu: Any) -> None:
    driver, device, handlers = gpu
    axpy_target()
    call = Calls(harness, handlers["CUDA"], device, 1000)
    device.compile_native(parse(AXPY)).bind(x=call.x, y=call.y, a=2.5)()
    ((*numbers, _),), (block,) = driver.launches[-1:], driver.blocks_seen[-1:]
    assert call() == (0, 0, "")
    assert driver.launches[-1] == (*numbers, 5) and driver.blocks_seen[-1] == block
    assert call(stream=0) == (0, 0, "") and driver.launches[-1] == (*numbers, 1)  # the legacy stream by its own handle
    before = len(driver.launches)
    assert call(n=0) == (0, 0, "") and len(driver.launches) == before


def test_what_does_not_fit_is_xla_s_error(harness: ctypes.CDLL, gpu: Any) -> None:
    driver, device, handlers = gpu
    axpy_target()
    call = Calls(harness, handlers["CUDA"], device, 64)
    assert call(on=0) == call(on=2) == call(old=1) == (1, 12, "on_gpus: it was not compiled for this device")
    assert call(refuse=1)[0] == 2  # XLA's own error
    assert call(result=call.x.handle)[:2] == (1, 13)  # the result does not take over its operand's memory
    done, kind, words = call(n=1 << 50)
    assert (done, kind) == (1, 3) and words.startswith("on_gpus: ")
    assert not driver.launches


def test_params_that_are_arrays_are_read_on_the_device(harness: ctypes.CDLL, gpu: Any) -> None:
    """By a Program that has buffers in their place; the others stay in the block."""
    driver, device, handlers = gpu
    two = AXPY.replace("param a: f32", "param b: u8\n  param a: f32\n  param c: f32").replace("a * x[i]", "(a + c) * x[i] + cast(b, f32)")
    xla_target.target_of(vyre_call(parse(two)).pipeline, xla_target.Form(traced=("a",)))
    call = Calls(harness, handlers["CUDA"], device, 64)
    stored = with_stored_params(parse(two), ("a",))
    device.compile_native(stored).bind(x=call.x, y=call.y, a=call.a, b=7, c=2.5)()
    ((*numbers, _),), (block,) = driver.launches[-1:], driver.blocks_seen[-1:]
    data = struct.pack("<Bff7x", 7, 0, 2.5)
    assert call(traced=True, params=data) == (0, 0, "")
    assert driver.launches[-1] == (*numbers, 5) and driver.blocks_seen[-1] == block
    assert call(params=data)[:2] == (1, 13)  # without the operand


def test_what_cannot_read_its_params_is_refused(harness: ctypes.CDLL, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, device, handlers = gpu
    monkeypatch.setattr(xla_target, "with_stored_params", lambda program, names: None)
    xla_target.target_of(vyre_call(parse(AXPY)).pipeline, xla_target.Form(traced=("a",)))
    done, kind, words = Calls(harness, handlers["CUDA"], device, 64)(traced=True)
    assert (done, kind) == (1, 12) and "a param that is an array cannot go to a GPU here" in words


def test_an_interface_that_does_not_tell_the_device_is_of_the_first(harness: ctypes.CDLL, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, device, handlers = gpu
    monkeypatch.setattr(xla_target, "gpu_ordinals", lambda: [0])
    axpy_target()
    assert Calls(harness, handlers["CUDA"], device, 64)(old=1) == (0, 0, "") and len(driver.launches) == 1


def test_there_are_no_gpus_here_where_jax_has_none() -> None:
    assert xla_target.gpu_ordinals() == [] or jax.default_backend() != "cpu"
