"""Handlers for XLA, called with frames made here, as `xla/ffi/api/c_api.h` has them: what XLA asks, what a handler asks of XLA, and its errors."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from vyre_py.drivers.cpu.device import CpuDevice
from vyre_py.drivers.cpu.launch import SHARED_INVOCATIONS
from vyre_py.drivers.cpu.shared_call import shared_call
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.llvm.adapters.xla_ffi import (
    DATA_TYPES,
    HANDLER_SYMBOL,
    XlaBuffer,
    XlaFace,
    XlaParam,
    handler_text,
    refusing_text,
)

SCALE = """program scale(n) workgroup(64) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  y[global_id.x] = a * x[global_id.x] + y[global_id.x]
}"""
_POINTER, _I32, _I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_ONE = ctypes.CFUNCTYPE(_POINTER, _POINTER)
_TASK = ctypes.CFUNCTYPE(None, _POINTER)


def structure(*fields):
    """A structure that begins with its size and an extension, none here."""
    return type("XlaStructure", (ctypes.Structure,), {"_fields_": [("size", _I64), ("extension", _POINTER), *fields]})


Buffer = structure(("data_type", _I32), ("data", _POINTER), ("rank", _I64), ("dims", _POINTER))
Listed = structure(("count", _I64), ("types", _POINTER), ("items", _POINTER))
Attributes = structure(("count", _I64), ("types", _POINTER), ("names", _POINTER), ("items", _POINTER))
Frame = structure(("api", _POINTER), ("context", _POINTER), ("stage", _I32), ("args", Listed), ("rets", Listed), ("attrs", Attributes))
Api = structure(*[(f"word{number}", _POINTER) for number in range(20)])
Error = structure(("message", ctypes.c_char_p), ("code", _I32))
Scheduled = structure(("context", _POINTER), ("task", _POINTER), ("data", _POINTER))
Destroyed = structure(("error", _POINTER))


class Xla:
    """The other side: takes errors, and tasks, which it runs at once, or refuses."""

    def __init__(self, refuses: bool = False) -> None:
        self.errors, self.tasks, self.destroyed, self._held = list[tuple[int, str]](), 0, list[int](), list[object]()

        def create(at: int) -> int:
            given = Error.from_address(at)
            assert given.size == 28
            self.errors.append((given.code, given.message.decode()))
            return 1000 + len(self.errors)

        def schedule(at: int) -> int:
            given = Scheduled.from_address(at)
            assert (given.size, given.context) == (40, 55)
            self.tasks += 1
            if refuses:
                return 5
            _TASK(given.task)(given.data)
            return 0

        def destroy(at: int) -> int:
            given = Destroyed.from_address(at)
            assert given.size == 24
            self.destroyed.append(given.error)
            return 0

        self.api = Api()
        for offset, function in ((48, create), (64, destroy), (136, schedule)):
            pointer = _ONE(function)
            self._held.append(pointer)
            setattr(self.api, f"word{(offset - 16) // 8}", ctypes.cast(pointer, _POINTER).value)

    def keep(self, made):
        self._held.append(made)
        return ctypes.addressof(made)

    def buffer(self, array, name: str) -> int:
        dims = self.keep((_I64 * max(1, array.ndim))(*array.shape))
        return self.keep(Buffer(48, None, DATA_TYPES[name], array.ctypes.data, array.ndim, dims))

    def frame(self, operands, results, words) -> int:
        args, rets = (self.keep((_POINTER * max(1, len(items)))(*items)) for items in (operands, results))
        types = self.keep((_I32 * 1)(1))
        array = self.keep((_I64 * 3)(DATA_TYPES["i64"], len(words), words.ctypes.data))
        attrs = Attributes(48, None, 1, types, None, self.keep((_POINTER * 1)(array)))
        lists = [Listed(40, None, len(items), None, at) for items, at in ((operands, args), (results, rets))]
        return self.keep(Frame(168, None, ctypes.addressof(self.api), 55, 3, *lists, attrs))


def scale_handler(threads: int):
    """The handler of a function, whose param is an operand."""
    entry = CpuDevice(0).compile_native(parse(SCALE)).callable()
    face = XlaFace(3, 1, (XlaBuffer(0, None, 11, 1, 0), XlaBuffer(1, 0, 11, 1, 0)), (XlaParam(2, 11, 0, 0, 4),), 1, 4)
    call = shared_call() if threads else ctypes.c_void_p.from_address(entry.c_address + 8).value
    text = handler_text('sc"al\\e%d', face, entry.c_address, call or 0, threads)
    return _ONE(jit.link("handler", text, (HANDLER_SYMBOL,))[HANDLER_SYMBOL]), entry


def run(handler, xla, x, y, result=None, words=(-1, 0), kind="f32"):
    a = np.array(3, np.float32)
    operands = [xla.buffer(x, kind), xla.buffer(y, kind), xla.buffer(a, "f32")]
    return handler(xla.frame(operands, [xla.buffer(y if result is None else result, kind)], np.array(words, np.int64)))


@pytest.mark.parametrize("text", [None, "no"])
def test_what_a_handler_says_of_itself(text) -> None:
    handler = scale_handler(0)[0] if text is None else _ONE(jit.link("handler", refusing_text("p", text), (HANDLER_SYMBOL,))[HANDLER_SYMBOL])
    metadata = (_I32 * 12)(*[-1] * 12)  # a size, then a version with a size and an extension, then the traits
    extension = (_I64 * 4)(32, 1, 0, ctypes.addressof(metadata))
    frame = Frame(168, ctypes.addressof(extension))
    assert not handler(ctypes.addressof(frame))
    assert list(metadata) == [-1] * 6 + [0, 1, 1] + [-1] * 3


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("threads", [0, 3])
def test_large_grids_ask_for_threads(threads, refuses) -> None:
    (handler, _entry), xla = scale_handler(threads), Xla(refuses)
    for size in (0, 5, 64, SHARED_INVOCATIONS):
        x, y = np.arange(size, dtype=np.float32), np.ones(size, np.float32)
        assert not run(handler, xla, x, y)
        np.testing.assert_array_equal(y, 3 * x + 1)
        if size < 100:
            assert xla.tasks == 0
    assert xla.tasks == (threads and (1 if refuses else threads))
    assert xla.destroyed == ([5] if threads and refuses else []) and not xla.errors


def test_errors() -> None:
    (handler, _entry), xla = scale_handler(0), Xla()
    x, y = np.ones(8, np.float32), np.ones(8, np.float32)
    for given in ((x, y[:7]), (x, y, np.ones(8, np.float32)), (x, y, None, (-1,)), (x, y, None, (-1, 0), "i32"), (x, y.reshape(2, 4)), (y, y)):
        assert run(handler, xla, *given) == 1000 + len(xla.errors)
    misfit = (13, 'sc"al\\e%d: operands, results or attributes are not what the handler was made for')
    assert xla.errors == [
        (3, 'sc"al\\e%d: an axis has not the size that the others ask for'), misfit, misfit, misfit, misfit,
        (3, 'sc"al\\e%d: a buffer that is written shares bytes with another one'),
    ]  # fmt: skip
    assert y.tolist() == [1] * 8


def test_a_platform_without_a_handler() -> None:
    handler, xla = _ONE(jit.link("handler", refusing_text("vyre_call", "not here"), (HANDLER_SYMBOL,))[HANDLER_SYMBOL]), Xla()
    assert handler(xla.frame([], [], np.zeros(1, np.int64))) == 1001
    assert xla.errors == [(12, "vyre_call: not here")]
