"""Arguments for a recording: as text for people to change, and made up where nothing is given, so that every Program can be run at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from vyre_py.cli.output import CommandError
from vyre_py.cli.values import Given, parse_arguments
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.interpret.arguments import axis_of_components, storage_dtype
from vyre_py.ir.language.dims import Dim, evaluate_dim
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Memory, Param
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Kind
from vyre_py.lowering.artifact.parts import Interface

__all__ = ["FILLS", "MadeUp", "arguments_of"]

_SIZE: Final = 16  # of a dim that no axis of the grid is
_OF_TILES: Final = 64
_GROUPS: Final = 2
_MOST_ELEMENTS: Final = 1 << 22
_SEED: Final = 7

# What a buffer of any shape may hold, by name: from the number of elements to floats that every type holds.
FILLS: Final[Mapping[str, Callable[[int], np.ndarray[Any, Any]]]] = {
    "ramp": lambda count: np.arange(count) % 16.0,
    "zeros": np.zeros,
    "ones": np.ones,
    "random": lambda count: np.random.default_rng(_SEED).integers(0, 16, count).astype(np.float64),
}


@dataclass(frozen=True, slots=True)
class MadeUp:
    """Arguments as the interpreter takes them, sizes by name, and all of them as the text that stands for them."""

    arguments: dict[str, Any]
    sizes: dict[str, int]
    texts: dict[str, str]


def _size_of(program: Program, dim: Dim) -> int:
    """A size that fills more than one workgroup along an axis, and not the last."""
    for axis, extent in enumerate(program.grid.extents):
        if extent == dim:
            return program.workgroup[axis] + program.workgroup[axis] // 2 + 1 if program.grid.over and not program.of_tiles else _GROUPS
    return _OF_TILES if program.of_tiles else _SIZE


def _default(program: Program, declared: Dim | Param | Memory) -> str:
    if isinstance(declared, Dim):
        return str(_size_of(program, declared))
    if isinstance(declared, Memory):
        return "ramp" if declared.access.reads else "zeros"
    one = "true" if declared.type.kind is Kind.BOOL else "2"
    return ",".join([one] * declared.type.lanes)


def arguments_of(program: Program, given: Mapping[str, str]) -> MadeUp:
    """The arguments that texts stand for, and made-up ones for names that are missing: a size fills a workgroup and a half, a buffer counts up. A buffer is one
    of `FILLS`, or, where it has one axis, a list of numbers. Raises CommandError for other text, and for more elements than a recording has."""
    interface = Interface.of(program)
    kinds: tuple[Sequence[Dim | Param | Memory], ...] = (interface.dims, interface.params, interface.buffers)
    declared = {one.name: one for kind in kinds for one in kind}
    if unknown := given.keys() - declared.keys():
        raise CommandError(f"there is no argument {shown(sorted(unknown)[0])}")
    texts = {name: given.get(name, "").strip() or _default(program, one) for name, one in declared.items()}
    if any(text.startswith("@") for text in texts.values()):
        raise CommandError("a recording reads no files: give numbers")
    filled = {name for name, text in texts.items() if text in FILLS and isinstance(declared[name], Memory)}
    values = parse_arguments(interface, [Given(name, text) for name, text in texts.items() if name not in filled])
    sizes = {dim.name: values.pop(dim.name) for dim in interface.dims}
    for buffer in interface.buffers:
        wanted = storage_dtype(buffer.type)
        if buffer.name in filled:
            shape = (*[evaluate_dim(extent, sizes) for extent in buffer.shape], *axis_of_components(buffer.type))
            count = int(np.prod(shape, dtype=object)) if all(extent >= 0 for extent in shape) else 0
            if count > _MOST_ELEMENTS:
                raise CommandError(f"buffer {shown(buffer.name)} would have {count:,} elements; a recording takes {_MOST_ELEMENTS:,} at most")
            numbers = FILLS[texts[buffer.name]](count)
            values[buffer.name] = (numbers != 0 if buffer.type.kind is Kind.BOOL else numbers).astype(wanted).reshape([max(0, extent) for extent in shape])
        else:
            values[buffer.name] = np.array(values[buffer.name], wanted)  # one of its own, which the run may write
    return MadeUp(values, sizes, texts)
