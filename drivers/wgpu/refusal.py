"""What naga says of WGSL that it refuses, with the place in the Program that the WGSL was made from."""

from __future__ import annotations

import re
from typing import Final

from vyre_py.lowering.errors import ToolchainError
from vyre_py.lowering.wgsl.places import place_before

__all__ = ["refused"]

_HEAD: Final = re.compile(r"\AValidation Error\s+Caused by:\s+In \w+\s+")
_LINE: Final = re.compile(r"wgsl:(\d+):\d+")


def refused(said: str, text: str, emitted: bool) -> ToolchainError:
    """The error for WGSL that naga refuses: what it says, which has the line of WGSL where there is one, and of WGSL that was emitted from which line of the
    Program that is."""
    message = "\n".join([line.rstrip() for line in _HEAD.sub("", said).splitlines()]).strip()
    if emitted and (line := _LINE.search(said)) is not None:
        place = place_before(text, int(line[1]))
        source = "help: CompileOptions(debug=True) has the place in the Program as well" if place is None else "made from {}:{}:{}".format(*place)
        message = f"{message}\n  {source}"
    return ToolchainError("naga", message, text)
