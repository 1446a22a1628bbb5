"""Limits of the language: a hostile Program is refused, and a real one stays below them. A driver has the limits of its device.

Laws:

* V501: blocks nest at most `MAX_NESTING` deep.
* V502: the bodies of the Program and its functions have at most `MAX_STATEMENTS` statements together.
* V503: a name, and the message of an assert or print, has at most `MAX_NAME` characters.
* V504: a workgroup, but that of a Program of tiles, is at least 1 along each axis, at most `MAX_WORKGROUP_Z` along z, and at most `MAX_WORKGROUP` in all.
* V509: a subgroup has a power of two of invocations, at most `MAX_SUBGROUP`, that divides the workgroup.
* V505, V506, V507: the arrays of a workgroup, of an invocation, and the tables stay below their sum of bytes, those of functions included.
* V511: a Program has at most `MAX_FUNCTIONS` functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Final

from vyre_py.ir.check.findings import HEAD, Findings, number, quoted
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import End, Let, Memory, Region, ReportStatement, Space

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = [
    "MAX_COPY_GROUPS",
    "MAX_FUNCTIONS",
    "MAX_NAME",
    "MAX_NESTING",
    "MAX_PIPELINE",
    "MAX_RANK",
    "MAX_STATEMENTS",
    "MAX_SUBGROUP",
    "MAX_UNROLL",
    "MAX_WORKGROUP",
    "MAX_WORKGROUP_Z",
    "SPACE_LIMITS_BYTES",
    "check_limits",
    "check_size",
]

MAX_STATEMENTS: Final = 1_000_000  # as a body is written, and on its way to a target (`ir.passes.rewriter`)
MAX_NESTING: Final = 256
MAX_NAME: Final = 256
MAX_RANK: Final = 8  # axes of a memory: V307, in `memory`
MAX_UNROLL: Final = 256  # turns of a loop that a hint has written out: V214, in `types`
MAX_COPY_GROUPS: Final = 31  # of copies that a wait leaves in flight: V213, in `types`
MAX_PIPELINE: Final = MAX_COPY_GROUPS + 1  # turns for which a loop's tiles have room: V216, in `types`
MAX_WORKGROUP: Final = 1024
MAX_WORKGROUP_Z: Final = 64
MAX_SUBGROUP: Final = 128
MAX_FUNCTIONS: Final = 4096

# Space -> (the rule, what all memories of that space may take together).
SPACE_LIMITS_BYTES: Final = {
    Space.WORKGROUP: ("V505", 227 << 10),
    Space.PRIVATE: ("V506", 64 << 10),
    Space.TABLE: ("V507", 16 << 20),
}


def check_size(program: Program, findings: Findings) -> None:
    """Reports a body that is too long to be looked at."""
    functions = program.functions if type(program.functions) is tuple else ()
    if len(functions) > MAX_FUNCTIONS:
        findings.add("V511", HEAD, f"{len(functions)} functions, at most {MAX_FUNCTIONS} are allowed")
        return
    bodies = [getattr(getattr(function, "program", None), "body", ()) for function in functions]  # of any kind, until their form is proven
    count = len(program.body) + sum([len(body) for body in bodies if type(body) is tuple])
    if count > MAX_STATEMENTS:
        findings.add("V502", HEAD, f"{count} statements, at most {MAX_STATEMENTS} are allowed")


def _size_bytes(memory: Memory) -> int:
    """Bytes of an array of constant shape; 0 where the shape is at fault itself."""
    axes = [axis.value for axis in memory.shape if isinstance(axis, DimConst)]
    return memory.type.size_bytes * prod(axes) if len(axes) == memory.rank and min(axes, default=1) >= 1 else 0


def _names(program: Program) -> Iterator[tuple[str | None, str]]:
    """Every name but a region's, with the declaration that it stands at."""
    yield HEAD, program.name
    yield from ((dim.name, dim.name) for dim in program.dims)
    yield from ((param.name, param.name) for param in program.params)
    yield from ((memory.name, memory.name) for memory in program.memories)
    yield from ((HEAD, name) for name in program.value_names.values())
    yield from ((HEAD, name) for name in program.variable_names.values())


def _depth(function: Program) -> int:
    """How deep the blocks of a function nest, written out: its own arrays are cleared by a loop for each axis."""
    depth, most = 0, max([memory.rank for memory in function.memories if memory.space is Space.PRIVATE], default=0)
    for statement in function.body:
        depth += statement.opens - (type(statement) is End)
        most = max(most, depth)
    return most


def _check_nesting(program: Program, findings: Findings) -> None:
    depth = 0
    inside: dict[object, int] = {function: _depth(function.program) for function in program.functions}
    for index, statement in enumerate(program.body):
        if isinstance(statement, Let) and depth and depth + inside.get(statement.op, 0) > MAX_NESTING:
            findings.add("V501", index, f"the blocks of {statement.op.name} are more than {MAX_NESTING} deep here")
        if statement.opens:
            depth += 1
            if depth == MAX_NESTING + 1:
                findings.add("V501", index, f"this block is more than {MAX_NESTING} deep")
            if isinstance(statement, Region) and len(statement.name) > MAX_NAME:
                findings.add(
                    "V503", index, f"the region's name {quoted(statement.name)} has {len(statement.name)} characters"
                )
        elif type(statement) is End:
            depth -= 1
        elif isinstance(statement, ReportStatement) and len(statement.message) > MAX_NAME:
            findings.add("V503", index, f"the message {quoted(statement.message)} has {len(statement.message)} characters")


def check_limits(program: Program, findings: Findings) -> None:
    """Reports what is too large."""
    for where, name in _names(program):
        if len(name) > MAX_NAME:
            findings.add("V503", where, f"the name {quoted(name)} has {len(name)} characters")
    x, y, z = program.workgroup
    if not program.of_tiles and (min(program.workgroup) < 1 or z > MAX_WORKGROUP_Z or x * y * z > MAX_WORKGROUP):
        findings.add("V504", HEAD, f"a workgroup of {number(x)} x {number(y)} x {number(z)}")
    size = program.subgroup
    if size and not program.of_tiles and (size > MAX_SUBGROUP or size & (size - 1) or x * y * z % size):
        findings.add("V509", HEAD, f"a subgroup of {number(size)} in a workgroup of {number(x * y * z)}")
    for space, (code, limit) in SPACE_LIMITS_BYTES.items():
        arrays = [memory for part in (*[f.program for f in program.functions], program) for memory in part.memories if memory.space is space]
        size = sum(map(_size_bytes, arrays))
        if size > limit:
            message = f"{space.value} arrays take {number(size)} bytes, at most {limit} are allowed"
            findings.add(code, arrays[-1].name, message)
    _check_nesting(program, findings)
