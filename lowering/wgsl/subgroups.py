"""Subgroup ops as WGSL's built-ins, for devices whose subgroups are those of the Program.

WGSL promises no relation between an invocation's index in its workgroup and its lane. So a target says for how many lanes the device keeps it
(`Target.subgroup`; `drivers.wgpu.trials` finds out), and other Programs go through workgroup memory. Nor does WGSL say in which order `subgroupAdd` adds:
of built-ins that compute, only those over integers are taken, whose order is not seen. Numbers of lanes are known where WGSL wants them to be the same for
a subgroup, and where a lane does not exist, what a built-in gives is not looked at. naga, whose spelling this is, wants no `enable` for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from vyre_py.ir.language.nodes import Const, Subgroup
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bool_, f64, i32, i64, u32, u64
from vyre_py.lowering.target import Target
from vyre_py.lowering.wgsl.types import zero

__all__ = ["builtin", "has_builtins", "takes"]

_LANE: Final = "(local_index & {last}u)"

# Shuffle by a known number of an existing lane -> its text, in subgroups of `size` lanes, of which `last` is the last.
_BY_NUMBER: Final[Mapping[str, str]] = {
    "shuffle": "subgroupBroadcast({0}, {1})",
    "shuffle_xor": "subgroupShuffleXor({0}, {1})",
    "shuffle_up": f"select({{zero}}, subgroupShuffleUp({{0}}, {{1}}), {_LANE} >= {{1}})",
    "shuffle_down": f"select({{zero}}, subgroupShuffleDown({{0}}, {{1}}), {_LANE} < {{size}}u - {{1}})",
}
_SHUFFLE: Final = "select({zero}, subgroupShuffle({0}, {1} & {last}u), {1} < {size}u)"
_VOTES: Final[Mapping[str, str]] = {"ballot": "subgroupBallot({0}).x", "all": "subgroupAll({0})", "any": "subgroupAny({0})"}
_FOLDS: Final[Mapping[str, str]] = {
    **{f"reduce_{name}": f"subgroup{name.capitalize()}({{0}})" for name in ("add", "mul", "min", "max", "and", "or", "xor")},
    **{f"{kind}_{name}": f"subgroup{kind.capitalize()}{name.capitalize()}({{0}})" for kind in ("inclusive", "exclusive") for name in ("add", "mul")},
}
_FOLDED: Final = frozenset({i32, u32})
# Type of 64 bits -> its words, and what they make.
_WORDS: Final[Mapping[Type, tuple[str, str]]] = {
    f64: ("raw_words_of_f64({})", "f64_of_words({}, {})"), u64: ("words_of_u64({})", "u64_of_words({}, {})"),
    i64: ("words_of_u64(bitcast<u64>({}))", "bitcast<i64>(u64_of_words({}, {}))"),
}  # fmt: skip


def has_builtins(program: Program, target: Target) -> bool:
    """Whether the subgroups of a Program are those of the target's devices."""
    _, y, z = program.workgroup
    return program.subgroup == target.subgroup and y == z == 1


def takes(size: int) -> Callable[[Subgroup], bool]:
    """Which ops of scalars are written here, of subgroups of `size` lanes; 64 bits move as two words."""

    def taken(s: Subgroup) -> bool:
        name = s.op.name
        if name in _FOLDS:
            return s.args[0].type in _FOLDED
        return name == "shuffle" or name in _VOTES or (name in _BY_NUMBER and _is_lane(s, size))

    return taken


def _is_lane(s: Subgroup, size: int) -> bool:
    number = s.args[1]
    return isinstance(number, Const) and number.bits < size


def builtin(s: Subgroup, size: int, operands: Sequence[str]) -> str:
    """The text of an op that is taken, in subgroups of `size` lanes."""
    name, type_ = s.op.name, s.args[0].type
    if name not in _BY_NUMBER:
        return (_VOTES.get(name) or _FOLDS[name]).format(*operands)
    form, (x, by) = _BY_NUMBER[name] if _is_lane(s, size) else _SHUFFLE, operands

    def moved(held: str, type_: Type) -> str:
        return form.format(held, by, size=size, last=size - 1, zero=zero(type_))

    if type_ is bool_:
        return f"{moved(f'u32({x})', u32)} != 0u"
    if type_ in _WORDS:
        apart, joined = _WORDS[type_]
        return joined.format(*[moved(f"{apart.format(x)}.{half}", u32) for half in "xy"])
    return moved(x, type_)
