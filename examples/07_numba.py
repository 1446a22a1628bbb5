"""Launches inside code that Numba compiles: a time loop that never comes back to Python.

    python examples/07_numba.py

Heat spreads in a bar whose ends are held at two temperatures. One step is a Program; the loop around it is Numba's: it holds the ends, looks how much
still changes, and stops. It needs the package numba.
"""

import numba
import numpy as np

import vyre_py as vp
from vyre_py.interop.numba import vyre_launch

CELLS, COLD, HOT = 256, 10.0, 30.0

with vp.ProgramBuilder("heat") as b:
    n, rate = b.dim("n"), b.param("rate", vp.f64)
    now, then = b.read("now", vp.f64, n), b.write("then", vp.f64, n)
    i = b.global_id(0)
    left, right = now[vp.max(i, 1) - 1], now[vp.min(i + 1, n - 1)]
    then[i] = now[i] + rate * (left - 2.0 * now[i] + right)


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]  # Numba says no types
def settle(there: int, back: int, bar: np.ndarray, other: np.ndarray, enough: float) -> tuple[int, int]:
    """Steps from `bar` to `other` and back until nothing moves by more than `enough`; gives the status and the number of steps."""
    steps, moved = 0, np.inf
    while moved > enough:
        for launch, source in ((there, bar), (back, other)):
            source[0], source[-1] = COLD, HOT
            status = vyre_launch(launch, 0)
            if status != 0:
                return status, steps
            steps += 1
        moved = np.abs(bar[1:-1] - other[1:-1]).max()
    return 0, steps


device = vp.device("cpu")
pipeline = device.compile_native(b.program)
bar, other = np.zeros(CELLS), np.zeros(CELLS)
a, z = device.wrap(bar), device.wrap(other)  # NumPy's memory itself: each side sees what the other writes
there = pipeline.bind(now=a, then=z, rate=0.5)
back = pipeline.bind(now=z, then=a, rate=0.5)  # both launches are kept here: an address does not keep them

status, steps = settle(there.c_address, back.c_address, bar, other, 1e-9)
error = np.abs(bar - np.linspace(COLD, HOT, CELLS))[1:-1].max()
print(f"status {status} after {steps} steps, off the straight line by {error:.1e}")
assert status == 0 and error < 1e-3
