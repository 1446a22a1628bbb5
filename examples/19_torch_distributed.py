"""Two ranks of torch.distributed fit a line, each to its half of the points: Programs compute, PyTorch adds over the ranks, in the same memory.

    python examples/19_torch_distributed.py

A buffer is a tensor through DLPack, without a copy, so `all_reduce` changes what the next launch reads. It needs the package torch.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import vyre_py as vp

RANKS, POINTS, STEPS, RATE = 2, 4096, 200, 0.5

with vp.ProgramBuilder("gradient", workgroup=256) as b:
    n = b.dim("n")
    x, z = b.read("x", vp.f32, n), b.read("z", vp.f32, n)
    line, sums = b.read("line", vp.f32, 2), b.write("sums", vp.f32, 2)
    b.grid(1)
    slope, height = b.var("slope", vp.f32, 0.0), b.var("height", vp.f32, 0.0)
    with b.for_(b.local_id(0), n, 256) as i:
        off = line[0] * x[i] + line[1] - z[i]
        slope += off * x[i]
        height += off
    sums[0] = b.workgroup_reduce("add", slope)
    sums[1] = b.workgroup_reduce("add", height)

with vp.ProgramBuilder("step", workgroup=2) as c:
    rate = c.param("rate", vp.f32)
    change, fitted = c.read("change", vp.f32, 2), c.read_write("fitted", vp.f32, 2)
    fitted[c.global_id(0)] = fitted[c.global_id(0)] - rate * change[c.global_id(0)]


def rank_main(rank: int, meeting: str) -> None:
    """What each process does."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    device = vp.device("cpu")
    xs = np.random.default_rng(1).random(POINTS, np.float32)[rank::RANKS]
    fitted, sums = device.allocate(2, vp.f32), device.allocate(2, vp.f32)
    arguments = {"x": device.upload(xs), "z": device.upload(np.float32(3) * xs - np.float32(1)), "line": fitted, "sums": sums}
    gradient = device.compile_native(b.program).bind(arguments)
    step = device.compile_native(c.program).bind({"change": sums, "fitted": fitted, "rate": RATE / POINTS * RANKS})
    shared = torch.from_dlpack(sums)  # the same memory
    for _ in range(STEPS):
        gradient()
        dist.all_reduce(shared)
        step()
    lines: list[torch.Tensor] = [torch.empty(2) for _ in range(RANKS)]
    dist.all_gather(lines, torch.from_dlpack(fitted))
    assert torch.equal(lines[0], lines[1])  # the ranks added the same numbers
    if rank == 0:
        print(f"{RANKS} ranks fitted {lines[0][0]:.3f} x {lines[0][1]:+.3f} after {STEPS} steps")
        assert torch.allclose(lines[0], torch.tensor([3.0, -1.0]), atol=1e-2)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (str(Path(folder) / "meeting"),), nprocs=RANKS)
