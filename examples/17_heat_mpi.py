"""Heat in a plate over MPI ranks: each has some of the rows in resident buffers, and slices of buffers are what MPI sends and receives.

    mpiexec -n 2 python examples/17_heat_mpi.py

Each rank holds its rows and one more on either side, the halo, which it gets from its neighbours before every step. The result has the bits of one process.
It needs the packages mpi4py and mpich, or another MPI.
"""

import time

import numpy as np
from mpi4py import MPI

import vyre_py as vp

HEIGHT, WIDTH, STEPS, RATE = 240, 320, 100, 0.2

with vp.ProgramBuilder("heat", workgroup=(32, 8)) as b:
    height, width = b.dim("height"), b.dim("width")
    rate = b.param("rate", vp.f32)
    old, new = b.read("old", vp.f32, height, width), b.read_write("new", vp.f32, height, width)
    x, y = b.global_id(0), b.global_id(1)
    here = old[y, x]
    around = old[y, x - 1] + old[y, x + 1] + old[y - 1, x] + old[y + 1, x]  # beyond the edges a load is zero: there it is cold
    new[y, x] = here + rate * (around - 4.0 * here)

world = MPI.COMM_WORLD
device = vp.device("cpu")  # with an MPI that reaches into GPUs "cuda" works as well, once device.synchronize() has come before each message
pipeline = device.compile_native(b.program)

plate = np.random.default_rng(1).random((HEIGHT, WIDTH), np.float32)
first, last = [HEIGHT * k // world.size for k in (world.rank, world.rank + 1)]
rows = last - first
mine = np.zeros((rows + 2, WIDTH), np.float32)
mine[1:-1] = plate[first:last]
this, other = device.upload(mine), device.allocate(mine.shape, vp.f32)
steps = [(this, pipeline.bind(old=this, new=other, rate=RATE)), (other, pipeline.bind(old=other, new=this, rate=RATE))]
above = world.rank - 1 if world.rank else MPI.PROC_NULL
below = world.rank + 1 if world.rank < world.size - 1 else MPI.PROC_NULL

cold = np.zeros((1, WIDTH), np.float32)
begin = time.perf_counter()
for step in range(STEPS):
    now, launch = steps[step % 2]
    for halo, edge in ((now[0:1], above), (now[rows + 1 : rows + 2], below)):
        if edge == MPI.PROC_NULL:
            halo.write(cold)  # the step before computed a row there, too
    world.Sendrecv(now[1:2], above, recvbuf=now[rows + 1 : rows + 2], source=below)  # slices of buffers, without a copy
    world.Sendrecv(now[rows : rows + 1], below, recvbuf=now[0:1], source=above)
    launch()
seconds = time.perf_counter() - begin
parts = world.gather(steps[STEPS % 2][0].read()[1:-1])

total, summed = device.upload(np.ones(1, np.float32)), device.allocate(1, vp.f32)
world.Allreduce(total, summed, MPI.SUM)
assert summed.read() == [world.size]

if world.rank == 0:
    whole = [device.upload(plate), device.allocate(plate.shape, vp.f32)]
    for step in range(STEPS):
        pipeline.bind(old=whole[step % 2], new=whole[1 - step % 2], rate=RATE)()
    assert np.array_equal(np.concatenate(parts), whole[STEPS % 2].read())
    print(f"{world.size} ranks: the bits of one process after {STEPS} steps, {seconds / STEPS * 1e6:,.0f} us each")
