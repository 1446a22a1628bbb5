"""How to get the packages that an extra names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["CUDA", "extra", "with_extra"]


def extra(name: str) -> str:
    """The command for it. vyre-py is on no index, so that it begins from a checkout."""
    return f"pip install '.[{name}]' in a checkout of vyre-py"


@contextmanager
def with_extra(name: str, door: str) -> Iterator[None]:
    """A block of imports by which a module, the `door`, needs an extra: where a package is missing, the ModuleNotFoundError says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "vyre_py"):
            raise
        raise ModuleNotFoundError(f"{door} needs the package {package}, which is not installed: {extra(name)}", name=error.name) from error


CUDA: Final = f"{extra('cuda')} ('.[cuda12]' for drivers older than 580)"
