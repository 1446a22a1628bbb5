"""Machine code for NVIDIA GPUs out of PTX, by nvJitLink: in this process, with no GPU, no driver, no toolkit and no file.

A small kernel takes 6 to 9 ms, of which the assembler states 2. The rest is its start, which an empty module needs too. No option of the library changes it
(`-verbose`, `-lineinfo`, `-O0`, `-kernels-used`, `-split-compile` and `-no-cache` were tried). The calls release the interpreter's lock: links on two
threads take little more time than one. The library is loaded by the first call that needs it; `prepare` does that early.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.extras import extra
from vyre_py.ir.imports import imported, importing
from vyre_py.lowering.errors import Missing, ToolchainError, Unsupported
from vyre_py.lowering.llvm.forking import NVJITLINK
from vyre_py.lowering.llvm.gpu.machine_code import assembler_log
from vyre_py.lowering.llvm.heap import keep_heap

__all__ = ["WHO", "Linked", "available", "link", "prepare", "version"]

WHO: Final = "nvJitLink"

# What nvJitLink says of an architecture that it never knew, or has left behind.
_NO_ARCH: Final = ("ERROR_UNRECOGNIZED_ARCH", "ERROR_UNSUPPORTED_ARCH")
_NO_PTX: Final = re.compile(r"Unsupported \.version (\S+); current version is '([^']*)'")

# The library's own option takes 0 and 3 alone; its assembler takes all.
_LEVELS: Final = ("-O0", "-Xptxas=-O1", "-Xptxas=-O2", "-O3")

# The wheels' library and, beside it, what says which version the wheel has.
_WHEEL_LIBRARY: Final = "*/lib/libnvJitLink.so.*"
_WHEEL_RECORD: Final = "nvidia_nvjitlink*.dist-info"

# The oldest architecture that every nvJitLink of the extras has.
_PROBE: Final = b".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry probe()\n{\n\tret;\n}\n"
_PROBE_ARCH: Final = "sm_75"


@dataclass(frozen=True, slots=True)
class Linked:
    """Machine code (an ELF file, a cubin), what the assembler said about it, and what it says that each kernel takes, by symbol: see
    `assembler_log.resources`."""

    code: bytes
    log: str
    resources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def _ptx_alone(arch: str) -> str:
    return f"name {arch.replace('sm_', 'compute_')} for PTX alone, which the driver assembles where it is loaded"


@lru_cache(maxsize=1)
def _library() -> Any:
    """NVIDIA's binding, with the library behind it loaded. Raises what is raised where one of them is not here."""
    with importing:
        library = imported("cuda.bindings.nvjitlink")
        library.version()  # the first call loads it, under a lock
    return library


def _required(arch: str) -> Any:
    """The binding. Raises Unsupported where it is not here."""
    try:
        return _library()
    # The binding has no class of its own for a library that is not there, or lacks a function that it wants.
    except (ImportError, OSError, RuntimeError) as error:
        why = (str(error).strip().splitlines() or ["it cannot be loaded"])[0]
        help_ = f"it needs NVIDIA's nvJitLink: {extra('cuda')}; or {_ptx_alone(arch)}; {why}"
        raise Unsupported(WHO, [Missing(f"target {arch}", help=help_)]) from error


def _folders(package: str) -> Iterator[Path]:
    spec = find_spec(package)
    yield from map(Path, (spec.submodule_search_locations or ()) if spec is not None else ())


def _wheel_versions() -> tuple[str, ...]:
    """The versions of the wheels that bring the library, which the binding looks at before all other places."""
    homes = [folder for folder in _folders("nvidia") if any(folder.glob(_WHEEL_LIBRARY))]
    return tuple(sorted(record.name.removesuffix(".dist-info").rpartition("-")[2] for home in homes for record in home.parent.glob(_WHEEL_RECORD)))


@lru_cache(maxsize=1)
def available() -> bool:
    """Whether there is an nvJitLink to call. Cheap where a wheel brought it, or where there is no binding; else the library is looked for by loading it."""
    if not any(any(folder.glob("bindings/nvjitlink.*")) for folder in _folders("cuda")):
        return False
    if _wheel_versions():
        return True
    try:
        _library()
    except (ImportError, OSError, RuntimeError):
        return False
    return True


@lru_cache(maxsize=1)
def version() -> str:
    """The version, for keys of caches: that of the wheel ("13.5.37"), which is read without loading the library, or else the library's own ("13.5").
    Raises Unsupported without nvJitLink."""
    if available() and (found := _wheel_versions()):
        return "+".join(found)
    return ".".join(map(str, _required("sm_NN").version()))


def prepare() -> None:
    """Loads the library and links an empty kernel, so that later links find everything in place; for a thread in the background. Where there is no
    nvJitLink it does nothing: the first link says so."""
    with suppress(Unsupported):
        if available():
            link(_PROBE, _PROBE_ARCH, name="probe")


def _said(library: Any, handle: int, which: str) -> str:
    """The text of a log: "info" or "error"."""
    text = bytearray(getattr(library, f"get_{which}_log_size")(handle))
    if text:
        getattr(library, f"get_{which}_log")(handle, text)
    return text.decode("utf-8", "replace").rstrip("\0\n ")


def _refusal(library: Any, handle: int, ptx: bytes, arch: str, error: Exception) -> Exception:
    """What to raise where the PTX was not taken."""
    log = _said(library, handle, "error") or str(error)
    if found := _NO_PTX.search(log):
        help_ = f"it reads up to {found[2]}: update nvidia-nvjitlink, or {_ptx_alone(arch)}"
        return Unsupported(f"{WHO} {version()}", [Missing(f"PTX of version {found[1]}", help=help_)])
    return ToolchainError(WHO, log, ptx.decode("utf-8", "replace"))


def _linked(library: Any, handle: int, ptx: bytes, name: str) -> tuple[bytes, str]:
    """The machine code, and what the assembler said."""
    library.add_data(handle, library.InputType.PTX, ptx, len(ptx), ascii(name)[1:-1])
    library.complete(handle)
    code = bytearray(library.get_linked_cubin_size(handle))
    library.get_linked_cubin(handle, code)
    return bytes(code), _said(library, handle, "info")


def link(ptx: bytes, arch: str, *, level: int = 3, debug: bool = False, name: str) -> Linked:
    """The machine code of a PTX module for one architecture, "sm_90". The same code for the same input.

    `level`, 0 to 3, is the assembler's. `debug` makes a table of lines from the PTX's `.loc` and keeps the PTX itself in the code. `name` stands for the
    module in messages. Safe to call from several threads at once. Raises Unsupported for an architecture or a version of PTX that this nvJitLink does
    not know, or where there is none; ToolchainError with the assembler's messages and the PTX for PTX that it refuses.
    """
    library = _required(arch)
    keep_heap()
    # Where a driver is, the library would keep its work in the driver's cache, on the disk: code that comes from there has no log, and ours is kept already.
    options = [f"-arch={arch}", "-verbose", "-no-cache", _LEVELS[level], *(["-lineinfo"] if debug else [])]
    with NVJITLINK.lock():
        try:
            handle = library.create(len(options), options)
        except library.nvJitLinkError as error:
            if any(status in str(error) for status in _NO_ARCH):
                raise Unsupported(f"{WHO} {version()}", [Missing(f"target {arch}", help=_ptx_alone(arch))]) from error
            raise ToolchainError(WHO, f"{error} for {' '.join(options)}", ptx.decode("utf-8", "replace")) from error
        try:
            code, said = _linked(library, handle, ptx, name)
        except library.nvJitLinkError as error:
            raise _refusal(library, handle, ptx, arch, error) from error
        finally:
            library.destroy(handle)
    log = assembler_log.settled(said)
    return Linked(code, log, assembler_log.resources(log))
