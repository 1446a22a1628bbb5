"""The Programs of the photograph: histogram, tone curve, mapping, blur, unsharp mask.

A picture is u8[height, width, 3], rows from the top, red green blue.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

import vyre_py as vp
from vyre_py.ir.builder.expressions import Expr
from vyre_py.ir.builder.handles import ArrayHandle
from vyre_py.ir.builder.program_builder import ProgramBuilder
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import f32, i32, u8, u32

__all__ = ["blur", "equalise", "histogram", "sharpen", "tone_curve"]

BINS: Final = 256
TILE: Final = 16
RADIUS: Final = 3
SIGMA: Final = 1.5
_APRON: Final = TILE + 2 * RADIUS
_TAPS: Final = 2 * RADIUS + 1


def _luma(picture: ArrayHandle, y: Expr, x: Expr) -> Expr:
    """Brightness from 0 to 255, in whole numbers: (77 red + 150 green + 29 blue) / 256 (ITU-R BT.601 weights)."""
    red, green, blue = (vp.cast(picture[y, x, c], u32) for c in range(3))
    return (red * 77 + green * 150 + blue * 29) >> 8


def histogram() -> Program:
    """bins[v] += the number of pixels of brightness v: counted per workgroup, then added up."""
    with ProgramBuilder("histogram", workgroup=(TILE, TILE)) as b:
        height, width = b.dim("height"), b.dim("width")
        picture = b.read("picture", u8, height, width, 3)
        bins = b.read_write("bins", u32, BINS)
        b.over(width, height)
        local = b.workgroup("local", u32, BINS)
        x, y, place = b.let("x", b.global_id(0)), b.let("y", b.global_id(1)), b.let("place", b.local_index())
        with b.if_((x < width) & (y < height)):
            local.atomic_add(_luma(picture, y, x), 1)
        b.barrier()
        bins.atomic_add(place, local[place])
    return b.program


def tone_curve() -> Program:
    """curve[v]: where brightness v goes so that all are equally frequent: the running sum of the bins, stretched to 0..255."""
    with ProgramBuilder("tone_curve", workgroup=BINS) as b:
        bins = b.read("bins", u32, BINS)
        curve = b.write("curve", f32, BINS)
        b.grid(1)
        sums = b.workgroup("sums", u32, BINS)
        least = b.workgroup("least", u32, 1)
        i = b.let("i", b.local_index())
        sums[i] = bins[i]
        with b.if_(i == 0):
            least[0] = 0xFFFFFFFF
        b.barrier()
        for step in range(int(math.log2(BINS))):  # Hillis and Steele's inclusive scan, 1986
            total = b.var(f"total{step}", u32, sums[i])
            with b.if_(i >= 1 << step):
                total += sums[i - (1 << step)]
            b.barrier()
            sums[i] = total
            b.barrier()
        with b.if_(bins[i] > 0):
            least.atomic_min(0, sums[i])
        b.barrier()
        first, every = least.uniform_load(0), sums.uniform_load(BINS - 1)
        above = vp.cast(vp.max(sums[i], first) - first, f32)
        spread = vp.cast(vp.max(every - first, 1), f32)
        curve[i] = above * 255.0 / spread
    return b.program


def equalise() -> Program:
    """out = the picture with every pixel's brightness moved along the curve; colours keep their proportions."""
    with ProgramBuilder("equalise", workgroup=(TILE, TILE)) as b:
        height, width = b.dim("height"), b.dim("width")
        picture = b.read("picture", u8, height, width, 3)
        curve = b.read("curve", f32, BINS)
        amount = b.param("amount", f32)
        out = b.write("out", u8, height, width, 3)
        b.over(width, height)
        x, y = b.let("x", b.global_id(0)), b.let("y", b.global_id(1))
        before = b.let("before", _luma(picture, y, x))
        moved = vp.cast(before, f32) * (1.0 - amount) + curve[before] * amount
        gain = moved / vp.cast(vp.max(before, 1), f32)
        for c in range(3):
            out[y, x, c] = vp.cast(vp.clamp(vp.round(vp.cast(picture[y, x, c], f32) * gain), 0.0, 255.0), u8)
    return b.program


def _gauss() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    taps = np.exp(-np.square(np.arange(-RADIUS, RADIUS + 1) / SIGMA) / 2)
    weights: np.ndarray[tuple[int], np.dtype[np.float32]] = (taps / taps.sum()).astype(np.float32)
    return weights


def blur() -> Program:
    """blurred = the picture under a Gaussian: each workgroup loads a tile with its apron once, then sums rows and columns."""
    with ProgramBuilder("blur", workgroup=(TILE, TILE)) as b:
        height, width = b.dim("height"), b.dim("width")
        picture = b.read("picture", u8, height, width, 3)
        blurred = b.write("blurred", f32, height, width, 3)
        b.over(width, height)
        taps = b.table("taps", _gauss())
        tile = b.workgroup("tile", f32, _APRON, _APRON)
        rows = b.workgroup("rows", f32, _APRON, TILE)
        lx, ly, place = b.let("lx", b.local_id(0)), b.let("ly", b.local_id(1)), b.let("place", b.local_index())
        left = vp.cast(b.workgroup_id(0) * TILE, i32) - RADIUS
        top = vp.cast(b.workgroup_id(1) * TILE, i32) - RADIUS
        right, bottom = vp.cast(width, i32) - 1, vp.cast(height, i32) - 1
        with b.for_(0, 3, name="c") as c:
            with b.region("load tile"), b.for_(0, -(-_APRON * _APRON // (TILE * TILE)), name="turn") as turn:
                cell = b.let("cell", turn * (TILE * TILE) + place)
                ty, tx = cell // _APRON, cell % _APRON
                sy = vp.min(vp.max(top + vp.cast(ty, i32), 0), bottom)  # pixels beyond the edge repeat it
                sx = vp.min(vp.max(left + vp.cast(tx, i32), 0), right)
                tile[ty, tx] = vp.cast(picture[sy, sx, c], f32)
            b.barrier()
            with b.region("sum along rows"), b.for_(0, -(-_APRON // TILE), name="turn") as turn:
                row = turn * TILE + ly
                across = b.var("across", f32)
                with b.for_(0, _TAPS, name="k") as k:
                    across.set(across + taps[k] * tile[row, lx + k])
                rows[row, lx] = across
            b.barrier()
            with b.region("sum along columns"):
                down = b.var("down", f32)
                with b.for_(0, _TAPS, name="k") as k:
                    down.set(down + taps[k] * rows[ly + k, lx])
                blurred[b.global_id(1), b.global_id(0), c] = down
            b.barrier()
    return b.program


def sharpen() -> Program:
    """out = picture + amount * (picture - blurred), an unsharp mask; differences below the threshold stay as they are."""
    with ProgramBuilder("sharpen", workgroup=(TILE, TILE)) as b:
        height, width = b.dim("height"), b.dim("width")
        picture = b.read("picture", u8, height, width, 3)
        blurred = b.read("blurred", f32, height, width, 3)
        amount, threshold = b.param("amount", f32), b.param("threshold", f32)
        out = b.write("out", u8, height, width, 3)
        b.over(width, height)
        x, y = b.let("x", b.global_id(0)), b.let("y", b.global_id(1))
        with b.for_(0, 3, name="c") as c:
            here = vp.cast(picture[y, x, c], f32)
            detail = here - blurred[y, x, c]
            strong = abs(detail) > threshold
            out[y, x, c] = vp.cast(vp.clamp(vp.floor(vp.select(strong, here + amount * detail, here) + 0.5), 0.0, 255.0), u8)
    return b.program
