"""words: 64-bit integers become pairs of 32-bit words, for targets that have no wider ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import (
    Atom,
    Atomic,
    Const,
    Get,
    Let,
    Load,
    Memory,
    MemoryStatement,
    Param,
    Set,
    Space,
    Statement,
    Store,
    Subgroup,
    UniformLoad,
    Value,
    Var,
    Variable,
    const,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.ir.language.walks import SCALAR_KINDS, WITHOUT_TILES, Handlers
from vyre_py.ir.language.widths import whole_size
from vyre_py.ir.math.builder import word
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.legal.asserts import WITHOUT_REPORTS
from vyre_py.lowering.legal.plain_copies import WITHOUT_COPIES
from vyre_py.lowering.legal.split64_ops import Pair, Split64Builder, is_wide, op_by_words, words_of_const

__all__ = ["WordPairs", "missing_words", "split_words"]

_HALVES: Final = (("low", 0), ("high", 4))  # how a word is called, and its first byte


def missing_words(program: Program) -> Iterator[Missing]:
    """The ops without a form in 32-bit words: atomics on 64-bit integers."""
    for index, statement in enumerate(program.body):
        if isinstance(statement, Atomic) and is_wide(statement.memory.type):
            yield Missing(f"atomic {statement.op.name} on {statement.memory.type}", program.place(index), "atomics take 32-bit integers here")


class WordPairs(Memory):
    """A buffer of the words of 64-bit integers: the last axis has the two of each, which lie on a multiple of 8 bytes."""

    __slots__ = ()


def split_words(program: Program) -> Program:
    """The Program with every i64 and u64 as two u32, the low word first; the same object without any.

    A param becomes two (`Param.part`), a memory gets one more axis, of two words; each op becomes statements over words (`split64_ops`). Vectors
    have been taken apart before, saturating and bit-field ops been expanded, smaller integers and floats than 32 bits been widened. The only
    vectors left behind are those of two u32 that bitcasts from and to f64 go through. Raises Unsupported for atomics on 64-bit integers.
    """
    if missing := list(missing_words(program)):
        raise Unsupported("two-word integers", missing)
    if not _has_wide(program):
        return program
    _SPLIT.require(program)
    return _Splitter(program).run()


def _has_wide(program: Program) -> bool:
    if any(is_wide(p.type) for p in program.params) or any(is_wide(m.type) for m in program.memories):
        return True
    return any(is_wide(a.type) for s in program.body for a in (*s.args, *([s.result] if s.result else [])))


class _Splitter(Rewriter):
    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._words = Split64Builder(self)
        self._pairs: list[Pair | None] = [None] * program.value_count
        self._variable_pairs: dict[int, tuple[Variable, Variable]] = {}
        self._memories = {m: self._memory(m) for m in program.memories}
        self.memories = list(self._memories.values())
        self._taken = {p.name for p in program.params} | {m.name for m in program.memories} | {d.name for d in program.dims}
        self._params = {p: self._param(p) for p in program.params if is_wide(p.type)}
        self.params = [part for p in program.params for part in self._params.get(p, (p,))]

    # ---- declarations

    @staticmethod
    def _memory(memory: Memory) -> Memory:
        if not is_wide(memory.type):
            return memory
        # A table's elements are little-endian: their bytes are those of the words.
        kind = WordPairs if memory.space is Space.BUFFER else Memory
        return kind(memory.name, memory.space, u32, (*memory.shape, DimConst(len(_HALVES))), memory.access, memory.data)

    def _param(self, param: Param) -> tuple[Param, Param]:
        name, first = param.part or (param.name, 0)
        low, high = (Param(self._free(param.name, half), u32, (name, first + byte)) for half, byte in _HALVES)
        return low, high

    def _free(self, whole: str, half: str) -> str:
        """A name for half of a param, written where the param was."""
        name = f"{whole}.{half}"
        while name in self._taken:
            name += "'"
        self._taken.add(name)
        if whole in self.declared:
            self.declared[name] = self.declared[whole]
        return name

    # ---- atoms

    def pair(self, atom: Atom) -> Pair:
        """The words of an old 64-bit atom."""
        if isinstance(atom, Const):
            return words_of_const(atom)
        if isinstance(atom, Param):
            return self._params[atom]
        assert isinstance(atom, Value)  # a size is a u32
        found = self._pairs[atom.id]
        assert found is not None, "a value is copied before it is used"
        return found

    def _bind(self, old: Value, made: Any) -> None:
        """What stands for an old value from now on: a pair for a 64-bit one."""
        name = self.program.value_names.get(old.id)
        if not is_wide(old.type):
            self.map[old.id] = made
            self._name(made, name)
            return
        self._pairs[old.id] = made
        for atom, (half, _) in zip(made, _HALVES, strict=True):
            self._name(atom, f"{name}.{half}" if name else None)

    def _name(self, atom: Atom, name: str | None) -> None:
        if name and isinstance(atom, Value):
            self.value_names.setdefault(atom.id, name)

    # ---- statements

    def run(self) -> Program:
        """The whole Program, split."""
        for index in self.indices():
            statement = self.program.body[index]
            split = self._row(statement)
            if split is None:
                self.copy(index)
            else:
                self.place = self.program.place(index)
                split(self, statement)
        return self.finish()

    @staticmethod
    def _row(statement: Statement) -> Callable[[_Splitter, Any], None] | None:
        """How a statement is split, or None for one that has no 64-bit integer."""
        if isinstance(statement, MemoryStatement):
            wide = is_wide(statement.memory.type)
        elif isinstance(statement, (Var, Get, Set)):
            wide = is_wide(statement.variable.type)
        else:
            wide = isinstance(statement, (Let, Subgroup)) and any(is_wide(a.type) for a in (statement.bound, *statement.args))
        return _SPLIT[type(statement)] if wide else None

    def _let(self, statement: Let) -> None:
        if isinstance(size := whole_size(statement), DimConst):
            self._bind(statement.bound, words_of_const(const(statement.bound.type, size.value)))
            return
        args = [self.pair(a) if is_wide(a.type) else self.atom(a) for a in statement.args]
        self._bind(statement.bound, op_by_words(self._words, statement, args))

    def _places(self, statement: MemoryStatement) -> list[tuple[Atom, ...]]:
        """The indices of both words."""
        indices = tuple([self.atom(a) for a in statement.indices])
        return [(*indices, word(k)) for k in range(len(_HALVES))]

    def _load(self, statement: Load | UniformLoad) -> None:
        load = self.load if isinstance(statement, Load) else self.uniform_load
        memory = self._memories[statement.memory]
        self._bind(statement.bound, tuple([load(memory, place) for place in self._places(statement)]))

    def _store(self, statement: Store) -> None:
        memory = self._memories[statement.memory]
        for place, half in zip(self._places(statement), self.pair(statement.value), strict=True):
            self.store(memory, place, half)

    def _together(self, statement: Subgroup) -> None:
        assert statement.op.moves_bits  # other ops are written out in those, where a target has none over 64 bits
        x, *by = statement.args
        self._bind(statement.bound, tuple([self.together(statement.op, (half, *map(self.atom, by))) for half in self.pair(x)]))

    def _var(self, statement: Var) -> None:
        name = self.program.variable_names.get(statement.variable.id)
        first = self.pair(statement.args[0])
        low, high = (self.var(u32, atom, f"{name}.{half}" if name else None) for atom, (half, _) in zip(first, _HALVES, strict=True))
        self._variable_pairs[statement.variable.id] = (low, high)

    def _get(self, statement: Get) -> None:
        self._bind(statement.bound, tuple([self.get(v) for v in self._variable_pairs[statement.variable.id]]))

    def _set(self, statement: Set) -> None:
        for variable, half in zip(self._variable_pairs[statement.variable.id], self.pair(statement.args[0]), strict=True):
            self.set(variable, half)


# `missing_words` refuses atomics on 64-bit integers.
_SPLIT: Final[Handlers[Callable[[_Splitter, Any], None]]] = Handlers("the rewrite of 64-bit integers", {
    Let: _Splitter._let, Load: _Splitter._load, UniformLoad: _Splitter._load, Store: _Splitter._store, Var: _Splitter._var, Get: _Splitter._get,
    Set: _Splitter._set, Subgroup: _Splitter._together,
}, apart=SCALAR_KINDS, without={**WITHOUT_REPORTS, **WITHOUT_COPIES, **WITHOUT_TILES})  # fmt: skip
