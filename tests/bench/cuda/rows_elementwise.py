"""Elementwise Programs over arrays of 1 GiB, beside PyTorch: nobody asks for wide accesses, bind finds that they fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tests.bench.cuda.peers import torch
from tests.bench.cuda.table import Bench, Row, at_least
from tests.bench.cuda.timing import Work
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import TYPES

__all__ = ["ELEMENTWISE_ROWS"]

_BYTES: Final = 1 << 30  # of the widest array
_TIMES: Final = 10


@dataclass(frozen=True, slots=True)
class _Case:
    """A body over x and y, what it does in PyTorch, in place of y, and the arrays' types."""

    body: str
    by_torch: Callable[[Any, Any, Any], object]
    types: tuple[str, str] = ("f32", "f32")
    access: str = "write"

    def program(self) -> Program:
        x, y = self.types
        return Program.from_text(
            f"program one(n) workgroup(256) {{\n  buffer x: {x}[n] read\n  buffer y: {y}[n] {self.access}\n  let i = global_id.x\n  y[i] = {self.body}\n}}"
        )


_CASES: Final[Mapping[str, _Case]] = {
    "axpy": _Case("0.5 * x[i] + y[i]", lambda t, x, y: y.add_(x, alpha=0.5), access="read_write"),
    "copy": _Case("x[i]", lambda t, x, y: y.copy_(x)),
    "scale": _Case("x[i] * 3.0", lambda t, x, y: t.mul(x, 3.0, out=y)),
    "exp": _Case("exp(x[i])", lambda t, x, y: t.exp(x, out=y)),
    "tanh": _Case("tanh(x[i])", lambda t, x, y: t.tanh(x, out=y)),
    "relu": _Case("max(x[i], 0.0)", lambda t, x, y: t.clamp_min(x, 0.0, out=y)),
    "f16 add": _Case("x[i] + y[i]", lambda t, x, y: y.add_(x), ("f16", "f16"), "read_write"),
    "u8 add": _Case("x[i] + y[i]", lambda t, x, y: y.add_(x), ("u8", "u8"), "read_write"),
    "f64 add": _Case("x[i] + y[i]", lambda t, x, y: y.add_(x), ("f64", "f64"), "read_write"),
    "u8 to f32": _Case("cast(x[i], f32)", lambda t, x, y: y.copy_(x), ("u8", "f32")),
}


def _measure(case: _Case, shift: int) -> Callable[[Bench], dict[str, float]]:
    def measure(bench: Bench) -> dict[str, float]:
        device, (x_type, y_type) = bench.device, (TYPES[name] for name in case.types)
        count = bench.size(_BYTES, 1 << 12) // max(x_type.size_bytes, y_type.size_bytes)
        x, y = device.allocate(count + shift, x_type)[shift:], device.allocate(count, y_type)
        launch = device.compile_native(case.program()).bind(x=x, y=y)

        def by_torch() -> Work:
            library = torch()
            there = [library.zeros(count + moved, dtype=getattr(library, np.dtype(t.dtype).name), device="cuda")[moved:]
                     for t, moved in ((x_type, shift), (y_type, 0))]  # fmt: skip
            return bench.enqueuing(lambda: case.by_torch(library, *there), _TIMES)

        found = bench.race({"ours": bench.enqueuing(launch, _TIMES)}, {"PyTorch": by_torch}, rounds=7)
        moved = count * (x_type.size_bytes + y_type.size_bytes * (2 if case.access == "read_write" else 1)) * _TIMES
        for buffer in (x, y):
            buffer.free()
        return {name: moved / us / 1e3 for name, us in found.items()}

    measure.__name__ = f"elementwise {shift}"
    return measure


ELEMENTWISE_ROWS = (
    *[Row(f"{name} over 1 GiB", "GB/s", _measure(case, 0), "PyTorch", at_least(0.97)) for name, case in _CASES.items()],
    *[Row(f"{name} over x[1:] of 1 GiB", "GB/s", _measure(_CASES[name], 1), "PyTorch") for name in ("axpy", "u8 add")],
)
