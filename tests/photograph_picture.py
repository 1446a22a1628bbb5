"""The picture of README: the photograph as it is, and beside it what the demo makes of it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image
from tree import ROOT

import vyre_py as vp
from vyre_py.demo.photograph import process
from vyre_py.demo.picture import read_picture

__all__ = ["PICTURE", "before_and_after", "picture_file"]

PICTURE: Final = ROOT / "docs" / "pictures" / "photograph.png"
_PHOTOGRAPH: Final = ROOT / "examples" / "data" / "chelsea.png"
_SLOPE: Final = 4  # rows down for a column to the left, of the line between the two


def before_and_after() -> np.ndarray[Any, Any]:
    """The pixels, u8[height, width, 3]: on the left as it was, on the right equalised and sharpened."""
    source = read_picture(_PHOTOGRAPH)
    after = process(vp.device("cpu"), source).picture
    height, width, _ = source.shape
    rows, columns = np.indices((height, width))
    line = width // 2 + (height // 2 - rows) // _SLOPE
    made = np.where((columns < line)[..., None], source, after)
    made[np.abs(columns - line) <= 1] = 255
    return made


def picture_file() -> bytes:
    """The file: what is there if it shows the same, since programs that write PNG compress in their own ways."""
    made = before_and_after()
    if PICTURE.is_file() and np.array_equal(read_picture(PICTURE), made):
        return Path(PICTURE).read_bytes()
    file = io.BytesIO()
    Image.fromarray(made).save(file, "PNG", optimize=True)
    return file.getvalue()
