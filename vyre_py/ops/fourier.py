"""Fourier transforms of powers of two along the last axis."""

from __future__ import annotations

import numpy as np

import vyre_py as vp
from vyre_py.ops.checks import refuse, whole

__all__ = ["fft", "ifft"]

_LONGEST = 4_096
_LEAST, _MOST = 64, 256  # invocations of a workgroup


def fft(points: int) -> vp.Program:
    """target[i, k] = sum over j of source[i, j] exp(-2 pi 1j k j / points): the discrete Fourier transform of each row, as NumPy's fft.

    Buffers: `source` and `target` of [rows, points], elements of f32x2, a real and an imaginary part: arrays of (rows, points, 2) f32, a view of complex64.
    `points` is a power of two from 2 to 4096, part of the Program; 4096 take 32 KiB of workgroup memory, and 2048 what every device has. A
    workgroup transforms a row, in f32, with the same bits on every strict device. The root mean square of the error is at most some 2^-24 log2(points) of that
    of the result.

    The stages are T. G. Stockham's (1966), of radix 2, in the order of C. Van Loan, "Computational frameworks for the fast Fourier transform" (1992), section
    1.7. Raises ValidationError B108 at the caller's line for other numbers of points.
    """
    return _transform("fft", points, -1)


def ifft(points: int) -> vp.Program:
    """target[i, j] = sum over k of source[i, k] exp(2 pi 1j k j / points) / points: what `fft` undoes, with its buffers, numerics and errors."""
    return _transform("ifft", points, 1)


def _transform(name: str, points: int, sign: int) -> vp.Program:
    points = whole("the number of points", points, 2, _LONGEST)
    if points & points - 1:
        refuse(f"the number of points is a power of two, got {points}", f"pad rows to {1 << points.bit_length()}" if points < _LONGEST else "at most 4096")
    half = points // 2
    group = min(max(half, _LEAST), _MOST)
    angles = sign * 2 * np.pi * np.arange(half) / points
    with vp.ProgramBuilder(name, workgroup=group) as b:
        rows = b.dim("rows")
        source, target = b.read("source", vp.f32x2, rows, points), b.write("target", vp.f32x2, rows, points)
        roots = b.table("roots", np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32), vp.f32x2)
        b.grid(rows)
        i, k = b.let("i", b.workgroup_id(0)), b.local_index()
        row = b.workgroup("row", vp.f32x2, points)
        turns = [k + turn * group for turn in range(-(-half // group))]
        for length in [1 << stage for stage in range(points.bit_length() - 1)]:
            joined = []  # by butterfly: the transforms of `length` points that are joined lie half a row apart
            for j in turns:
                x, y = (source[i, j], source[i, j + half]) if length == 1 else (row[j], row[j + half])
                w = roots[j % length * (half // length)]
                y = vp.vec2(y.x * w.x - y.y * w.y, y.x * w.y + y.y * w.x)
                joined.append((j, x + y, x - y))
            b.barrier()  # all have loaded
            for j, first, second in joined:
                place = (j // length) * (2 * length) + j % length
                with b.if_(j < half):  # short rows have invocations to spare
                    for to, value in ((place, first), (place + length, second)):
                        if length < half:
                            row[to] = value
                        else:
                            target[i, to] = value * (1 / points) if sign > 0 else value
            b.barrier()  # all have stored
    return b.program
