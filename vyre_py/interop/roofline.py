"""A roofline (S. Williams, A. Waterman and D. Patterson, CACM 52(4), 2009) as a picture, by matplotlib, which is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from vyre_py.drivers.errors import DriverError
from vyre_py.ir.extras import extra
from vyre_py.ir.imports import importing

__all__ = ["Row", "draw"]

_ROOM: Final = 8.0  # how far the axes go beyond what they show, as a factor
_INCHES: Final = (8.0, 5.0)


class Row(NamedTuple):
    """One point: its name, operations a byte, operations a second; and its roof, bytes and operations a second."""

    name: str
    intensity: float
    rate: float
    bytes_per_second: float
    operations_per_second: float


def _matplotlib() -> Any:
    try:
        with importing:
            import matplotlib as mpl
            import matplotlib.figure
    except ImportError as error:
        raise DriverError("drawing a roofline needs matplotlib", remedy=extra("plot")) from error
    return mpl


def draw(file: Path, title: str, rows: Sequence[Row]) -> None:
    """Draws rows into a file whose ending says the format: both axes are logarithmic, and rows of one roof share its two lines. An SVG has its words as text,
    and the same rows give the same bytes. Raises DriverError where matplotlib is missing, or the picture cannot be written."""
    library = _matplotlib()
    # No global state of the library's, such as a window system, is touched.
    with library.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vyre-py"}):
        figure = library.figure.Figure(figsize=_INCHES, layout="constrained")
        axes = figure.add_subplot(xscale="log", yscale="log", title=_plain(title), xlabel="operations a byte", ylabel="operations a second")
        knees = [row.operations_per_second / row.bytes_per_second for row in rows]
        least = min(*knees, *[row.intensity for row in rows]) / _ROOM
        most = max(*knees, *[row.intensity for row in rows]) * _ROOM
        for memory, arithmetic in sorted({(row.bytes_per_second, row.operations_per_second) for row in rows}):
            x = (least, arithmetic / memory, most)
            axes.plot(x, (least * memory, arithmetic, arithmetic), color="0.4", label=f"{memory / 1e9:.4g} GB/s, {arithmetic / 1e12:.4g} TFLOP/s")
        for row in rows:
            axes.plot(row.intensity, row.rate, "o", label=f"{_plain(row.name)}: {row.rate / 1e12:.4g} TFLOP/s")
            axes.annotate(_plain(row.name), (row.intensity, row.rate), xytext=(6, -10), textcoords="offset points")
        axes.grid(which="major", color="0.9")
        axes.legend(loc="lower right", fontsize="small")
        try:
            figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
        except (OSError, ValueError) as error:
            raise DriverError(f"the picture could not be written to {file}", cause=str(error)) from error


def _plain(text: str) -> str:
    """A text in which matplotlib finds no formula."""
    return text.replace("$", r"\$")
