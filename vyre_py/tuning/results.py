"""What results of candidates have to be: those of the first combination's Program, which another kind of device computes in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import LaunchError
from vyre_py.drivers.process.executor import Executor
from vyre_py.drivers.registry import KINDS
from vyre_py.ir.language.errors import VyreError
from vyre_py.ir.language.nodes import Atomic, GridScan, Statement, Tile, TileAtomicAdd
from vyre_py.ir.language.program import Program
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.options import CompileOptions

__all__ = ["Expected", "is_exact"]

_TOLERANCE: Final = 2.0**-6  # of the largest element, where sums have an order of their own and are rounded to types of 16 bits
_PATIENCE: Final = 20.0  # seconds that the other device may take
_OTHERS: Final = {kind: {"cuda": "cpu", "wgpu": "cpu", "cpu": "reference", "reference": ""}[kind] for kind in KINDS}  # the interpreter is what is meant


class Expected:
    """The results that are right, and `by`, what gave them: the name of a device, or "first", the first candidate that ran, where none could within a while."""

    def __init__(self, program: Program, arguments: Any, device: Device, options: CompileOptions, timeout: float) -> None:
        self._results: Mapping[str, Any] | None = None
        self.by, other = "first", _OTHERS[device.kind]
        if not other:
            return
        seconds = min(timeout, _PATIENCE)
        try:
            with Executor(other, seconds, compile_timeout=seconds) as executor:
                given = CompileOptions(workgroup=options.workgroup)
                self._results = executor.dispatch(program, arguments, options=given, config=DispatchConfig(on_print=lambda line: None))
                self.by = executor.name
        except VyreError:  # it takes too long there, or that device lacks something; its workers are gone
            self._results = None

    def compare(self, found: Mapping[str, Any], exact: bool) -> None:
        """Raises LaunchError where results are others: in their bits, or by more than sums in another order may be where they are not `exact`."""
        if self._results is None:
            self._results = found
        for name, right in self._results.items():
            other = found[name]
            if right.tobytes() != other.tobytes() and (exact or not _near(right, other)):
                differ = np.argwhere(_bits(right) != _bits(other))
                place, who = ", ".join(map(str, differ[0])), "the first candidate" if self.by == "first" else self.by
                raise LaunchError(
                    f"{name!r} is not what {who} gives: {len(differ)} of {right.size} elements differ, the first is [{place}]",
                    remedy="parameters must not change results, or `check` says what is right",
                )


def _bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _near(right: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if right.dtype.kind in "iub":
        return False
    one, two = right.astype(np.float64), other.astype(np.float64)
    bound = _TOLERANCE * np.max(np.abs(one), initial=0.0, where=np.isfinite(one))
    return np.allclose(two, one, rtol=_TOLERANCE, atol=bound, equal_nan=True)


def is_exact(program: Program, artifact: Artifact) -> bool:
    """Whether its results have the same bits however it is computed: not by tensor cores, nor where floats are added in whatever order they come."""
    return all(part.numerics == "strict" for part in artifact.parts) and not any(map(_has_no_order, program.body))


def _has_no_order(statement: Statement) -> bool:
    """Whether a statement adds floats in an order that is not the language's."""
    if isinstance(statement, Tile):
        return statement.op.name == "mma_tensor"
    if not isinstance(statement, (Atomic, TileAtomicAdd, GridScan)):
        return False
    types = [getattr(atom, "type", None) for atom in (statement.result, *statement.args)]
    return any(type_ is not None and type_.is_float for type_ in types)
