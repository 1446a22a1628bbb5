"""What stands for operands in WGSL: values, constants, and the params and sizes of the block, which a kernel's head names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.language.dims import DimConst, DimExpr
from vyre_py.ir.language.nodes import Atom, Const, MemoryStatement, Param, Value
from vyre_py.ir.language.types import Type, bool_, f32, f64, i32, i64, u32, u64
from vyre_py.lowering.layout import Layout, SlotKind
from vyre_py.lowering.wgsl.helpers import helpers_of
from vyre_py.lowering.wgsl.memory import Array
from vyre_py.lowering.wgsl.types import is_sayable, literal
from vyre_py.lowering.wgsl.uniform_block import ZERO, scalar_word, word_text

__all__ = ["Operands", "known"]

# Type -> how it is read from its words in the block; of other types the word is the value.
_FROM_WORDS: Final[Mapping[Type, str]] = {
    bool_: "{} != 0u", i32: "bitcast<i32>({})", f32: "bitcast<f32>({})", f64: "f64_of_words({}, {})",
    u64: "u64_of_words({}, {})", i64: "bitcast<i64>(u64_of_words({}, {}))",
}  # fmt: skip


def known(atom: Atom) -> int | None:
    """The number that an integer operand is known to be."""
    if isinstance(atom, Const):
        return int(atom.value)
    return atom.value if isinstance(atom, DimConst) else None


class Operands:
    """The texts of a kernel's operands. Attributes: `named`, what the body used of the head, with the head's line for it, and `helpers`, by name, that texts
    call."""

    def __init__(self, layout: Layout) -> None:
        self.named: dict[str, str] = {}
        self.helpers: set[str] = set()
        scalars = [(number, slot, scalar_word(layout, slot)) for number, slot in enumerate(layout.scalars)]
        self._params = {slot.name: (number, word) for number, slot, word in scalars if slot.kind is SlotKind.PARAM}
        self._dims = {slot.expr: (number, word) for number, slot, word in scalars if slot.kind is SlotKind.EXTENT}

    def calling(self, text: str) -> str:
        """A text as it is, whose helpers the module gets."""
        self.helpers.update(helpers_of(text))
        return text

    def _name(self, name: str, text: str) -> str:
        """A name that the kernel's head defines."""
        if name not in self.named:
            self.named[name] = f"let {name} = {self.calling(text)};"
        return name

    def dim(self, expr: DimExpr) -> str:
        """A size."""
        if isinstance(expr, DimConst):
            return f"{expr.value}u"
        number, word = self._dims[expr]
        return self._name(f"d{number}", word_text(word))

    def _param(self, param: Param) -> str:
        number, word = self._params[param.name]
        return self._name(f"p{number}", _FROM_WORDS.get(param.type, "{}").format(word_text(word), word_text(word + 1)))

    def atom(self, atom: Atom) -> str:
        """Any operand."""
        if isinstance(atom, Value):
            return f"v{atom.id}"
        if isinstance(atom, Param):
            return self._param(atom)
        if not isinstance(atom, Const):
            return self.dim(atom)
        if is_sayable(atom):
            return literal(atom)
        # Compilers refuse constants that are not finite, and may flush subnormal ones: the bits come out of the block.
        words = [f"{word_text(ZERO)} | 0x{atom.bits >> shift & u32.maximum:08x}u" for shift in range(0, atom.type.bits, u32.bits)]
        return self._name(f"f{atom.bits:0{atom.type.bits // 4}x}", _FROM_WORDS[atom.type].format(*words))

    def position(self, atom: Atom) -> str:
        """An index as u32."""
        number = known(atom)
        if number is not None:
            return f"{number & u32.maximum}u"
        return f"u32({self.atom(atom)})" if atom.type is i32 else self.atom(atom)

    def inside(self, statement: MemoryStatement, proven: int) -> str | None:
        """The condition under which an access happens: empty for always, None for never. The bits of `proven` are axes that need no check."""
        conditions: list[str] = []
        for axis, (atom, extent) in enumerate(zip(statement.indices, statement.memory.shape, strict=True)):
            number = known(atom)
            if number is not None and (number < 0 or (isinstance(extent, DimConst) and number >= extent.value)):
                return None
            if proven >> axis & 1 or (number is not None and isinstance(extent, DimConst)):
                continue
            if number is None and atom.type is i32:
                conditions.append(f"{self.atom(atom)} >= 0i")
            conditions.append(f"{self.position(atom)} < {self.dim(extent)}")
        return " && ".join(f"({c})" for c in conditions) if len(conditions) > 1 else "".join(conditions)

    def address(self, statement: MemoryStatement, array: Array) -> str:
        """The element's number in the array, of pairs that of the pair. Nothing wraps, since every index is inside where this is read."""
        text, axes = "", statement.memory.rank - array.pairs
        for atom, extent in zip(statement.indices[:axes], statement.memory.shape[:axes], strict=True):
            position = self.position(atom)
            text = f"({text}) * {self.dim(extent)} + {position}" if text else position
        return f"{text} + {array.offset}" if array.offset else text
