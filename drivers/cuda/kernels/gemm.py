"""Products of matrices through cuBLASLt, by nvmath-python's bindings: chosen and described once, then one C call.

cuBLASLt's matrices are column-major, and a row-major matrix is the transpose of a column-major one in the same memory. So out = a @ b is computed as its
transpose, b' @ a', by exchanging the operands.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from vyre_py.drivers.cuda.native.call_list import Call
from vyre_py.drivers.cuda.native.command_list import CommandList, NativeCommand
from vyre_py.drivers.errors import DeviceLost, DeviceUnavailable, DriverError, LaunchError
from vyre_py.drivers.many.sequence import GemmStep
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.imports import importing
from vyre_py.ir.language.types import Type, bf16, f16, f32, f64, u8
from vyre_py.lowering.errors import Missing, Unsupported

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["CudaGemm", "Library"]

_INSTALL: Final = "pip install 'nvmath-python[cu13]' (or nvmath-python[cu12] for drivers older than 580)"

# Numbers of cuBLAS's interface: element types, types that products are summed in, and whether an operand is transposed.
_ELEMENTS: Final[Mapping[Type, int]] = {f32: 0, f64: 1, f16: 2, bf16: 14}
_SUMS: Final[Mapping[str, int]] = {"f32": 68, "f64": 70, "tf32": 77}
_PLAIN, _TRANSPOSED = 0, 1

_WORKSPACE_BYTES: Final = 32 << 20
_ALIGN: Final = 256
_PRODUCT: Final = 1  # which of a step's calls it is
_POPPED: Final = ctypes.c_uint64()  # where the driver says which context is no longer current


def _load() -> Any:
    """nvmath's bindings of cuBLASLt. Raises DeviceUnavailable without the package."""
    try:
        with importing:
            from nvmath.bindings import cublasLt
    except ImportError as error:
        raise DeviceUnavailable("gemm needs the package nvmath-python", cause=str(error), remedy=_INSTALL) from error
    return cublasLt


def _address() -> int:
    """Where cublasLtMatmul begins in the library that the bindings use; they find it in the same way."""
    with importing:
        from cuda.pathfinder import load_nvidia_dynamic_lib

    library = ctypes.CDLL(load_nvidia_dynamic_lib("cublasLt").abs_path)
    return ctypes.cast(library.cublasLtMatmul, ctypes.c_void_p).value or 0


def _destroy(context: Context, bindings: Any, handle: int) -> None:
    """Gives cuBLASLt's handle back. Quiet, since a finaliser calls it; a forked child leaves it to its parent."""
    if not context.handles_invalid:
        with context.visited(), suppress(Exception):  # cuBLAS's own class, which only its bindings know
            bindings.destroy(handle)


class Library:
    """cuBLASLt on one device: its handle, and the workspace that all products share, since they run one after the other: in the order of our stream, which
    graphs that were moved to another one keep as well.

    Attributes: `bindings`, `handle`, `matmul` (an address), `workspace`.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, device: CudaDevice) -> None:
        """Raises DeviceUnavailable without nvmath-python or cuBLAS, OutOfMemory."""
        self.bindings = _load()
        try:
            with device.context.entered():
                self.matmul = _address()
                self.handle = int(self.bindings.create())
        except DeviceLost:
            raise
        except Exception as error:  # a library that is not found, and cuBLAS's own errors: none has a class in common
            raise DeviceUnavailable("cuBLASLt cannot be loaded", cause=str(error), remedy=_INSTALL) from error
        self._finalizer = weakref.finalize(self, _destroy, device.context, self.bindings, self.handle)
        self._finalizer.atexit = False
        self.workspace = device.allocate(_WORKSPACE_BYTES, u8)

    @classmethod
    def of(cls, device: CudaDevice) -> Library:
        """The one of a device."""
        with cls._lock:
            if device.gemm_library is None:
                device.gemm_library = cls(device)
            return device.gemm_library

    def close(self) -> None:
        """Gives the handle back."""
        self._finalizer()


def _put(setter: Any, thing: int, attribute: Any, kind: type, value: int) -> None:
    held: np.ndarray[Any, Any] = np.array(value, kind)
    setter(thing, int(attribute), held.ctypes.data, held.nbytes)


def _alignment(buffer: Buffer) -> int:
    address = int(buffer.handle) + buffer.offset_bytes
    return min(address & -address, _ALIGN)


class _Description:
    """The descriptors of cuBLASLt: the operation, four matrices, and the algorithm that it picks for them. All are released with this object."""

    def __init__(self, library: Library, a: Buffer, b: Buffer, out: Buffer, turned: tuple[bool, bool], sums: str) -> None:
        lt = library.bindings
        self._undo: list[tuple[Any, int]] = []
        weakref.finalize(self, self._release, self._undo).atexit = False
        scale = f64 if sums == "f64" else f32
        self.operation = self._keep(lt.matmul_desc_create(_SUMS[sums], _ELEMENTS[scale]), lt.matmul_desc_destroy)
        for attribute, is_turned in ((lt.MatmulDescAttribute.TRANSA, turned[1]), (lt.MatmulDescAttribute.TRANSB, turned[0])):
            _put(lt.matmul_desc_set_attribute, self.operation, attribute, np.int32, _TRANSPOSED if is_turned else _PLAIN)
        self.a, self.b, self.out = [self._matrix(lt, buffer) for buffer in (a, b, out)]
        preference = self._keep(lt.matmul_preference_create(), lt.matmul_preference_destroy)
        wanted = lt.MatmulPreferenceAttribute
        _put(lt.matmul_preference_set_attribute, preference, wanted.MAX_WORKSPACE_BYTES, np.uint64, _WORKSPACE_BYTES)
        for letter, buffer in zip("ABCD", (b, a, out, out), strict=True):
            attribute = getattr(wanted, f"MIN_ALIGNMENT_{letter}_BYTES")
            _put(lt.matmul_preference_set_attribute, preference, attribute, np.uint32, _alignment(buffer))
        self.found = np.zeros(1, lt.matmul_heuristic_result_dtype)
        count = np.zeros(1, np.int32)
        lt.matmul_algo_get_heuristic(
            library.handle, self.operation, self.b, self.a, self.out, self.out, preference, 1, self.found.ctypes.data, count.ctypes.data
        )
        self.fits = bool(count[0])

    def _keep(self, thing: int, destroy: Any) -> int:
        self._undo.append((destroy, thing))
        return int(thing)

    def _matrix(self, lt: Any, buffer: Buffer) -> int:
        *batch, rows, columns = buffer.shape
        layout = self._keep(lt.matrix_layout_create(_ELEMENTS[buffer.type], columns, rows, columns), lt.matrix_layout_destroy)
        if batch:
            _put(lt.matrix_layout_set_attribute, layout, lt.MatrixLayoutAttribute.BATCH_COUNT, np.int32, batch[0])
            _put(lt.matrix_layout_set_attribute, layout, lt.MatrixLayoutAttribute.STRIDED_BATCH_OFFSET, np.int64, rows * columns)
        return layout

    @staticmethod
    def _release(undo: list[tuple[Any, int]]) -> None:
        while undo:
            destroy, thing = undo.pop()
            destroy(thing)


def _sums(a: Buffer, b: Buffer, out: Buffer, math: str) -> str:
    """The type that products are summed in. Raises Unsupported for types of elements that do not go together."""
    fits = a.type is b.type and a.type in _ELEMENTS and (out.type is a.type or (out.type is f32 and a.type in (f16, bf16)))
    if not fits or (math == "tf32" and a.type is not f32):
        what = f"gemm of {a.type} and {b.type} into {out.type}{' by tf32' if math == 'tf32' else ''}"
        raise Unsupported(out.device.name, [Missing(what, help="f16, bf16, f32 or f64 in all three, or f16 or bf16 into f32; tf32 is for f32")])
    return "f64" if a.type is f64 else math


def _failure(context: Context, bindings: Any, index: int, status: int, doing: str) -> DriverError:
    """The error of a product, one of whose C calls failed."""
    if index != _PRODUCT:
        return context.failure(context.status(status), doing, LaunchError)
    context.note(context.cuda.cuCtxPopCurrent(), doing)  # made current before the product
    try:
        name = str(bindings.get_status_name(status))
    except Exception:  # noqa: BLE001 - whatever a library raises for a number that it does not know
        name = "cuBLAS"
    return LaunchError(doing, status=f"{name} ({status})", meaning="cuBLASLt could not enqueue the product")


class CudaGemm(GemmStep):
    """A product, ready to run: one C call."""

    __slots__ = ("_description", "_direct", "_library", "_scalars")

    def __init__(
        self, device: CudaDevice, a: Buffer, b: Buffer, out: Buffer, alpha: float, beta: float, turned: tuple[bool, bool], math: str
    ) -> None:
        super().__init__(device, f"product of {'x'.join(map(str, a.shape))} and {'x'.join(map(str, b.shape))}", {"a": a, "b": b, "out": out})
        sums = _sums(a, b, out, math)
        device.require_no_capture(f"a product cannot be prepared on {device.name}")
        self._library = Library.of(device)
        number = ctypes.c_double if sums == "f64" else ctypes.c_float
        self._scalars = number(alpha), number(beta)
        try:
            with device.context.entered():
                self._description = _Description(self._library, a, b, out, turned, sums)
        except DeviceLost:
            raise
        except Exception as error:  # cuBLAS's own class, which only its bindings know
            device.context.require_alive(f"cuBLASLt failed on {device.name}")
            raise LaunchError(f"cuBLASLt refuses a {self.name} on {device.name}", cause=str(error)) from error
        if not self._description.fits:
            raise Unsupported(device.name, [Missing(f"{self.name} of {a.type}", help="cuBLASLt has no algorithm for these sizes")])
        self._direct = CommandList(device, [self.command()], f"the {self.name} cannot be enqueued on {device.name}")

    def command(self) -> NativeCommand:
        """The step as a row. The product requires that our context is current, so the calls around it make it current and restore the other."""
        device, context, library, made = self.device, self.device.context, self._library, self._description  # type: ignore[attr-defined]  # a CudaDevice
        a, b, out = [int(self.buffers[name].handle) + self.buffers[name].offset_bytes for name in ("a", "b", "out")]
        alpha, beta = map(ctypes.addressof, self._scalars)
        workspace = int(library.workspace.handle)
        arguments = (
            library.handle, made.operation, alpha, b, made.b, a, made.a, beta, out, made.out, out, made.out, made.found.ctypes.data,
            workspace, _WORKSPACE_BYTES, int(context.stream),
        )  # fmt: skip
        enter = Call(context.function("cuCtxPushCurrent"), (int(context.handle),))
        leave = Call(context.function("cuCtxPopCurrent"), (ctypes.addressof(_POPPED),))
        kept = (made, self._scalars, library, device)
        calls = (enter, Call(library.matmul, arguments), leave)
        return NativeCommand(self._kind, self.name, calls, self.buffers, kept=kept, failure=partial(_failure, context, library.bindings))

    def _run(self) -> None:
        self._direct.builtin()()

