"""Who makes machine code of PTX on this device: nvJitLink, in this process, or the driver as it loads the code."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from importlib.util import find_spec
from typing import Final

from vyre_py.drivers.errors import DriverError
from vyre_py.ir.extras import CUDA
from vyre_py.ir.imports import importing
from vyre_py.ir.language.errors import VyreError, shown
from vyre_py.lowering.llvm.gpu.machine_code import nvjitlink

__all__ = ["VARIABLE", "makes_machine_code"]

VARIABLE: Final = "VYRE_ASSEMBLER"
_CHOICES: Final = ("nvjitlink", "driver")
_PATIENCE_S: Final = 10.0
_threads: list[threading.Thread] = []


def makes_machine_code(arch: str) -> bool:
    """Whether compiling for an architecture of this device ends in machine code, by nvJitLink, which is quicker than the driver's compiler and whose work
    the disk cache can keep; if so both compilers are made ready in the background.

    `VYRE_ASSEMBLER=driver` has it left to the driver; so does a machine without nvJitLink. Raises DriverError for any other value but "nvjitlink", and for
    that one where there is none.
    """
    wanted = os.environ.get(VARIABLE, "").strip()
    if wanted not in ("", *_CHOICES):
        raise DriverError(f"{VARIABLE}={shown(wanted)}", remedy=f"it is one of {', '.join(_CHOICES)}")
    if wanted == "driver" or not nvjitlink.available():
        if wanted == "nvjitlink":
            raise DriverError(f"{VARIABLE}=nvjitlink, and there is no nvJitLink", remedy=CUDA)
        return False
    thread = threading.Thread(target=_prepare, name="vyre-nvjitlink", daemon=True)
    thread.start()
    _threads.append(thread)
    return True


def _settle() -> None:
    """Waits until nothing is made ready any more: a forked child would inherit the compilers' locks, and the end of the process would come upon them."""
    while _threads:
        _threads.pop().join(_PATIENCE_S)


atexit.register(_settle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_settle)


def _prepare() -> None:
    with suppress(VyreError):  # the error is raised when it compiles
        nvjitlink.prepare()
        if find_spec("llvmlite") is not None:
            with importing:
                from vyre_py.lowering.llvm.gpu import nvptx  # launches need LLVM soon, too

            nvptx.prepare()
