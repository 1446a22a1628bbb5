"""The files that an export writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vyre_py.drivers.errors import DriverError
from vyre_py.ir.language.errors import shown
from vyre_py.lowering.files import replacing

__all__ = ["written"]


def written(folder: Path, files: Mapping[str, str | bytes]) -> tuple[Path, ...]:
    """Writes files by name, each whole or not at all, into a folder that is made if need be; gives their paths. Raises DriverError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with replacing(folder / name) as file:
                file.write(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        why = f"{shown(str(folder))} cannot be written"
        raise DriverError(why, cause=str(error), remedy="give a folder that can be written") from error
    return tuple(folder / name for name in files)
