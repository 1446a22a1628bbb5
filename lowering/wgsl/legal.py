"""What cannot be said in WGSL, by name and place, and the rewrites of what can be said otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vyre_py.ir.functions.called import signature_of
from vyre_py.ir.language.describe import full_name
from vyre_py.ir.language.nodes import Atomic, End, Let, Memory, Param
from vyre_py.ir.language.op import RELAXED
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import f64
from vyre_py.ir.passes import Optimised
from vyre_py.ir.passes.expand import expand
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.layout import Layout
from vyre_py.lowering.legal.by_words import by_words
from vyre_py.lowering.legal.floats import narrow_floats
from vyre_py.lowering.legal.indices import missing_elements, narrow_indices
from vyre_py.lowering.legal.integers import narrow_integers
from vyre_py.lowering.legal.split64 import missing_words, split_words
from vyre_py.lowering.target import Target
from vyre_py.lowering.wgsl.emit import EMITTERS, NO_ORDER
from vyre_py.lowering.wgsl.ops import ROWS, form_of
from vyre_py.lowering.wgsl.uniform_block import MAX_WORDS, block_words

__all__ = ["legalise", "require_expressible"]

_NO_F64: Final = "f64 is there for devices with the features shader-f64 and shader-int64, as target wgsl:f64"
# Functions that WGSL has, but over f64.
_NOT_OF_F64: Final = frozenset(name for name in ROWS if name in OPS and OPS[name].through)
_NO_ATOMIC: Final = "WGSL has atomics on 32-bit elements"


def _lacking_f64(program: Program) -> Iterator[Missing]:
    """Where f64 is asked for: each declaration, and each op once, where it is first."""
    declarations: tuple[Param | Memory, ...] = (*program.params, *program.memories)
    for declared in declarations:
        if declared.type is f64:
            yield Missing(f"type f64 of {declared.name!r}", program.declared.get(declared.name), _NO_F64)
    seen: set[str] = set()
    for index, statement in enumerate(program.body):
        if isinstance(statement, Let) and statement.op.name not in seen and any(a.type is f64 for a in (statement.bound, *statement.args)):
            seen.add(statement.op.name)
            yield Missing(f"op {statement.op.name} over f64", program.place(index), _NO_F64)


def _lacking(program: Program, target: Target) -> Iterator[Missing]:
    if not target.has_f64:
        yield from _lacking_f64(program)
    if not _has_wide_atomics(target):
        yield from missing_words(program)
    yield from EMITTERS.missing(program)
    yield from missing_elements(program)
    for index, statement in enumerate(program.body):
        if isinstance(statement, Atomic) and statement.memory.type is f64:
            yield Missing(f"atomic {statement.op.name} on f64", program.place(index), _NO_ATOMIC)
        if isinstance(statement, Atomic) and statement.op.order is not RELAXED:
            yield Missing(full_name(statement.op), program.place(index), NO_ORDER)


def _has_wide_atomics(target: Target) -> bool:
    return target.has("i64") and target.has("i64atomics")


def _is_said(let: Let) -> bool:
    return form_of(let) is not None


def legalise(program: Program, target: Target) -> Program:
    """A Program of scalars in the types that WGSL computes in.

    Raises Unsupported, naming every type, op, atomic, barrier and size that the target lacks.
    """
    if missing := list(_lacking(program, target)):
        raise Unsupported(target.name, missing)
    program = narrow_integers(narrow_floats(narrow_indices(expand(program, _NOT_OF_F64, frozenset({f64}), calls=False))))
    return by_words(program, _is_said) if target.has("i64") else split_words(program)


# naga and Tint stop at 127 braces, and so does the grammar's own recommendation. The function takes one, an access up to three.
_MAX_NESTING: Final = 120


def _missing(optimised: Optimised, layout: Layout) -> Iterator[Missing]:
    program, functions = optimised.program, optimised.functions
    if block_words(layout) > MAX_WORDS:
        yield Missing(f"{len(layout.scalars)} scalar arguments and sizes", help=f"at most {MAX_WORDS - len(layout.buffers) - 3} fit the uniform block")
    depth = 0
    for index, statement in enumerate(program.body):
        if statement.opens:
            depth += 1
            if depth == _MAX_NESTING + 1:
                yield Missing(f"blocks more than {_MAX_NESTING} deep", program.place(index), "merge conditions")
        elif isinstance(statement, End):
            depth -= 1
        elif isinstance(statement, Let) and not statement.op.is_query and form_of(statement) is None and signature_of(statement) not in functions:
            types = ", ".join(dict.fromkeys(a.type.name for a in (*statement.args, statement.bound)))
            yield Missing(f"op {statement.op.name} over {types}", program.place(index))


def require_expressible(optimised: Optimised, layout: Layout) -> None:
    """Raises Unsupported, naming everything that WGSL cannot say."""
    if missing := list(_missing(optimised, layout)):
        raise Unsupported("wgsl", missing)
