"""How the elements of a row, or of a column, are shared by invocations of a GPU: each has a strip of them."""

from __future__ import annotations

from typing import Any, Final

from torch._inductor.virtualized import V

from vyre_py.ir.data_classes import dataclass

__all__ = ["KEPT_ELEMENTS", "SUBGROUP", "Strips", "columns_of", "hint_of", "strips_of"]

SUBGROUP: Final = 32
_STRIP: Final = 8  # elements of an invocation: enough loads under way, and few enough for registers
_VECTOR: Final = 4  # neighbours that are one access
_MOST: Final = 1024  # invocations of a workgroup
KEPT_ELEMENTS: Final = _MOST * _STRIP  # of a row, in registers
_TURNS: Final = 256  # invocations that share a row in turns of a loop
_LONG: Final = 256  # elements of a column that are worth 16 invocations
_BUSY: Final = 1 << 17  # invocations that keep a GPU busy


@dataclass(frozen=True)
class Strips:
    """How the elements of a row are shared: by `lanes` invocations, each of which has `groups` of `vector` neighbours, in registers where they are `kept`, else
    in each turn of a loop. Element `copy` of lane l is number ((copy // vector) * lanes + l) * vector + copy % vector of its row or turn."""

    lanes: int
    groups: int
    vector: int
    kept: bool

    @property
    def count(self) -> int:
        """How many elements a strip has."""
        return self.groups * self.vector


def strips_of(elements: int | None, *, side_by_side: bool = False) -> Strips:
    """The strips of rows of so many elements, None where that is not known; such that neighbours in a row have one invocation or the next, if asked for."""
    if elements is None or elements > KEPT_ELEMENTS:
        vector = _VECTOR if elements is not None and elements % _VECTOR == 0 else 1
        return Strips(_TURNS, _STRIP // vector if vector > 1 else _STRIP // 2, vector, kept=False)
    vector = _STRIP if side_by_side else _VECTOR if elements % _VECTOR == 0 else 1
    units = -(-elements // vector)
    found = []
    for groups in range(_STRIP // vector, 0, -1):
        lanes = -(-units // (groups * SUBGROUP)) * SUBGROUP
        if lanes <= _MOST:
            found.append(Strips(lanes, -(-units // lanes), vector, kept=True))
    return min(found, key=lambda strips: strips.lanes * strips.count)


def columns_of(elements: int | None, results: int) -> Strips:
    """The strips of columns of so many elements, of which there are so many: an invocation goes alone where that keeps a GPU busy."""
    if results >= _BUSY or (elements is not None and elements < _STRIP):
        lanes = 1
    else:
        lanes = 8 if elements is None else min(16 if elements >= _LONG else 8, 1 << (elements // _STRIP).bit_length() - 1)
    if elements is not None and elements <= 2 * _STRIP * lanes:
        return Strips(lanes, -(-elements // lanes), 1, kept=True)
    return Strips(lanes, _STRIP, 1, kept=False)


def hint_of(size: Any, fallback: int) -> int:
    """How large a size is, as far as its graph tells."""
    sizevars = V.graph.sizevars
    found = getattr(sizevars, "optimization_hint", None) or sizevars.size_hint  # the latter before PyTorch 2.12
    return int(found(size, fallback=fallback))
