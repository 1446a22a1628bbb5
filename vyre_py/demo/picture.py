"""Pictures on disk, through Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vyre_py.drivers.errors import DriverError
from vyre_py.ir.extras import extra

__all__ = ["read_picture", "write_animation", "write_picture"]

Picture = np.ndarray[Any, np.dtype[np.uint8]]


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise DriverError("reading and writing pictures needs Pillow", remedy=extra("demo")) from error
    return Image


def read_picture(path: Path) -> Picture:
    """A picture as u8[height, width, 3]. Raises DriverError for a file that is no picture."""
    image = _pillow()
    try:
        with image.open(path) as opened:
            return np.asarray(opened.convert("RGB"))
    except OSError as error:
        raise DriverError(f"{path} is not a picture that can be read", cause=str(error)) from error


def write_picture(path: Path, picture: Picture) -> None:
    """Writes u8[height, width, 3]; the ending of the name says the format. Raises DriverError."""
    image = _pillow()
    try:
        image.fromarray(picture).save(path)
    except (OSError, ValueError) as error:
        raise DriverError(f"the picture could not be written to {path}", cause=str(error)) from error


def write_animation(path: Path, frames: Sequence[Picture], frame_ms: int = 40) -> None:
    """Writes u8[height, width, 3] frames that are shown for so many milliseconds each, over and over: a GIF, or a PNG that moves. Raises DriverError."""
    image = _pillow()
    try:
        first, *others = [image.fromarray(frame) for frame in frames]
        first.save(path, save_all=True, append_images=others, duration=frame_ms, loop=0)
    except (OSError, ValueError) as error:
        raise DriverError(f"the animation could not be written to {path}", cause=str(error)) from error
