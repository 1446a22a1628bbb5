"""What a block costs in Dask: axpy by a Program beside NumPy's, on a LocalCluster of two processes of one thread each.

    python -m tests.bench.bench_dask [BLOCKS]

Blocks of four sizes, which the workers hold already; the result is waited for, and stays there. Medians of five rounds, which take turns; milliseconds a block.
"""

from __future__ import annotations

import statistics
import sys
import time

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

import vyre_py as vp
from tests.bench.measure import row
from vyre_py.interop.dask import map_blocks

AXPY = vp.Program.from_text("""program axpy(n) workgroup(256) {
  param a: f32
  buffer x: f32[n] read
  buffer z: f32[n] read
  buffer y: f32[n] write
  y[global_id.x] = a * x[global_id.x] + z[global_id.x]
}""")
ROUNDS = 5


def numpys(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The same by NumPy."""
    return np.float32(2) * x + z


def main(count: str = "64") -> None:
    """Prints the table."""
    blocks = int(count)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        for size_kib in (4, 400, 4000, 16000):
            elements = size_kib * 256
            many = max(8, blocks * 400 // max(size_kib, 400))
            x, z = [client.persist(da.random.default_rng(k).random(many * elements, dtype=np.float32, chunks=elements)) for k in (1, 2)]
            wait([x, z])
            work = {
                "vyre": lambda x=x, z=z: map_blocks(AXPY, x, z, a=2.0, targets=["cpu"]),
                "NumPy": lambda x=x, z=z: da.map_blocks(numpys, x, z, dtype=np.float32, meta=np.empty(0, np.float32)),
            }
            taken: dict[str, list[float]] = {name: [] for name in work}
            for turn in range(ROUNDS + 1):
                for name, make in work.items():
                    graph = make()
                    began = time.perf_counter()
                    wait(result := client.persist(graph))
                    if turn:  # the first one loads the code
                        taken[name].append((time.perf_counter() - began) / many * 1e3)
                    del result, graph
                    time.sleep(0.05)  # what was dropped is freed
            ours, peer = [statistics.median(taken[name]) for name in work]
            row(f"axpy, {many} blocks of {size_kib} KiB", ours, "ms", peer, "NumPy map_blocks")


if __name__ == "__main__":
    main(*sys.argv[1:])
