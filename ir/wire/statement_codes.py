"""The registry of the wire format for statements: the number of each kind of them, and of each op. `codes` says how long a number means what it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.language.nodes import STATEMENTS
from vyre_py.ir.language.ops import ATOMICS_BY_SPELLING, OPS, SUBGROUPS
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS

__all__ = ["ATOMIC_BASE", "CALL", "CODES", "CODE_NAMES", "OP_BASE", "SUBGROUP_BASE", "TILE_BASE"]

# A `let` has no code of its own: its op's stands for it; so does that of an atomic, of what a subgroup does, and of a tile op. One whose op is
# a function of the Program is a call.
CALL: Final = "call"
_STATEMENTS: Final[Mapping[str, int]] = {**{kind.spelling: kind.code for kind in STATEMENTS if kind.spelling}, CALL: 0x40}
OP_BASE: Final = 0x100
ATOMIC_BASE: Final = 0x1000
SUBGROUP_BASE: Final = 0x2000
TILE_BASE: Final = 0x3000

# Name -> code of everything that a row of a body may be.
CODES: Final[Mapping[str, int]] = {
    **_STATEMENTS,
    **{name: OP_BASE + op.code for name, op in OPS.items()},
    **{f"atomic_{name}": ATOMIC_BASE + op.code for name, op in ATOMICS_BY_SPELLING.items()},
    **{f"subgroup_{name}": SUBGROUP_BASE + op.code for name, op in SUBGROUPS.items()},
    **{f"tile_{name}": TILE_BASE + op.code for name, op in TILE_OPS.items()},
}
CODE_NAMES: Final[Mapping[int, str]] = {code: name for name, code in CODES.items()}
