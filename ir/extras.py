"""How to get the packages that an extra names."""

from __future__ import annotations

from typing import Final

__all__ = ["CUDA", "extra"]


def extra(name: str) -> str:
    """The command for it. vyre-py is on no index, so that it begins from a checkout."""
    return f"pip install '.[{name}]' in a checkout of vyre-py"


CUDA: Final = f"{extra('cuda')} ('.[cuda12]' for drivers older than 580)"
