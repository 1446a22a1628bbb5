"""The arguments of run filetests: `name = value ...`, written with the language's own tokens and literals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from vyre_py.ir.language.errors import ProgramError
from vyre_py.ir.language.nodes import Space
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import SCALARS, Type
from vyre_py.ir.text.lexer import literal_bits, split_literal, unquote
from vyre_py.ir.text.tokens import Tokens, kind_of

__all__ = ["Arguments"]

Array = np.ndarray[Any, np.dtype[Any]]


class Arguments:
    """A cursor over `name = value ...`; `refuse` is called with what is wrong, and raises."""

    def __init__(self, program: Program, text: str, refuse: Callable[[str], NoReturn]) -> None:
        self.program, self.refuse = program, refuse
        try:
            self.tokens = Tokens(text.strip(), "directive")
        except ProgramError as error:
            refuse(str(error))
        self.position = 0

    def fail(self, why: str) -> NoReturn:
        self.refuse(f"{why}, at {self.tokens.describe(self.position)}")

    @property
    def kind(self) -> str:
        return kind_of(self.tokens.words[self.position])

    def next(self, kind: str = "") -> str:
        if kind and self.kind != kind:
            self.fail(f"expected {kind}")
        self.position += 1
        return self.tokens.words[self.position - 1]

    def read(self) -> dict[str, Any]:
        """The values by name: arrays for buffers, Python or NumPy scalars for params and dims."""
        made: dict[str, Any] = {}
        while self.kind != "end":
            name = unquote(self.next()) if self.kind == "string" else self.next("name")
            self.next("=")
            made[name] = self.value(name)
        return made

    def value(self, name: str) -> Any:
        for memory in self.program.memories:
            if memory.name == name and memory.space is Space.BUFFER:
                return self.array(memory.type, memory.rank)
        for param in self.program.params:
            if param.name == name:
                return self.array(param.type, 0) if param.type.is_vector else self.numpy(param.type, [self.literal(param.type)])[0]
        if all(dim.name != name for dim in self.program.dims):
            self.fail(f"{name} is not an argument")
        return int(self.next("number"), 0)

    @staticmethod
    def numpy(type_: Type, bits: list[int]) -> Array:
        return np.array(bits, dtype=f"u{type_.size_bytes}").view(type_.dtype)

    def literal(self, type_: Type) -> int:
        if self.tokens.words[self.position] in SCALARS:
            self.next("name")
            self.next(":")
            text = self.tokens.words[self.position]
            if text.startswith("0x"):
                return int(self.next("number"), 16)
        negative = self.kind == "-"
        self.position += negative
        kind, text = self.kind, self.next()
        try:
            return literal_bits(type_, split_literal(text)[0] if kind == "number" else text, negative)
        except (ValueError, KeyError) as error:
            self.position -= 1
            self.fail(str(error))

    def array(self, type_: Type, rank: int) -> Array:
        """An array of this rank; the components of vectors are one axis more, the last."""
        axes = rank + type_.is_vector
        if self.kind == "name" and self.tokens.words[self.position] in ("zeros", "iota", "fill"):
            return self.made(type_)
        bits: list[int] = []
        shape = self.nested(type_.scalar, bits)
        if type_.is_vector and len(shape) == axes and bits and shape[-1] != type_.lanes:
            self.fail(f"{type_.lanes} components are needed")
        if len(shape) != axes:
            shape = [*shape, *[0] * (rank - len(shape)), *[type_.lanes] * type_.is_vector] if not bits else self.fail(f"a list of {axes} axes is needed")
        return self.numpy(type_.scalar, bits).reshape(shape)

    def nested(self, type_: Type, bits: list[int]) -> list[int]:
        self.next("[")
        count, inner = 0, None
        while self.kind != "]":
            if self.kind == "[":
                shape = self.nested(type_, bits)
                if inner is not None and inner != shape:
                    self.fail("rows of one length are needed")
                inner = shape
            else:
                bits.append(self.literal(type_))
            count += 1
            if self.kind != "]":
                self.next(",")
        self.next("]")
        return [count, *(inner or [])]

    def made(self, type_: Type) -> Array:
        """`zeros`, `iota` or `fill` of so many elements, each component counted by itself."""
        scalar = type_.scalar
        word = self.next("name")
        self.next("(")
        fill = 0
        if word == "fill":
            fill = self.literal(scalar)
            self.next(",")
        shape = [int(self.next("number"), 0)]
        while self.kind == ",":
            self.next(",")
            shape.append(int(self.next("number"), 0))
        self.next(")")
        shape += [type_.lanes] * type_.is_vector
        if word == "iota":
            return np.arange(int(np.prod(shape))).astype(scalar.dtype).reshape(shape)
        return np.broadcast_to(self.numpy(scalar, [fill])[0], shape).copy()
