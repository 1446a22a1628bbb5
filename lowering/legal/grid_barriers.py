"""Grid barriers, on targets that do not run all workgroups at once."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from vyre_py.ir.language.nodes import GridBarrier, Statement

__all__ = ["WITHOUT_GRID_BARRIER"]

# For `walks.Handlers`: what to do instead.
WITHOUT_GRID_BARRIER: Final[Mapping[type[Statement], str]] = MappingProxyType(
    {GridBarrier: "its workgroups need not run at once; part the Program in two here and launch one after the other, or compile for cuda"}
)
