"""Host code in this process: kernels as functions of ctypes, which releases the GIL.

On Linux objects are linked here, by `drivers.cpu.linker`, into memory that is never writable and executable at once; no compiler is needed. Other systems have
other formats of objects, which LLVM's ORC JIT links.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import mmap
import os
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

from vyre_py.drivers.cpu.linker import Placed, place
from vyre_py.drivers.errors import OutOfMemory
from vyre_py.ir.imports import importing
from vyre_py.ir.language.errors import shown
from vyre_py.lowering.artifact.parts import Entry, Image
from vyre_py.lowering.errors import ToolchainError
from vyre_py.lowering.llvm.cpu.host_targets import LIBRARY, loads_objects, own_machine

__all__ = ["CpuKernel", "LoadedObject", "load_kernel", "load_object"]

# (argument block, scratch, first workgroup, end, grid x, y, z), as `lowering.llvm.cpu.lanes` declares it
_TYPES: Final = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)
_SIGNATURE: Final = ctypes.CFUNCTYPE(None, *_TYPES)
_MAX_SCRATCH_BYTES: Final = 1 << 40

_lock = threading.Lock()
_numbers = itertools.count()
_linker: list[Any] = []


class CpuKernel:
    """A loaded kernel: `run` calls it, for others it is at `address`; `scratch_bytes` is what each thread that calls it needs. The code goes with this
    object."""

    __slots__ = ("_library", "address", "run", "scratch_bytes")

    def __init__(self, library: Any, address: int, scratch_bytes: int) -> None:
        self._library = library
        self.address = address
        self.run: Callable[..., None] = _SIGNATURE(address)
        self.scratch_bytes = scratch_bytes

    def prepared(self, *arguments: int) -> Callable[[], None]:
        """`run` with these arguments, turned into C's once: to do so at each call takes half of its time."""
        return partial(self.run, *[type_(argument) for type_, argument in zip(_TYPES, arguments, strict=True)])


# ---------------------------------------------------------------- ELF objects


@cache
def _c_library() -> ctypes.CDLL:
    """The C library of this process, for mprotect."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return library


@cache
def _library_address(name: str) -> int:
    """The address of a function of the C library. Raises ToolchainError for what kernels don't call, and what this library lacks."""
    if name not in LIBRARY:
        raise ToolchainError("the loader", f"the object wants {shown(name)}, which is not one of {', '.join(sorted(LIBRARY))}")
    for library in (None, "libm.so.6"):  # what is loaded already, and what might not be
        try:
            found = ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value
        except (AttributeError, OSError):
            continue
        if found:
            return found
    raise ToolchainError("the loader", f"the object wants {name}, which this system's C library lacks: compile for a newer CPU, which does without")


@cache
def _flush() -> Callable[[int, int], Any] | None:
    """What makes instructions written as data seen by the fetching of instructions, given their begin and end: on aarch64 the compiler's runtime has it.

    Where it is absent the kernel does it: Linux cleans the caches for a page of a process when it first becomes executable.
    """
    if own_machine() != "aarch64":
        return None  # x86-64 does it by itself
    try:
        flush = ctypes.CDLL("libgcc_s.so.1").__clear_cache
    except (AttributeError, OSError):
        return None
    flush.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    return flush


class LoadedObject:
    """An object in the memory of this process, which goes with it. `address(name)` is where a function is."""

    __slots__ = ("_address", "_memory", "_placed")

    def __init__(self, placed: Placed) -> None:
        self._placed = placed
        try:
            self._memory = mmap.mmap(-1, max(placed.size_bytes, mmap.PAGESIZE), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            raise OutOfMemory(f"no memory for {placed.size_bytes} bytes of code", cause=str(error), remedy="free memory") from error
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        placed.fill(self._memory, self._address, _library_address)
        self._protect(0, placed.constants, mmap.PROT_READ | mmap.PROT_EXEC)
        self._protect(placed.constants, placed.writable, mmap.PROT_READ)
        if (flush := _flush()) is not None:
            flush(self._address, self._address + placed.constants)

    def _protect(self, begin: int, end: int, protection: int) -> None:
        if begin < end and _c_library().mprotect(self._address + begin, end - begin, protection):
            code = ctypes.get_errno()
            why = f"{errno.errorcode.get(code, code)}, {os.strerror(code)}"
            raise ToolchainError("the loader", f"the system refuses memory for code ({why}): a policy of its own (SELinux's execmem) has to allow it")

    def address(self, name: str) -> int:
        """Where a function of the object is. Raises ToolchainError for names of anything else."""
        return self._address + self._placed.offset(name)


def load_object(code: bytes) -> LoadedObject:
    """Links an ELF object of this machine's kind into this process. Raises ToolchainError for malformed bytes, or undefined symbols."""
    return LoadedObject(place(code, own_machine(), mmap.PAGESIZE))


# ---------------------------------------------------------------- kernels


def _link_by_llvm(code: bytes, symbol: str) -> tuple[Any, int]:
    """The library, and the address of the symbol in it."""
    try:
        with importing:
            from llvmlite import binding as llvm  # LLVM is loaded only when code is first wanted
    except ImportError as error:
        raise ToolchainError("the loader", "loading host code on this system needs llvmlite: pip install llvmlite") from error
    with _lock:
        if not _linker:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            _linker.append(llvm.create_lljit_compiler())
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol(symbol)
        try:
            library = builder.link(_linker[0], f"vyre-{next(_numbers)}")
        except RuntimeError as error:
            raise ToolchainError("LLVM's linker", str(error)) from error
        return library, library[symbol]


def load_kernel(image: Image, entry: Entry) -> CpuKernel:
    """Links an object into this process. Raises ToolchainError when it can't be, or its entry does not say what memory it needs."""
    scratch_bytes = entry.details.get("scratch_bytes", -1)
    if not 0 <= scratch_bytes <= _MAX_SCRATCH_BYTES:
        raise ToolchainError("the loader", f"the entry {shown(entry.symbol)} says nothing useful of its scratch memory: {scratch_bytes} bytes")
    if loads_objects():
        loaded = load_object(image.code)
        return CpuKernel(loaded, loaded.address(entry.symbol), scratch_bytes)
    return CpuKernel(*_link_by_llvm(image.code, entry.symbol), scratch_bytes)
