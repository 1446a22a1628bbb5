"""A Program: one immutable kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from vyre_py.ir.cached import cached_property
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing
from vyre_py.ir.language.dims import DEFAULT_WORKGROUP, OF_TILES, Dim, Grid
from vyre_py.ir.language.errors import Place
from vyre_py.ir.language.nodes import Memory, Param, ReportStatement, Space, Statement
from vyre_py.ir.public import public
from vyre_py.ir.travel import Portable, made_by

if TYPE_CHECKING:
    from vyre_py.ir.functions.function import Function
    from vyre_py.ir.language.widths import Widths
    from vyre_py.ir.wire.columns import Names, Numbers

__all__ = ["Program"]


@public
@dataclass(frozen=True, eq=False)
class Program(Portable):
    """A kernel: declarations, and a body of flat statements (`ir.language.nodes`).

    `match[i]` is, for a statement that opens a block, the index of its Else or End; for an Else its End; for an End the
    statement that opened; else -1. Value and variable ids are dense. `names` are for reading and carry no meaning; `places`
    say where each statement was written, if known, and `declared` where each dim, param and memory was, by name, and the
    Program itself by None. Programs are equal when both digests are; they hash accordingly.
    `subgroup` is how many invocations make a subgroup, 0 where the Program has none: invocation k of a workgroup, x fastest, is lane k % subgroup.
    `workgroup` is (0, 0, 0) for a Program of tiles: its values are the same for a whole workgroup, or tiles that the workgroup has.
    `functions` are its own: ops that its body may have beside those of the language (`ir.functions.function`).
    Made by `ir.language.assembler.Assembler`, the builder, the parser or a decoder; `ir.check.check` says whether one is valid.
    """

    name: str
    dims: tuple[Dim, ...]
    params: tuple[Param, ...]
    memories: tuple[Memory, ...]
    workgroup: tuple[int, int, int]
    grid: Grid
    body: tuple[Statement, ...]
    match: tuple[int, ...]
    value_count: int
    variable_count: int
    value_names: Mapping[int, str] = field(default_factory=dict)
    variable_names: Mapping[int, str] = field(default_factory=dict)
    places: Sequence[Place | None] = ()
    doc: str = ""
    declared: Mapping[str | None, Place] = field(default_factory=dict)
    subgroup: int = 0
    functions: tuple[Function, ...] = ()

    @cached_property
    def buffers(self) -> tuple[Memory, ...]:
        """The argument buffers, in order of declaration."""
        return tuple(m for m in self.memories if m.space is Space.BUFFER)

    @property
    def of_tiles(self) -> bool:
        """Whether this is a Program of tiles, which has no invocations."""
        return self.workgroup == OF_TILES

    @cached_property
    def reports(self) -> tuple[int, ...]:
        """Which statements tell the host something."""
        return tuple([index for index, statement in enumerate(self.body) if isinstance(statement, ReportStatement)])

    # What reads and writes Programs is imported where it is called: who builds one imports no parser.

    @cached_property
    def widths(self) -> Widths:
        """Which buffers and dims may be 2^32 and more."""
        with importing:
            from vyre_py.ir.language.widths import widths

        return widths(self)

    @cached_property
    def code_digest(self) -> bytes:
        """SHA-256 of what the Program computes: names and places out, the names of regions and messages in."""
        with importing:
            from vyre_py.ir.language.digest import code_digest

        return code_digest(self)

    @cached_property
    def interface_digest(self) -> bytes:
        """SHA-256 of what a caller sees: names, types, shapes, access and docs."""
        with importing:
            from vyre_py.ir.language.digest import interface_digest

        return interface_digest(self)

    def place(self, index: int) -> Place | None:
        """Where statement `index` was written, if known."""
        return self.places[index] if index < len(self.places) else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program):
            return NotImplemented
        return self.code_digest == other.code_digest and self.interface_digest == other.interface_digest

    def __hash__(self) -> int:
        return hash((self.code_digest, self.interface_digest))

    def __reduce__(self) -> tuple[Any, ...]:
        return made_by(Program.from_bytes, self.to_bytes(places=True))

    def _identity(self) -> tuple[bytes, bytes]:
        return self.code_digest, self.interface_digest

    def __str__(self) -> str:
        with importing:
            from vyre_py.ir.text.printer import print_program

        return print_program(self)

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.ir.text.notebook.program_markup import program_html

        return program_html(self)

    def __repr__(self) -> str:
        return f"<Program {self.name!r}: {len(self.body)} statements, {self.code_digest.hex()[:12]}>"

    @classmethod
    def from_text(cls, text: str, file: str = "<text>") -> Program:
        """The Program that `.vir` text describes. Raises ParseError with the place and what was expected."""
        with importing:
            from vyre_py.ir.text.parser import parse

        return parse(text, file)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Program:
        """The Program that `to_bytes` wrote, here or in any other implementation of `ir/WIRE.md`.

        Safe for untrusted bytes: digest, sizes, counts, nesting, references and names are checked before anything is built. Raises WireError, whose
        `where` is the offset of the byte at fault. Whether the Program keeps the rules of the language is for `check`.
        """
        with importing:
            from vyre_py.ir.wire.binary import unpack

        return unpack(data)

    def to_bytes(self, *, names: bool = True, places: bool = False) -> bytes:
        """The binary form: versioned, with a digest at its end. `Program.from_bytes(p.to_bytes()) == p`.

        One Program has one form: without `names` (of values and variables; those of dims, params and memories are always there), Programs are equal
        exactly where their bytes are. `places` says where each statement was written: names of files, lines, columns. Bytes that were read are written
        again as they were with `places=True`. Raises WireError for a Program that is not of sound form.
        """
        with importing:
            from vyre_py.ir.wire.binary import pack

        return pack(self, names, places)

    @classmethod
    def from_json(cls, text: str | bytes | bytearray | memoryview) -> Program:
        """The Program that JSON describes, in the form of `ir/program.schema.json`; as safe as `from_bytes`.

        Raises WireError, whose `where` is the JSON pointer of the value at fault.
        """
        with importing:
            from vyre_py.ir.wire.json.json_reader import from_json

        return from_json(text)

    def to_json(self, *, names: bool = True, places: bool = False) -> str:
        """The JSON form: ASCII, one statement a line, the same text for the same Program; `names` and `places` as in `to_bytes`.

        Raises WireError for a Program that is not of sound form, or too large for JSON (16 MiB of text).
        """
        with importing:
            from vyre_py.ir.wire.json.json_writer import to_json

        return to_json(self, names, places)

    @classmethod
    def from_nodes(
        cls, name: str, *, codes: Names, types: Names, operands: Numbers, offsets: Numbers, refs: Numbers | None = None,
        constant_types: Names = (), constant_bits: Numbers = (), sizes: Sequence[Any] = (), regions: Sequence[str] = (),
        dims: Sequence[str] = (), params: Sequence[tuple[str, Any]] = (), memories: Sequence[Mapping[str, Any]] = (),
        workgroup: tuple[int, int, int] = DEFAULT_WORKGROUP, over: Sequence[Any] | None = None, grid: Sequence[Any] | None = None, doc: str = "",
        value_names: Mapping[int, str] | None = None, variable_names: Mapping[int, str] | None = None, subgroup: int = 0,
        functions: Sequence[Program] = (),
    ) -> Program:
        """The Program that flat arrays describe, for compilers that have no wish for the builder.

        Each array is a sequence, or a NumPy array of one axis, of whole numbers. Numbers of codes and types are those of `ir/wire/codes.py`
        (`CODES`, `TYPE_CODES`, listed in `ir/WIRE.md`); lists may hold the names instead.

        Statements, one entry for each in every array:

        * `codes`: what it does: an op such as "add", an atomic such as "atomic_add", a subgroup op such as "subgroup_shuffle", or call, load, store,
          uniform_load, var, get, set, if, else, end, for, loop, region, break, continue, return, barrier, grid_barrier, grid_scan, fence.device,
          fence.workgroup, copy_async, copy_commit, copy_wait, assert, print. Blocks are the statements between if, for, loop or region and their end.
        * `types`: the type of the value that it binds, or of the variable that a var declares; 0 for others. Ops, atomics other than atomic_store,
          subgroup ops, call, load, uniform_load, grid_scan, get and for bind a value each, numbered 0, 1, 2 ... in program order; vars declare variables,
          numbered likewise.
        * `refs`: the number of the memory that load, store, copy_async, uniform_load and atomics access, of the variable that get, set and var name, of the
          function that call calls, of the region's name, the message of an assert or print, or the fold of a grid_scan, in `regions`; of a for its
          hints, the unroll factor + 65536 times the pipelining depth, of which 0 leaves each to the compiler; 0 for others, and by default for all.
        * `offsets`: statement k has the operands `operands[offsets[k]:offsets[k + 1]]`; there is one entry more than statements. Indices come first,
          outermost axis first, then what is stored or worked in; a for has start, stop and step.

        `operands`: 4 * number + kind, where kind 0 is a value, 1 a constant, 2 a param, 3 a size, of that number.

        Tables: `constant_types` and `constant_bits` (the bit pattern: `ir.language.types.encode` gives it), `sizes`, each a whole number, the name of a dim, or
        (op, size, size) with op one of add, sub, mul, ceil_div, min, max; `regions`, the names of regions, and messages.

        Declarations: `dims` by name; `params` as (name, type); `memories` as mappings with name, space ("buffer", "workgroup", "private", "table"), type,
        shape (sizes), access ("read", "write", "read_write"; needed for buffers), and a table's data (bytes). `over` or `grid` holds three sizes: invocations,
        or workgroups, along x, y, z; without either the grid is the shape of the first written buffer, where all stores go to the invocation's own
        element of such a shape (`ir/language/grids.py`).

        `workgroup` is (0, 0, 0) for a Program of tiles; `types` has the type of a tile's elements there.

        `subgroup` is how many invocations make a subgroup, where there are any. `functions` are the bodies of the Program's own, each a Program of the
        function's name with a buffer of one element for each parameter, then one named "return", as `ir/WIRE.md` says.

        `value_names` and `variable_names` name values and variables by number, for reading.

            Program.from_nodes("double", dims=["n"],
                memories=[{"name": "y", "space": "buffer", "type": "f32", "shape": ["n"], "access": "read_write"}],
                codes=["global_id.x", "load", "add", "store"], types=["u32", "f32", "f32", 0], refs=[0, 0, 0, 0],
                operands=[4 * 0, 4 * 1, 4 * 1, 4 * 0, 4 * 2], offsets=[0, 0, 1, 3, 5])

        Takes time linear in the arrays, some 3 us a statement. Raises WireError, whose `where` names the entry at fault, as in `codes[17]`. Whether the
        Program keeps the rules of the language is for `check`.
        """
        with importing:
            from vyre_py.ir.wire.columns import from_arrays

        return from_arrays(
            name, codes=codes, types=types, refs=refs, operands=operands, offsets=offsets,
            constant_types=constant_types, constant_bits=constant_bits, sizes=sizes, regions=regions, dims=dims, params=params, memories=memories,
            workgroup=workgroup, over=over, grid=grid, doc=doc, value_names=value_names or {}, variable_names=variable_names or {},
            subgroup=subgroup, functions=functions,
        )
