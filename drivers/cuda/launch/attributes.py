"""The launch attributes of `cuLaunchKernelEx`, as a table.

A row says which launches have the attribute, what the device must support, and the attribute's value.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.errors import BindingError
from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.artifact.parts import Step
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["Attribute", "launch_attributes", "packed_config"]

_Axes = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: its name behind CU_LAUNCH_ATTRIBUTE_, and its value: a number, or one along each of x, y and z."""

    name: str
    value: int | _Axes


@dataclass(frozen=True, slots=True)
class _Row:
    """`value` gives what a launch asks for, None where it asks for nothing. `since` is the first compute capability that has it; `asked` names what
    asks for it, `help` is what to do without."""

    name: str
    value: Callable[[Step, DispatchConfig], int | _Axes | None]
    since: tuple[int, int]
    asked: str
    help: str


_ROWS: Final = (
    _Row(
        "COOPERATIVE", lambda step, config: 1 if step.cooperative or config.cooperative else None, (6, 0), "dispatch option cooperative",
        "it cannot run all workgroups at once",
    ),
    _Row(
        "CLUSTER_DIMENSION", lambda step, config: config.cluster, (9, 0), "dispatch option cluster",
        "its workgroups run each for itself; leave the option out",
    ),
    _Row(
        "PROGRAMMATIC_STREAM_SERIALIZATION", lambda step, config: 1 if step.dependent else None, (9, 0), "option dependent=True",
        "compile without the option",
    ),
)  # fmt: skip

# The most workgroups of a cluster that every GPU with clusters takes.
_CLUSTER_LIMIT: Final = 8

# What does not go together, and why.
_APART: Final = (
    (frozenset({"COOPERATIVE", "PROGRAMMATIC_STREAM_SERIALIZATION"}), "cooperative launch of a kernel compiled with dependent=True",
     "its workgroups would wait for one another while others hold the device; compile without the option"),
    (frozenset({"COOPERATIVE", "CLUSTER_DIMENSION"}), "dispatch option cluster of a cooperative launch",
     "how many clusters run at once is not asked; leave one of the two out"),
)  # fmt: skip


def launch_attributes(capability: tuple[int, int], step: Step, config: DispatchConfig, grid: _Axes) -> tuple[Attribute, ...]:
    """The attributes of a launch of `grid` workgroups along x, y, z on a device of this compute capability; none for most.

    Raises Unsupported that names all that the device lacks and what does not go together, BindingError for a cluster that the grid can't be made of.
    """
    found = [(row, value) for row in _ROWS if (value := row.value(step, config)) is not None]
    lacking = f"compute capability {capability[0]}.{capability[1]}"
    missing = [Missing(f"{row.asked} on {lacking}", help=row.help) for row, _ in found if capability < row.since]
    names = {row.name for row, _ in found}
    missing += [Missing(what, help=why) for apart, what, why in _APART if apart <= names]
    if config.cooperative and step.indirect:
        missing.append(Missing("dispatch option cooperative of a launch that reads its grid", help="whether it fits is not known when it is bound"))
    if config.cluster is not None and step.persistent:
        missing.append(Missing("dispatch option cluster of a persistent kernel", help="the row of workgroups that is launched is not its grid"))
    if missing:
        raise Unsupported(f"the launch of {step.entries[-1].symbol}", missing)
    if config.cluster is not None:
        _require_fit(config.cluster, grid, step.entries[-1].symbol)
    return tuple(Attribute(row.name, value) for row, value in found)


# CUlaunchConfig: seven 32-bit numbers, the stream, the attributes' address and number; CUlaunchAttribute: what it is, and a union of 64 bytes.
_CONFIG: Final = struct.Struct("<7I4xQQI4x")
_ATTRIBUTE: Final = struct.Struct("<I4x3I52x")


def packed_config(
    cuda: Any, grid: _Axes, workgroup: _Axes, dynamic_bytes: int, stream: int, attributes: Sequence[Attribute]
) -> ctypes.Array[ctypes.c_char]:
    """A CUlaunchConfig for `cuLaunchKernelEx`, which begins at the array's own address; it holds its attributes, and is used where it is."""
    size = _CONFIG.size + _ATTRIBUTE.size * len(attributes)
    packed = (ctypes.c_char * size)()
    _CONFIG.pack_into(packed, 0, *grid, *workgroup, dynamic_bytes, stream, ctypes.addressof(packed) + _CONFIG.size, len(attributes))
    for number, attribute in enumerate(attributes):
        what = int(getattr(cuda.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{attribute.name}"))
        value = attribute.value if isinstance(attribute.value, tuple) else (attribute.value, 0, 0)
        _ATTRIBUTE.pack_into(packed, _CONFIG.size + _ATTRIBUTE.size * number, what, *value)
    return packed


def _require_fit(cluster: _Axes, grid: _Axes, name: str) -> None:
    problems = [
        f"the grid has {groups} workgroups along {axis}, which clusters of {size} do not divide"
        for axis, groups, size in zip("xyz", grid, cluster, strict=True)
        if groups % size
    ]
    if prod(cluster) > _CLUSTER_LIMIT:
        problems.append(f"a cluster of {' x '.join(map(str, cluster))} workgroups is too large: {_CLUSTER_LIMIT} is the most")
    if problems:
        raise BindingError(name, problems)
