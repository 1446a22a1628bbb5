"""Functions of Programs written in Python: `@vp.function`, and the builder that a body writes through."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, get_args, get_origin, overload

from vyre_py.ir.builder.common_builder import CommonBuilder
from vyre_py.ir.builder.expressions import Expr, Index, Operand, require_type
from vyre_py.ir.builder.handles import ArrayHandle
from vyre_py.ir.builder.hints import convert_hint
from vyre_py.ir.builder.program_builder import ProgramBuilder
from vyre_py.ir.builder.results import packed, packed_type, unpacked
from vyre_py.ir.builder.where import fail
from vyre_py.ir.functions.function import MAX_PARAMETERS, RESULT, Definition, Function
from vyre_py.ir.functions.writer import BodyWriter
from vyre_py.ir.language.errors import Place, ValidationError, shown
from vyre_py.ir.language.nodes import Access, Atom, Memory, Space
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.types import Type
from vyre_py.ir.public import public
from vyre_py.ir.text.lexer import CALLED, KEYWORDS
from vyre_py.ir.travel import Stationary

__all__ = ["Traced", "function"]

_EXAMPLE: Final = "def soft(x: vp.f32, k: vp.f32) -> vp.f32: ...; or vp.function(f, types=[vp.f32, vp.f32], result=vp.f32)"
_INSTEAD: Final = "a function computes one value from its operands: hand it what it needs, and do the rest where it is called"


class _FunctionBuilder(ProgramBuilder):
    """Builds a body: statements, variables, private arrays and tables. What is no function's is refused."""

    def __init__(self, caller: CommonBuilder[Any], definition: Definition, place: Place) -> None:
        super().__init__(definition.name, 1)
        self._caller = caller
        self._a = self._definition = definition
        definition.place = place
        definition.places = [place] * len(definition.places)
        definition.declared = dict.fromkeys((None, *[memory.name for memory in definition.memories]), place)
        self._names = {memory.name for memory in definition.memories}
        self._writer = BodyWriter(definition)

    def give(self, value: object, types: Sequence[Type], place: Place) -> None:
        """Returns a value of each of these types: itself, or several as a tuple."""
        name, wanted = self._a.name, self._definition.result
        if value is None:
            raise ValidationError(finding("B108", f"{name} returns nothing", place, "end it with: return value"))
        if len(types) == 1:
            atom = self._returned(value, wanted, f"what {name} returns", place)
        else:
            if not isinstance(value, (tuple, list)) or len(value) != len(types):
                raise ValidationError(finding("B108", f"{name} returns {shown(value)}, where {len(types)} values are due", place, "return a, b"))
            parts = [Expr(self, self._returned(v, t, f"value {k} that {name} returns", place)) for k, (v, t) in enumerate(zip(value, types, strict=True))]
            atom = self._own(packed(parts, wanted))
        self._definition.place = place
        self._definition.give(atom)

    def _returned(self, value: object, wanted: Type, what: str, place: Place) -> Atom:
        if isinstance(value, Expr) and value.type is not wanted:
            raise ValidationError(finding("V201", f"{what} is {wanted}, got {value.type}", place, convert_hint(value.type, wanted)))
        return self._typed(value, wanted, what)  # type: ignore[arg-type]  # anything that a user's function returned; `_typed` refuses it

    def function_of(self, traced: Traced) -> Function:
        """As the Program has it."""
        return self._caller.function_of(traced)

    def _called(self, function: Function, atoms: tuple[Atom, ...]) -> Atom:
        """A function calls none: the other's body is written here."""
        self._here()
        return self._writer.write(function, atoms)

    # ---- what only a Program has

    def _refuse(self, what: str) -> NoReturn:
        fail("B108", f"the function {self._a.name!r} has no {what}", _INSTEAD)

    def dim(self, name: str) -> NoReturn:
        """Refused."""
        self._refuse("dims")

    def param(self, name: str, type_: Type) -> NoReturn:
        """Refused."""
        self._refuse("params")

    def _memory(self, name: str, space: Space, type_: Type, shape: Sequence[int | Expr], access: Access, data: bytes = b"") -> ArrayHandle:
        if space not in (Space.PRIVATE, Space.TABLE):
            self._refuse(f"{space.value} memory")
        return super()._memory(name, space, type_, shape, access, data)

    def _grid(self, over: bool, extents: Sequence[int | Expr]) -> NoReturn:
        self._refuse("grid")

    def emit_op(self, name: str, operands: Sequence[Operand], given: Type | None) -> Expr:
        """Emits an op."""
        if OPS[name].is_query:
            self._refuse(name)
        return super().emit_op(name, operands, given)

    def emit_tile(self, name: str, operands: Sequence[Operand], numbers: Sequence[int]) -> NoReturn:
        """Refused."""
        self._refuse("tiles")

    def emit_load(self, memory: Memory, index: Index, uniform: bool = False) -> Expr:
        """Emits a load."""
        if uniform:
            self._refuse("uniform loads")
        return super().emit_load(memory, index)

    def return_(self) -> NoReturn:
        """Refused."""
        fail("B108", f"{self._a.name!r} is a function, which ends where its value is returned", "keep the value in a variable, and return that at the end")

    def barrier(self) -> NoReturn:
        """Refused."""
        self._refuse("barriers")

    def grid_scan(self, op: str, x: Expr, *, any_order: bool = False) -> NoReturn:
        """Refused."""
        self._refuse("grid scans")

    def grid_barrier(self) -> NoReturn:
        """Refused."""
        self._refuse("barriers")

    def copy_async(self, array: ArrayHandle, index: Index, source: ArrayHandle, source_index: Index) -> NoReturn:
        """Refused."""
        self._refuse("copies")

    def copy_commit(self) -> NoReturn:
        """Refused."""
        self._refuse("copies")

    def copy_wait(self, groups: int = 0) -> NoReturn:
        """Refused."""
        self._refuse("copies")

    def fence(self, scope: str = "device") -> NoReturn:
        """Refused."""
        self._refuse("fences")


@public
class Traced(Stationary):
    """A function of Programs: what `vp.function` makes. Calling it with values of a builder, and numbers, is a call in that Program."""

    belongs_to = "the Python function that it was made of"
    travels_as = "send a Program that calls it"

    __slots__ = ("_python", "_signature", "_takes_builder", "name", "parameters", "place", "result", "results")

    def __init__(self, python: Callable[..., Any], types: Sequence[Type] | None, result: Type | tuple[Type, ...] | None) -> None:
        self._python = python
        try:
            signature = inspect.signature(python, eval_str=types is None)
        except (NameError, TypeError, ValueError) as error:
            fail("B108", f"the parameters of {shown(python)} are not known: {error}", _EXAMPLE)
        given = list(signature.parameters.values())
        untyped = types is None and given and given[0].annotation is inspect.Parameter.empty
        self._takes_builder = bool(untyped) or (types is not None and len(given) == len(types) + 1)
        given = given[self._takes_builder :]
        if any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in given) or not 1 <= len(given) <= MAX_PARAMETERS:
            fail("B108", f"a function takes 1 to {MAX_PARAMETERS} parameters by position, not * and **", _EXAMPLE)
        found = [p.annotation for p in given] if types is None else list(types)
        if len(found) != len(given):
            fail("B108", f"{len(found)} types for {len(given)} parameters", _EXAMPLE)
        returned = signature.return_annotation if result is None else result
        several = returned if isinstance(returned, tuple) else get_args(returned) if get_origin(returned) is tuple else None
        self.results: tuple[Type, ...] = (returned,) if several is None else several
        for what, type_ in (*zip([p.name for p in given], found, strict=True), *[(RESULT, type_) for type_ in self.results]):
            if not isinstance(type_, Type) or type_.is_tile:
                said = "no type" if type_ is inspect.Parameter.empty else shown(type_)
                fail("B108", f"{'the result' if what == RESULT else f'the parameter {what}'} has {said} of the language", _EXAMPLE)
        self._signature = inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in given])
        self.parameters: tuple[tuple[str, Type], ...] = tuple([(p.name, type_) for p, type_ in zip(given, found, strict=True)])
        held = packed_type(self.results) if several is not None else self.results[0]
        if held is None:
            said = f"a function gives one value, or two to four scalars of one width, not ({', '.join(map(str, self.results))})"
            fail("B108", said, "vp.cast them to one width, or write two functions")
        self.result: Type = held
        written = getattr(python, "__name__", "")
        self.name = written if written.isidentifier() and written.isascii() and written not in KEYWORDS else "f"
        code = getattr(python, "__code__", None)
        self.place = Place(code.co_filename, code.co_firstlineno) if code is not None else Place("<function>", 1)

    def __call__(self, /, *operands: Operand, **named: Operand) -> Any:
        """A call: its value, or the tuple of its values. Raises ValidationError at the caller's line."""
        try:
            bound = self._signature.bind(*operands, **named)
        except TypeError as error:
            fail("V202", f"{self.name}{self._heads()}: {error}", "numbers and values, one for each parameter")
        bound.apply_defaults()
        builder = next((o.builder for o in bound.arguments.values() if isinstance(o, Expr) and o.builder is not None), None)
        if builder is None:
            fail("B108", f"{self.name} of numbers and constants alone belongs to no Program", "give one operand from the builder")
        found = builder.emit_call(self, tuple(bound.arguments.values()))
        return found if len(self.results) == 1 else unpacked(found, self.results)

    def _heads(self) -> str:
        return f"({', '.join([f'{name}: {type_}' for name, type_ in self.parameters])}) -> {self.result}"

    def __repr__(self) -> str:
        return f"<vp.function {self.name}{self._heads()}>"

    def trace(self, caller: CommonBuilder[Any], taken: set[str]) -> Function:
        """What it is in the Program of a builder, whose other functions have the names `taken`. Raises ValidationError at the line at fault."""
        name, number = self.name, 1
        while name in taken or name in CALLED:
            number += 1
            name = f"{self.name}_{number}"
        definition = Definition(name, self.parameters, self.result)
        definition.doc = inspect.getdoc(self._python) or ""
        with _FunctionBuilder(caller, definition, self.place) as b:
            values = [Expr(b, value) for value in definition.parameters]
            b.give(self._python(*([b] if self._takes_builder else []), *values), self.results, self.place)
        return Function(b.program)


@overload
def function(python: Callable[..., Any], /, *, types: Sequence[Type] | None = None, result: Type | tuple[Type, ...] | None = None) -> Traced: ...
@overload
def function(*, types: Sequence[Type] | None = None, result: Type | tuple[Type, ...] | None = None) -> Callable[[Callable[..., Any]], Traced]: ...


@public
def function(
    python: Callable[..., Any] | None = None, /, *, types: Sequence[Type] | None = None, result: Type | tuple[Type, ...] | None = None
) -> Traced | Callable[[Callable[..., Any]], Traced]:
    """Makes a Python function a function of Programs: its body stands once in each Program that calls it, and code has it once where it is long.

        @vp.function
        def soft(x: vp.f32, k: vp.f32) -> vp.f32:
            "Soft threshold."
            return vp.max(x - k, 0.0) + vp.min(x + k, 0.0)

    The types of parameters and result are its annotations, or `types` and `result`. Two to four results, `-> tuple[vp.f32, vp.u32]`, are scalars of one width
    (bools go with any); a call gives the tuple, and in the Program they are one vector. A first parameter without a type is a builder: of variables, blocks,
    private arrays and tables, for the body alone. It runs once for each Program, where it is first called there, with values in place of numbers. What it
    computes depends on its operands alone; a call in another function's body is written out there. The docstring is kept.
    Raises ValidationError B108 for parameters without types, and for results that are no vector.
    """
    if python is None:
        return lambda given: function(given, types=types, result=result)
    for type_ in (*(types or ()), *(result if isinstance(result, tuple) else () if result is None else (result,))):
        require_type(type_)
    return Traced(python, types, result)
