"""What takes the workgroups of a grid together, on targets that run them one after another or in no known order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from vyre_py.ir.language.nodes import GridBarrier, GridScan, Statement

__all__ = ["WITHOUT_GRID_BARRIER", "WITHOUT_GRID_SCAN"]

# For `walks.Handlers`: what to do instead.
WITHOUT_GRID_BARRIER: Final[Mapping[type[Statement], str]] = MappingProxyType(
    {GridBarrier: "its workgroups need not run at once; part the Program in two here and launch one after the other, or compile for cuda"}
)
WITHOUT_GRID_SCAN: Final[Mapping[type[Statement], str]] = MappingProxyType(
    {GridScan: "its workgroups come in no known order; store each one's value, scan those by another Program, and go on in a third; or compile for cuda or cpu"}
)
