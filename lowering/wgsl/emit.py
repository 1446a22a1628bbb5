"""The walk: one loop over the flat body that writes a WGSL kernel.

Every name is ours: values are `v7`, variables `m3`, params `p0`, sizes `d2`, buffers `b0` with their element offsets `o0`, workgroup and
private arrays `a1`. The kernel's head, which names what the body used, is written last.

Functions, which ops are left to, are written by the same walk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final

from vyre_py.ir.check.facts import is_told
from vyre_py.ir.functions.called import Signature, parameters_of, signature_of
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import (
    FENCES,
    Atom,
    Atomic,
    AtomicStore,
    Barrier,
    Break,
    Const,
    Continue,
    Else,
    End,
    For,
    Get,
    GridScan,
    If,
    Let,
    Load,
    Loop,
    MemoryStatement,
    OrderedAtomic,
    Region,
    Return,
    Set,
    Statement,
    Store,
    Subgroup,
    UniformLoad,
    Value,
    Var,
)  # fmt: skip
from vyre_py.ir.language.types import f32, i32
from vyre_py.ir.language.walks import WITHOUT_TILES, Handlers
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.layout import Layout, lay_out
from vyre_py.lowering.legal.asserts import WITHOUT_REPORTS
from vyre_py.lowering.legal.grid_barriers import WITHOUT_GRID_BARRIER
from vyre_py.lowering.legal.plain_copies import WITHOUT_COPIES
from vyre_py.lowering.rows import Row
from vyre_py.lowering.target import Target
from vyre_py.lowering.wgsl.folding import foldable
from vyre_py.lowering.wgsl.halves import Halves
from vyre_py.lowering.wgsl.kernel_text import KernelText
from vyre_py.lowering.wgsl.memory import (
    Array,
    Arrays,
    arrays_of,
    atomic_lines,
    atomic_text,
    is_one_call,
    table_lines,
    zero_lines,
)
from vyre_py.lowering.wgsl.operands import Operands, known
from vyre_py.lowering.wgsl.ops import QUERIES, form_of
from vyre_py.lowering.wgsl.places import comment
from vyre_py.lowering.wgsl.rounding import rounded_results
from vyre_py.lowering.wgsl.subgroups import builtin
from vyre_py.lowering.wgsl.types import literal, value_type, zero
from vyre_py.lowering.wgsl.uniform_block import GROUPS_X, GROUPS_Z, word_text
from vyre_py.lowering.wgsl.wide import pairs_of, wide_lines

__all__ = ["ENTRY_POINT", "Kernel"]

ENTRY_POINT: Final = "main"
_NO: Final[Mapping[int, Row]] = MappingProxyType({})

_BARRIER: Final = ("workgroupBarrier();", "storageBarrier();")

_GRID: Final = (
    f"let groups = vec3<u32>({word_text(GROUPS_X)}, dispatched.y, {word_text(GROUPS_Z)});",
    "let turn = dispatched_group.z / groups.z;",
    "let group = vec3<u32>(dispatched_group.x + turn * dispatched.x, dispatched_group.y, dispatched_group.z - turn * groups.z);",
    "if (group.x >= groups.x) { return; }",
)
_INPUTS: Final = (
    "@builtin(workgroup_id) dispatched_group: vec3<u32>", "@builtin(num_workgroups) dispatched: vec3<u32>",
    "@builtin(local_invocation_id) local: vec3<u32>", "@builtin(local_invocation_index) local_index: u32",
)


class Kernel:
    """Writes one kernel: `text` once, and `arrays` with sizes. Its functions' tables come behind its own: `tables` holds all, after `text`."""

    _emitters: ClassVar[Mapping[type[Statement], Callable[..., None]]]

    def __init__(self, optimised: Optimised, layout: Layout, target: Target, tables: bytes = b"", places: bool = False, words: Mapping[int, Row] = _NO) -> None:
        """With `places` a comment tells where what follows it stands in the Program's source (`lowering.wgsl.places`); `words` are accesses to whole ones."""
        self._optimised = optimised
        self._places = places
        self._place = ""
        self._program = optimised.program
        self._layout = layout
        self._target = target
        self._halves = Halves(self._program, target.has("f16"))
        self.arrays: Arrays = arrays_of(self._program, layout, tables, target.has("f32atomics"), self._halves.memories)
        self._operands = Operands(layout)
        self._rounded = rounded_results(self._program)
        self._foldable = foldable(self._program)
        self._wide = {**pairs_of(optimised, self.arrays.by_memory), **words}
        self._written: set[int] = set()  # with others of their row
        self._lines: list[str] = []
        self._indent = 1
        self._hidden = 0
        self.tables = self.arrays.tables

    # ---- lines

    def _line(self, text: str) -> None:
        self._lines.append("  " * self._indent + text)

    def _all(self, lines: list[str] | tuple[str, ...]) -> None:
        for line in lines:
            self._line(line)

    def _open(self, text: str) -> None:
        self._line(text)
        self._indent += 1

    def _close(self, text: str = "}") -> None:
        self._indent -= 1
        self._line(text)

    # ---- computing

    def _operands_of(self, statement: Let) -> list[str]:
        """Those of an op."""
        operands = [self._operands.atom(a) for a in statement.args]
        if operands and all(isinstance(a, (Const, DimConst)) for a in statement.args):
            # The compiler of WGSL computes an op over constants, and refuses it where it has no result in its eyes, or where the
            # result is an index outside; it does not look into variables.
            for place, operand in enumerate(operands):
                self._line(f"var k{self._hidden} = {operand};")
                operands[place] = f"k{self._hidden}"
                self._hidden += 1
        return operands

    def _let(self, index: int, statement: Let) -> None:
        if statement.op.is_query:
            name, _, axis = statement.op.name.partition(".")
            text = QUERIES[name].format(axis=axis, size=self._program.workgroup["xyz".index(axis)] if axis else 0)
            if name == "workgroup_size":
                # A variable, for the same reason as in `_operands`.
                self._operands.named["size"] = "var size = vec3<u32>({}u, {}u, {}u);".format(*self._program.workgroup)
        elif (signature := signature_of(statement)) in self._optimised.functions:
            assert signature is not None  # none of them is
            text = f"{signature.name}({', '.join(self._operands_of(statement))})"
        elif statement.args and isinstance(wide := statement.args[0], Value) and wide.id in self._halves.widened:
            text = self._operands.atom(wide)
        else:
            form = form_of(statement)
            assert form is not None  # `legal.require_expressible`
            if statement.bound.id in self._rounded:
                form = f"opaque_{statement.bound.type}({form})"
            text = self._operands.calling(form).format(*self._operands_of(statement))
        self._line(f"let v{statement.bound.id} = {text};")

    def _together(self, index: int, statement: Subgroup) -> None:
        text = builtin(statement, self._program.subgroup, [self._operands.atom(a) for a in statement.args])
        self._line(f"let v{statement.bound.id} = {self._operands.calling(text)};")

    def _var(self, index: int, statement: Var) -> None:
        self._line(f"var m{statement.variable.id}: {value_type(statement.variable.type)} = {self._operands.atom(statement.args[0])};")

    def _get(self, index: int, statement: Get) -> None:
        self._line(f"let v{statement.bound.id} = m{statement.variable.id};")

    def _set(self, index: int, statement: Set) -> None:
        self._line(f"m{statement.variable.id} = {self._kept(index, statement.args[0])};")

    def _kept(self, index: int, value: Atom) -> str:
        """The operand that a Set or Store keeps."""
        text = self._operands.atom(value)
        return self._operands.calling(f"opaque_{value.type}({text})") if index in self._foldable else text

    # ---- memory

    def _access(self, index: int, statement: MemoryStatement, lines: Callable[[Array, str], list[str]], plain: Callable[[Array, str], str] | None) -> None:
        """Writes an access. `lines` do it, with the result in its variable; `plain` is an expression that serves where nothing is checked."""
        array = self.arrays.by_memory[statement.memory]
        if array.pairs:
            array = array.word(known(statement.indices[-1]) or 0)
        inside = self._operands.inside(statement, self._optimised.proven[index])
        result = statement.result
        if inside == "" and plain is not None and result is not None:
            text = plain(array, self._operands.address(statement, array))
            self._line(f"let v{result.id} = {self._operands.calling(text)};")
            return
        if result is not None:
            type_ = f32 if array.halves else result.type
            self._line(f"var v{result.id}: {value_type(type_)} = {zero(type_)};")
        if inside is None:
            return
        done = lines(array, self._operands.address(statement, array))
        for line in done:
            self._operands.calling(line)
        if inside:
            self._open(f"if ({inside}) {{")
            self._all(done)
            self._close()
        else:
            self._all(done)

    def _load(self, index: int, statement: Load | UniformLoad) -> None:
        if (row := self._wide.get(index)) is not None:
            self._together_at(index, statement, row)
            return
        name = f"v{statement.bound.id}"
        self._access(index, statement, lambda array, address: [f"{name} = {array.load(address)};"], Array.load)

    def _together_at(self, index: int, first: Load | UniformLoad | Store, row: Row) -> None:
        """All elements of a row at once."""
        array, stop = self.arrays.by_memory[first.memory], index + len(row.lanes)
        inside = self._operands.inside(first, self._optimised.proven[index])
        address = "" if inside is None else self._operands.address(first, array)
        together = self._program.body[index:stop]
        values = [self._kept(number, statement.value) for number, statement in enumerate(together, index) if isinstance(statement, Store)]
        self._all(wide_lines(together, row, array, inside, address, values))
        self._written.update(range(index, stop))

    def _uniform_load(self, index: int, statement: UniformLoad) -> None:
        self._all(_BARRIER)
        if not is_told(statement):
            self._load(index, statement)
            self._all(_BARRIER)
            return
        told, name = self.arrays.told[statement.memory.type], f"v{statement.bound.id}"
        self._open("if (local_index == 0u) {")
        self._load(index, statement)
        self._all(told.store("0u", name))
        self._close()
        self._line(f"let {name} = {told.load_together('0u')};")

    def _store(self, index: int, statement: Store) -> None:
        if (row := self._wide.get(index)) is not None:
            self._together_at(index, statement, row)
            return
        text = self._kept(index, self._halves.rounded(statement.value) if statement.memory in self._halves.memories else statement.value)
        self._access(index, statement, lambda array, address: array.store(address, text), None)

    def _atomic(self, index: int, statement: Atomic) -> None:
        operands = [self._operands.atom(a) for a in statement.operands]
        name, op = f"v{statement.bound.id}", statement.op.name
        plain = partial(atomic_text, op, operands) if is_one_call(op, self.arrays.by_memory[statement.memory]) else None
        self._access(index, statement, partial(atomic_lines, op, operands, name), plain)

    def _atomic_store(self, index: int, statement: AtomicStore) -> None:
        value = self._kept(index, statement.operands[0])
        self._access(index, statement, lambda array, address: array.store(address, value), None)

    # ---- control

    def _barrier(self, index: int, statement: Barrier) -> None:
        self._all(_BARRIER)

    def _if(self, index: int, statement: If) -> None:
        self._open(f"if ({self._operands.atom(statement.args[0])}) {{")

    def _else(self, index: int, statement: Else) -> None:
        self._indent -= 1
        self._open("} else {")

    def _end(self, index: int, statement: End) -> None:
        self._close()

    def _for(self, index: int, statement: For) -> None:
        """Counts turns from 0, so that neither the count nor the loop's value can wrap."""
        start, _, step = statement.args
        assert isinstance(step, Const)  # V208
        number, by = statement.bound.id, int(step.value)
        self._line(f"let n{number} = {self._turns(statement, by)};")
        self._open(f"for (var c{number} = 0u; c{number} < n{number}; c{number}++) {{")
        signed = statement.bound.type is i32
        turn = f"i32(c{number})" if signed else f"c{number}"
        moved = turn if by == 1 else f"{turn} * {literal(step)}"
        self._line(f"let v{number} = {moved if known(start) == 0 else f'{self._operands.atom(start)} + {moved}'};")

    def _turns(self, statement: For, by: int) -> str:
        """How many turns a loop takes, computed without wrapping."""
        start, stop, _ = statement.args
        low, high = (start, stop) if by > 0 else (stop, start)
        least, most, stride = known(low), known(high), abs(by)
        if least is not None and most is not None:
            return f"{max(0, -(-(most - least) // stride))}u"
        distance = self._operands.position(high) if least == 0 else f"{self._operands.position(high)} - {self._operands.position(low)}"
        turns = distance if stride == 1 else f"({distance} - 1u) / {stride}u + 1u"
        return f"select(0u, {turns}, {self._operands.atom(low)} < {self._operands.atom(high)})"

    def _loop(self, index: int, statement: Loop) -> None:
        self._open("loop {")

    def _region(self, index: int, statement: Region) -> None:
        self._open("{")

    def _leave(self, index: int, statement: Statement) -> None:
        self._line(_LEAVES[type(statement)])

    # ---- the whole

    def _body(self) -> None:
        program = self._program
        open_blocks: list[int] = []
        index, end = 0, len(program.body)
        while index < end:
            statement = program.body[index]
            if isinstance(statement, End):
                open_blocks.pop()
            elif isinstance(statement, Else):
                open_blocks[-1] = index
            elif statement.opens:
                open_blocks.append(index)
            if self._places and (told := comment(program.place(index))) != self._place:
                self._place = told
                self._line(told)
            if index not in self._written:
                self._emitters[type(statement)](self, index, statement)
            index += 1
            if type(statement) in _LEAVES:
                # What stands after it in its block is never reached, and compilers refuse it.
                index = program.match[open_blocks[-1]] if open_blocks else end

    def _function(self, signature: Signature, optimised: Optimised) -> str:
        """A function that an op is left to."""
        made = CalledFunction(optimised, lay_out(optimised.program), self._target, self.tables, self._places)
        text = made.definition(signature)
        self._operands.helpers |= made._operands.helpers
        self.tables = made.tables
        return text

    def text(self, symbol: str) -> KernelText:
        """What a module needs of the kernel. Call it once."""
        x, y, z = self._program.workgroup
        self._body()
        functions = tuple([self._function(*function) for function in self._optimised.functions.items()])
        head = [*_GRID, *self.arrays.head, *self._operands.named.values(), *zero_lines(self.arrays, self._optimised.written_first, x * y * z)]
        begin = f"@compute @workgroup_size({x}, {y}, {z})\nfn {symbol}(\n" + "".join(f"  {text},\n" for text in _INPUTS) + ") {\n"
        declared = (*self.arrays.module, *table_lines(self.tables, self._layout))
        whole = begin + "\n".join([*[f"  {line}" for line in head], *self._lines, "}"]) + "\n"
        return KernelText(declared, frozenset(self._operands.helpers), functions, whole, bool(self._halves.memories))


class CalledFunction(Kernel):
    """Writes the function that an op is left to."""

    def definition(self, signature: Signature) -> str:
        """The function. Call it once."""
        self._body()
        operands = ", ".join(f"x{k}: {value_type(memory.type)}" for k, memory in enumerate(parameters_of(self._program)))
        head = [f"  {text}" for text in self._operands.named.values()]
        return "\n".join([f"fn {signature.name}({operands}) -> {value_type(signature.result)} {{", *head, *self._lines, "}"])

    def _load(self, index: int, statement: Load | UniformLoad) -> None:
        parameters = parameters_of(self._program)
        if statement.memory in parameters:
            self._line(f"let v{statement.bound.id} = x{parameters.index(statement.memory)};")
        else:
            super()._load(index, statement)

    def _store(self, index: int, statement: Store) -> None:
        self._line(f"return {self._operands.atom(statement.value)};")


# What WGSL lacks of the order of memory, and what to do instead (`lowering.wgsl.legal` names ordered atomics).
NO_ORDER: Final = "WGSL orders memory by barriers alone; its atomics are relaxed"
_LEAVES: Final[Mapping[type[Statement], str]] = {Break: "break;", Continue: "continue;", Return: "return;"}

EMITTERS: Final[Handlers[Callable[[Kernel, int, Any], None]]] = Handlers("wgsl", {
    Let: Kernel._let, Var: Kernel._var, Get: Kernel._get, Set: Kernel._set,
    Load: Kernel._load, UniformLoad: Kernel._uniform_load, Store: Kernel._store, Atomic: Kernel._atomic, AtomicStore: Kernel._atomic_store,
    Subgroup: Kernel._together,
    Barrier: Kernel._barrier, If: Kernel._if, Else: Kernel._else, End: Kernel._end, For: Kernel._for, Loop: Kernel._loop, Region: Kernel._region,
    Break: Kernel._leave, Continue: Kernel._leave, Return: Kernel._leave,
}, apart=(OrderedAtomic,), without={
    **WITHOUT_GRID_BARRIER, **WITHOUT_REPORTS, **WITHOUT_COPIES, **WITHOUT_TILES, **dict.fromkeys(FENCES.values(), NO_ORDER),
    GridScan: "scans over the grid are made in steps first",
})  # fmt: skip
Kernel._emitters = EMITTERS
CalledFunction._emitters = {**EMITTERS, Load: CalledFunction._load, Store: CalledFunction._store}
