"""The Program that most tests run, y = a * x + y: its text, with workgroups of 256 and of 64, itself, and what its kernel does where a stand-in for the CUDA
driver is asked to."""

from __future__ import annotations

import ctypes
import struct
from typing import Final

import numpy as np

from vyre_py.ir.text.parser import parse

__all__ = ["AXPY", "TEXT", "TEXT_64", "axpy_kernel"]

TEXT: Final = """program axpy(n) workgroup(256) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  let i = global_id.x
  y[i] = a * x[i] + y[i]
}
"""
AXPY: Final = parse(TEXT)
TEXT_64: Final = TEXT.replace("workgroup(256)", "workgroup(64)")


def axpy_kernel(block: bytes) -> None:
    """One launch over the argument block that the driver was given, whose addresses are of this process."""
    x_at, y_at, a, n = struct.unpack_from("<QQfI", block)
    x, y = [np.ctypeslib.as_array((ctypes.c_float * n).from_address(at)) for at in (x_at, y_at)]
    y += np.float32(a) * x
