"""A small Program that every device runs: what it computes tells whether a device works, and running it makes a device ready."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.errors import DeviceUnavailable
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.nodes import Access, Space, const
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["program", "require_right", "run"]

_BY_LLVM: Final = ("ptx", "host")
_X = np.arange(100, dtype=np.uint32) * np.uint32(0x9E3779B9)


def program() -> Program:
    """out[i] = x[i] * 3 + i, unguarded."""
    a = Assembler("self_test", (64, 1, 1))
    n = a.dim("n")
    x = a.memory("x", Space.BUFFER, u32, (n,), Access.READ)
    out = a.memory("out", Space.BUFFER, u32, (n,), Access.WRITE)
    i = a.let(OPS["global_id.x"], ())
    tripled = a.let(OPS["mul"], (a.load(x, (i,)), const(u32, 3)))
    a.store(out, (i,), a.let(OPS["add"], (tripled, i)))
    return a.finish()


def run(device: Device) -> bool:
    """Compiles the Program and dispatches it: whether the result is right. Raises the errors of the device.

    Where llvmlite is not installed, what needs it is believed: such a device runs what was compiled elsewhere.
    """
    if device.target.kind in _BY_LLVM and find_spec("llvmlite") is None:
        return True
    result: Any = device.compile_native(program()).dispatch({"x": _X})["out"]
    return np.array_equal(result, _X * np.uint32(3) + np.arange(100, dtype=np.uint32))


def require_right(device: Device) -> None:
    """Raises DeviceUnavailable when a device computes wrong results, and the errors of the device."""
    if not run(device):
        raise DeviceUnavailable(f"{device.name} computes wrong results in its self test", remedy="check the driver's version")
