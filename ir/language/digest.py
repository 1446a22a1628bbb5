"""The digests of a Program: SHA-256 over a canonical, length-prefixed encoding of flat rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vyre_py.ir.language.dims import Dim, DimConst, DimExpr
from vyre_py.ir.language.errors import Place
from vyre_py.ir.language.nodes import Atom, Const, Memory, Param, Statement, Value
from vyre_py.ir.language.op import AtomicOp, Op

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = ["code_digest", "interface_digest", "places_digest"]

# Raised whenever the encoding below, or the meaning of anything it names, changes.
_VERSION = "vyre-ir-2"


def _text(text: str) -> str:
    return f"{len(text)}:{text}"


def _dim(expr: DimExpr, index: dict[Dim, int]) -> str:
    if isinstance(expr, DimConst):
        return str(expr.value)
    if isinstance(expr, Dim):
        return f"d{index.get(expr, -1)}"
    return f"({expr.op} {_dim(expr.left, index)} {_dim(expr.right, index)})"


class _Encoder:
    """Writes atoms and statements with declarations replaced by their positions."""

    def __init__(self, program: Program) -> None:
        self.dims = {d: i for i, d in enumerate(program.dims)}
        self.params = {p: i for i, p in enumerate(program.params)}
        self.memories = {m: i for i, m in enumerate(program.memories)}
        self.functions: dict[Op, int] = {f: i for i, f in enumerate(program.functions)}

    def dim(self, expr: DimExpr) -> str:
        return _dim(expr, self.dims)

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Value):
            return f"v{atom.id}"
        if isinstance(atom, Const):
            return f"{atom.type.name}#{atom.bits:x}"
        if isinstance(atom, Param):
            return f"p{self.params.get(atom, -1)}"
        return self.dim(atom)

    def memory(self, memory: Memory) -> str:
        shape = ",".join(map(self.dim, memory.shape))
        return f"{memory.space.value} {memory.type.name}[{shape}] {memory.access.value} {memory.data.hex()}"

    def payload(self, statement: Statement) -> Iterator[str]:
        for name in statement.payload:
            value = getattr(statement, name)
            if isinstance(value, Memory):
                yield f"m{self.memories.get(value, -1)}"
            elif name == "variable":
                yield f"{value.id}:{value.type.name}"
            elif name == "unroll":
                if value:
                    yield f"{value}"
            elif name == "pipeline":
                if value:
                    yield f"pipeline {value}"
            elif name == "op":
                # Of an atomic the order and the scope, too.
                spelling = value.spelling if isinstance(value, AtomicOp) else value.name
                yield spelling if value not in self.functions else f"f{self.functions[value]}"
            else:
                yield _text(value)

    def statement(self, statement: Statement) -> str:
        # The kind stands first: ops of two tables may have one name. A tile's type has its shape in its name.
        result = f"v{statement.result.id}:{statement.result.type.name}" if statement.result is not None else "-"
        args = " ".join([self.atom(a) for a in statement.args])
        return f"{type(statement).__name__} {result} {' '.join(self.payload(statement))}({args})"


def _params(program: Program) -> Iterator[str]:
    """The types of the params, and which bytes of which argument, by its number, those are that a target's Program parted."""
    arguments: dict[str, int] = {}
    for param in program.params:
        if param.part is None:
            yield param.type.name
        else:
            name, offset = param.part
            yield f"{param.type.name} {arguments.setdefault(name, len(arguments))}+{offset}"


def code_digest(program: Program) -> bytes:
    """What the Program computes: declarations by position, statements; no names of things, no places."""
    e = _Encoder(program)
    lines = [
        _VERSION,
        f"{len(program.dims)} {program.workgroup} {program.grid.over} {' '.join(map(e.dim, program.grid.extents))}",
        *([f"subgroup {program.subgroup}"] if program.subgroup else []),
        *_params(program),
        *(e.memory(m) for m in program.memories),
        *(f"function {f.program.code_digest.hex()}" for f in program.functions),
        "body",
        *[e.statement(s) for s in program.body],
    ]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).digest()


def interface_digest(program: Program) -> bytes:
    """What a caller sees: names, types, shapes, access, docs."""
    lines = [_VERSION, _text(program.name), _text(program.doc), *(_text(d.name) for d in program.dims)]
    lines += [f"{_text(p.name)} {p.type.name}" + (f" {_text(p.part[0])}+{p.part[1]}" if p.part is not None else "") for p in program.params]
    e = _Encoder(program)
    lines += [f"{_text(m.name)} {m.type.name} {m.access.value} {' '.join(map(e.dim, m.shape))}" for m in program.memories]
    lines += [f"function {f.program.interface_digest.hex()}" for f in program.functions]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).digest()


def _place(place: Place | None) -> str:
    return "-" if place is None else f"{place.line}:{place.column} {_text(place.file)}"


def places_digest(program: Program) -> bytes:
    """Where the Program and each of its statements were written, and what it is called: all that code has in it, beyond what `code_digest` covers, when
    it keeps line information."""
    lines = [_VERSION, _text(program.name), _place(program.declared.get(None)), *[_place(program.place(k)) for k in range(len(program.body))]]
    lines += [f"function {places_digest(f.program).hex()}" for f in program.functions]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).digest()
