"""What may be tried of ready Programs: the values of each parameter that changes how fast they are, and no results but as it says, for `vp.tune`.

How many warps share a tile, clusters and the order of the grid follow from the tiles, and are the compiler's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ops.attention import attention
from vyre_py.ops.products import matmul

__all__ = ["Space", "space_of"]


@dataclass(frozen=True, slots=True)
class Space:
    """The values of each parameter. Where `reorders` is true they are part of the order of sums, so that results differ in their last bits. `hints` are
    parameters by which code differs on CUDA alone, as by how many strips are copied ahead: other devices try the first value of each."""

    values: Mapping[str, Sequence[Any]]
    reorders: bool = False
    hints: tuple[str, ...] = ()

    def values_on(self, kind: str) -> Mapping[str, Sequence[Any]]:
        """Those that may be of different speed on a kind of device."""
        if kind == "cuda" or not self.hints:
            return self.values
        return {name: values[:1] if name in self.hints else values for name, values in self.values.items()}


# Deep tiles are for few rows, shallow ones for what has no tensor cores; None is what attention takes unless told, which no shape says where strips are few.
_PRODUCTS: Final = [
    *((rows, columns, depth) for rows in (128, 64) for columns in (256, 128, 64) for depth in (128, 64, 32)),
    (16, 64, 128), (32, 32, 32), (64, 32, 16), (128, 64, 16), (128, 128, 16),
]  # fmt: skip
_ATTENTION: Final = [None, (128, 128), (128, 64), (128, 32), (64, 128), (64, 64), (64, 32), (32, 64), (32, 32)]
_SPACES: Final[Mapping[Callable[..., Any], Space]] = {
    matmul: Space({"tiles": _PRODUCTS, "stages": [0, 3]}, hints=("stages",)),
    attention: Space({"tiles": _ATTENTION}, reorders=True),
}


def space_of(make: Callable[..., Any]) -> Space | None:
    """That of a function of `vp.ops`, itself or with arguments bound by `functools.partial`; None where it has none."""
    function = getattr(make, "func", make)
    return next((space for of, space in _SPACES.items() if of is function), None)
