"""The command `run`: a Program once, over arrays from files, and what it wrote. And what `bench` shares with it."""

from __future__ import annotations

import argparse
import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.cli.compiling import stages_data
from vyre_py.cli.output import CommandError, name_text, say, say_beside, say_json, time_text
from vyre_py.cli.parser import compile_options
from vyre_py.cli.sources import label_of, read_code
from vyre_py.cli.values import Destination, parse_arguments, write_results
from vyre_py.drivers.config import DispatchConfig
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.language.program import Program
from vyre_py.ir.text.lexer import literal_text
from vyre_py.lowering.options import CompileOptions

if TYPE_CHECKING:
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["opened", "run"]

Array = np.ndarray[Any, Any]

_SHOWN: Final = 8  # elements of each result


def opened(
    arguments: argparse.Namespace, interruptible: bool = False, watched: bool = False
) -> tuple[Pipeline, dict[str, Any], Program | None]:
    """The code in a file on the device that was asked for, the arguments for it, and its Program where that is what the file holds; `interruptible`
    where the device has that; `watched` on the one that watches for races and their like, as it was written unless a level was asked for. Raises what
    reading, compiling and loading raise."""
    from vyre_py.drivers.registry import device

    code = read_code(arguments.file)
    options = compile_options(arguments)
    found = device(arguments.device or ("reference" if watched else None))
    if isinstance(code, Program):
        opt = 0 if watched and arguments.opt is None else options.opt
        pipeline = found.compile_native(code, replace(options, opt=opt, interruptible=interruptible and "timeout" in found.honoured_options))
    elif options != CompileOptions():
        raise CommandError(f"{label_of(arguments.file)}: this code is compiled already, and options that change code come too late")
    else:
        pipeline = found.load(code)
    return pipeline, parse_arguments(pipeline.artifact.interface, arguments.arguments), code if isinstance(code, Program) else None


def _number(value: Any) -> bool | int | float | str:
    """An element as JSON: what JSON has no number for as text."""
    plain = value.item() if value.dtype.isbuiltin == 1 else float(value)
    return str(plain) if isinstance(plain, float) and not math.isfinite(plain) else plain


def _literal(memory: Memory, value: Any) -> str:
    scalar = memory.type.scalar
    return literal_text(scalar, int(value.view(f"u{scalar.size_bytes}")), suffix=False)


def _result_data(memory: Memory, array: Array) -> dict[str, Any]:
    """A result as JSON: its type and shape (vectors' components on the last axis), its first elements, and SHA-256 of all, in row-major order."""
    whole = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return {
        "name": memory.name, "type": str(memory.type), "dtype": str(array.dtype), "shape": list(array.shape),
        "first": [_number(value) for value in array.flat[:_SHOWN]], "sha256": hashlib.sha256(whole).hexdigest(),
    }  # fmt: skip


def _say_result(memory: Memory, array: Array, sha256: str) -> None:
    elements = " ".join(_literal(memory, value) for value in array.flat[:_SHOWN]) + (" ..." if array.size > _SHOWN else "")
    say(f"{name_text(memory.name)}: {memory.type} {list(array.shape)}  {elements}  sha256 {sha256[:16]}")


def _require_results(destinations: list[Destination], buffers: Mapping[str, Memory]) -> None:
    """Raises CommandError for a file that no result goes into."""
    for wanted in destinations:
        if wanted.name is not None and wanted.name not in buffers:
            raise CommandError(f"{shown(wanted.name)} is not a result; there are {', '.join(map(name_text, buffers)) or 'none'}")


def run(arguments: argparse.Namespace) -> int:
    """Runs the code in a file once, keeps results where that is asked for, and shows them."""
    pipeline, values, _ = opened(arguments, interruptible=True, watched=arguments.races or arguments.unwritten)
    written = {m.name: m for m in pipeline.artifact.interface.buffers if m.access.writes}
    _require_results(arguments.out, written)
    config = DispatchConfig(timeout=arguments.timeout, races=arguments.races, unwritten=arguments.unwritten, on_print=say_beside if arguments.json else say)
    timed = pipeline.dispatch_timed(values, config=config)
    results: dict[str, Array] = timed.results
    write_results(arguments.out, results)
    data = [_result_data(written[name], array) for name, array in results.items()]
    times = {name: getattr(timed, name) for name in ("wall_ns", "enqueue_ns", "wait_ns", "device_ns")}
    if arguments.json:
        about = {"program": pipeline.name, "device": pipeline.device.name, "numerics": pipeline.numerics, "results": data}
        say_json(about | ({"time": times, "stages": stages_data(pipeline.stages)} if arguments.time else {}))
        return 0
    for row in data:
        _say_result(written[row["name"]], results[row["name"]], row["sha256"])
    if arguments.time:
        say(f"on {pipeline.device.name}, {pipeline.numerics}: " + ", ".join(f"{k[:-3]} {time_text(v)}" for k, v in times.items() if v is not None))
        say(str(pipeline.stages))
    return 0
