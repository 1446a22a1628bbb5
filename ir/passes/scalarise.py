"""scalarise: vectors become their components, so that targets get scalars only.

A vector value is a tuple of atoms; making vectors and picking components cost nothing. A memory of vectors becomes the memory of
their components, with one more axis, the last; an access to an element becomes one per component, at constant indices of that
axis, so a whole element is inside or outside as before. A vector param becomes params that are parts of the argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import (
    TARGET_KINDS,
    Atom,
    Const,
    CopyAsync,
    CopyCommit,
    CopyWait,
    Get,
    Let,
    Load,
    Memory,
    Param,
    ReportStatement,
    Set,
    Store,
    Subgroup,
    UniformLoad,
    Value,
    Var,
    Variable,
)
from vyre_py.ir.language.op import Result
from vyre_py.ir.language.ops import OPS, swizzle_lanes
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.ir.language.walks import REPORTING_KINDS, SCALAR_KINDS, WITHOUT_TILES, Handlers
from vyre_py.ir.math import VECTOR_EXPANSIONS, Components, MathBuilder
from vyre_py.ir.math.exact.packing import bitcast
from vyre_py.ir.math.together import mask_words
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.ir.text.messages import spread

__all__ = ["scalarise"]

_AXES: Final = "xyzw"
_SWIZZLE: Final = OPS["swizzle"]


def _is_scalar(program: Program) -> bool:
    """Whether nothing is a vector, and nothing picks components."""
    if any(p.type.is_vector for p in program.params) or any(m.type.is_vector for m in program.memories):
        return False
    return not any((s.result is not None and s.result.type.is_vector) or (isinstance(s, Let) and s.op is _SWIZZLE) for s in program.body)


class _Scalariser(Rewriter):
    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.builder = MathBuilder(self)
        self.components: dict[Atom, Components] = {}  # of the old Program's vector values and params
        self.variables: dict[Variable, tuple[Variable, ...]] = {}
        self.renewed = {memory: _renewed(memory) for memory in program.memories}
        self.memories = list(self.renewed.values())
        taken = {d.name for d in program.dims} | {p.name for p in program.params} | {m.name for m in program.memories}
        self.params = [part for param in program.params for part in self._split(param, taken)]

    def _split(self, param: Param, taken: set[str]) -> list[Param]:
        """The params that stand for a param."""
        scalar = param.type.scalar
        if scalar is param.type:
            return [param]
        parts: list[Param] = []
        for lane in range(param.type.lanes):
            name = f"{param.name}.{_AXES[lane]}"
            while name in taken:
                name += "'"
            taken.add(name)
            if param.name in self.program.declared:
                self.declared[name] = self.program.declared[param.name]
            parts.append(Param(name, scalar, (param.name, lane * scalar.size_bytes)))
        self.components[param] = tuple(parts)
        return parts

    # ---- atoms

    def parts(self, atom: Atom, lanes: int) -> Components:
        """The components of an old atom; a scalar stands for each of `lanes`."""
        return self.components[atom] if atom.type.is_vector else (self.atom(atom),) * lanes

    def keep(self, old: Value, made: Components) -> None:
        """`made` stands for an old value from here on; what has no name takes its name."""
        name = self.program.value_names.get(old.id)
        if old.type.is_vector:
            self.components[old] = made
            names = [f"{name}.{axis}" for axis in _AXES]
        else:
            self.map[old.id] = made[0]
            names = [f"{name}"]
        for part, atom in zip(names, made, strict=False):
            if name is not None and isinstance(atom, Value):
                self.value_names.setdefault(atom.id, part)

    def element(self, args: tuple[Atom, ...], lane: int) -> tuple[Atom, ...]:
        """The indices of a component."""
        return (*[self.atom(a) for a in args], Const(u32, lane))

    # ---- statements: each says whether it was written here, rather than to be copied

    def take(self, index: int) -> None:
        """Takes in old statement `index`."""
        statement = self.program.body[index]
        self.place = self.program.place(index)
        rule = _RULES.get(type(statement))
        if rule is None or not rule(self, statement):
            self.copy(index)

    def _let(self, s: Let) -> bool:
        made = self._components(s)
        if made is not None:
            self.keep(s.bound, made)
        return made is not None

    def _components(self, s: Let) -> Components | None:
        """What an op gives, component by component; None for an op of scalars."""
        name, type_ = s.op.name, s.bound.type
        if s.op is _SWIZZLE:
            source, pattern = s.args
            assert isinstance(pattern, Const)  # checked
            return tuple([self.parts(source, 1)[lane] for lane in swizzle_lanes(pattern.bits, type_.lanes)])
        if s.op.result is Result.VECTOR:
            return tuple([self.atom(a) for a in s.args])
        if (expansion := VECTOR_EXPANSIONS.get(name)) is not None:
            return expansion(self.builder, *[self.parts(a, 1) for a in s.args])
        if not any(a.type.is_vector for a in (*s.args, s.bound)):
            return None
        if name == "bitcast":
            return bitcast(self.builder, self.parts(s.args[0], 1), type_.scalar)
        given = type_.scalar if s.op.result is Result.GIVEN else None
        columns = zip(*[self.parts(a, type_.lanes) for a in s.args], strict=True)
        return tuple([self.let(s.op, operands, given) for operands in columns])

    def _load(self, s: Load | UniformLoad) -> bool:
        memory = self.renewed[s.memory]
        if memory is s.memory:
            return False
        one = self.load if isinstance(s, Load) else self.uniform_load
        self.keep(s.bound, tuple([one(memory, self.element(s.args, lane)) for lane in range(s.memory.type.lanes)]))
        return True

    def _store(self, s: Store | CopyAsync) -> bool:
        memory = self.renewed[s.memory]
        if memory is s.memory:
            return False
        one = self.store if isinstance(s, Store) else self.copy_async
        for lane, part in enumerate(self.parts(s.value, s.memory.type.lanes)):
            one(memory, self.element(s.indices, lane), part)
        return True

    def _together(self, s: Subgroup) -> bool:
        """Component by component; a mask of more than 32 lanes word by word."""
        x, type_ = s.args[0], s.bound.type
        if not x.type.is_vector and not type_.is_vector:
            return False
        parts = self.parts(x, 1)
        if s.op.masks:
            words = mask_words(self.builder, s.op.name, parts)
            self.keep(s.bound, words)
        else:
            self.keep(s.bound, tuple([self.together(s.op, (part, *[self.atom(a) for a in s.args[1:]])) for part in parts]))
        return True

    def _var(self, s: Var) -> bool:
        old = s.variable
        if not old.type.is_vector:
            return False
        name = self.program.variable_names.get(old.id)
        parts = enumerate(self.parts(s.args[0], old.type.lanes))
        self.variables[old] = tuple([self.var(old.type.scalar, part, name and f"{name}.{_AXES[lane]}") for lane, part in parts])
        return True

    def _get(self, s: Get) -> bool:
        parts = self.variables.get(s.variable)
        if parts is None:
            return False
        self.keep(s.bound, tuple([self.get(part) for part in parts]))
        return True

    def _set(self, s: Set) -> bool:
        parts = self.variables.get(s.variable)
        if parts is None:
            return False
        for part, value in zip(parts, self.parts(s.args[0], len(parts)), strict=True):
            self.set(part, value)
        return True

    def _report(self, s: ReportStatement) -> bool:
        if not any(a.type.is_vector for a in s.values):
            return False
        args = tuple([part for a in s.args for part in self.parts(a, 1)])
        self.emit(type(s)(None, args, spread(s.message, [a.type for a in s.values])))
        return True


def _renewed(memory: Memory) -> Memory:
    """The memory of a memory's components."""
    if not memory.type.is_vector:
        return memory
    shape = (*memory.shape, DimConst(memory.type.lanes))
    return Memory(memory.name, memory.space, memory.type.scalar, shape, memory.access, memory.data)


_RULES: Final[Handlers[Callable[[_Scalariser, Any], bool]]] = Handlers("the pass scalarise", {
    Let: _Scalariser._let, Load: _Scalariser._load, UniformLoad: _Scalariser._load, Store: _Scalariser._store,
    CopyAsync: _Scalariser._store,
    Var: _Scalariser._var, Get: _Scalariser._get, Set: _Scalariser._set, Subgroup: _Scalariser._together,
    **dict.fromkeys(REPORTING_KINDS, _Scalariser._report),
}, apart=(*SCALAR_KINDS, CopyCommit, CopyWait, *TARGET_KINDS), without=WITHOUT_TILES)  # fmt: skip


def scalarise(program: Program) -> Program:
    """The Program over components instead of vectors, with the same grid, dims, names and places; one without vectors is given back itself.

    The components of a vector named `v` are named `v.x`, `v.y` and so on. A UniformLoad of a vector becomes one per component, since nothing
    else is known to be uniform.
    """
    if _is_scalar(program):
        return program
    _RULES.require(program)
    scalariser = _Scalariser(program)
    for index in scalariser.indices():
        scalariser.take(index)
    return scalariser.finish()
