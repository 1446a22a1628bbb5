"""Where the C header is."""

from __future__ import annotations

from pathlib import Path

import vyre_py
from vyre_py.drivers.errors import DriverError
from vyre_py.ir.public import public

__all__ = ["include_dir"]


@public
def include_dir() -> Path:
    """The folder that holds `vyre.h`, for a compiler's `-I`: `vyre_launch_t`, what `launch.c_address` points to. Raises DriverError where the installation
    has lost it."""
    for home in vyre_py.__path__:  # two in a checkout, whose headers lie beside the package
        folder = Path(home) / "include"
        if (folder / "vyre.h").is_file():
            return folder
    raise DriverError("vyre.h is not there", cause="files of the package were left out", remedy="install vyre-py again")
