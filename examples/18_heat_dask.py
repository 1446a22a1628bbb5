"""Heat in a plate whose blocks lie in two processes: Dask gives each block a halo, runs the Program on it, and starts again what a lost process had.

    python examples/18_heat_dask.py

The result has the bits of one process. It needs the packages dask and distributed. On GPUs there is a worker for each, and `device="cuda"`.
"""

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import vyre_py as vp
from vyre_py.interop.dask import map_overlap, reduction

HEIGHT, WIDTH, STEPS, RATE = 240, 320, 10, 0.2

with vp.ProgramBuilder("heat", workgroup=(32, 8)) as b:
    height, width = b.dim("height"), b.dim("width")
    rate = b.param("rate", vp.f32)
    old, new = b.read("old", vp.f32, height, width), b.write("new", vp.f32, height, width)
    x, y = b.global_id(0), b.global_id(1)
    here = old[y, x]
    around = old[y, x - 1] + old[y, x + 1] + old[y - 1, x] + old[y + 1, x]
    new[y, x] = here + rate * (around - 4.0 * here)


def main() -> None:
    """What workers, which import this file, do not do."""
    plate = np.random.default_rng(1).random((HEIGHT, WIDTH), np.float32)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
        heat = da.from_array(plate, chunks=(120, 160))
        for _ in range(STEPS):
            heat = map_overlap(b.program, heat, depth=1, boundary=0.0, rate=RATE)  # a graph: nothing has run yet
        hottest = reduction(vp.ops.max(rank=2, axis=1), heat, combine=vp.ops.max(rank=2, axis=0))
        found, row_maxima = da.compute(heat, hottest)

    pipeline = vp.device("cpu").compile_native(b.program)
    expected = plate
    for _ in range(STEPS):
        expected = pipeline.dispatch({"old": expected, "rate": RATE})["new"]
    assert np.array_equal(found, expected) and np.array_equal(row_maxima, expected.max(axis=1))
    print(f"{STEPS} steps over {heat.numblocks[0]} x {heat.numblocks[1]} blocks in two processes: the bits of one process")


if __name__ == "__main__":
    main()
