"""Programs of tiles become Programs of invocations, which every target compiles.

Each tile is shared out among the invocations of a workgroup (`tile_layout`): an invocation holds some of its elements as values of its own, its registers. What
goes element by element needs no more than that. Elements that an op needs from other invocations go through workgroup memory (`exchange`).
`rewrite` goes over the statements; `folds` and `products` write reductions, scans and products of matrices. `packing` is for CPUs, `cores` for tensor cores.
"""

from __future__ import annotations

from vyre_py.lowering.tiles.cores import for_rings, uses_tensor_cores
from vyre_py.lowering.tiles.rewrite import without_tiles

__all__ = ["for_rings", "uses_tensor_cores", "without_tiles"]
