"""NVTX ranges, which NVIDIA's profilers show: through the package `nvtx`, and only when asked for."""

from __future__ import annotations

from typing import Any

from vyre_py.drivers.errors import DeviceUnavailable
from vyre_py.ir.imports import importing

__all__ = ["Ranges"]

_DOMAIN = "vyre-py"


class Ranges:
    """Ranges of one trace. A range is ended by the thread that began it, last one first. Raises DeviceUnavailable without the package."""

    __slots__ = ("_nvtx",)

    def __init__(self) -> None:
        try:
            with importing:
                import nvtx  # loaded late: most programs never ask for it
        except ImportError as error:
            raise DeviceUnavailable("NVTX ranges need the package nvtx, which is not installed", cause=str(error), remedy="pip install nvtx") from error
        self._nvtx: Any = nvtx

    def push(self, name: str, category: str) -> None:
        """Begins a range."""
        self._nvtx.push_range(message=name, domain=_DOMAIN, category=category)

    def pop(self) -> None:
        """Ends it."""
        self._nvtx.pop_range(domain=_DOMAIN)
