"""Host code in this process: objects linked by LLVM's ORC JIT, kernels as functions of ctypes, which releases the GIL."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any, Final

from vyre_py.lowering.artifact import Entry
from vyre_py.lowering.errors import ToolchainError

__all__ = ["Kernel", "load_kernel"]

# (argument block, scratch, first workgroup, end, grid x, y, z), as `lowering.llvm.lanes` declares it
_SIGNATURE: Final = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32
)

_lock = threading.Lock()
_numbers = itertools.count()
_linker: list[Any] = []


class Kernel:
    """A loaded kernel: `run` calls it; `scratch_bytes` is what each thread that does needs. The code goes with this object."""

    __slots__ = ("_library", "run", "scratch_bytes")

    def __init__(self, library: Any, address: int, scratch_bytes: int) -> None:
        self._library = library
        self.run: Callable[..., None] = _SIGNATURE(address)
        self.scratch_bytes = scratch_bytes


def load_kernel(entry: Entry) -> Kernel:
    """Links an object into this process. Raises ToolchainError when it can't be."""
    from llvmlite import binding as llvm  # LLVM is loaded only when code is first wanted

    with _lock:
        if not _linker:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            _linker.append(llvm.create_lljit_compiler())
        builder = llvm.JITLibraryBuilder().add_object_img(entry.code).add_current_process().export_symbol(entry.symbol)
        try:
            library = builder.link(_linker[0], f"vyre-{next(_numbers)}")
        except RuntimeError as error:
            raise ToolchainError("LLVM's linker", str(error)) from error
        return Kernel(library, library[entry.symbol], entry.details["scratch_bytes"])
