"""WebGPU: launches, sequences and copies beside wgpu-py's own calls, and what it costs that WGSL lacks types.

    python -m tests.bench.bench_wgpu [ROUNDS]

Times of calls are the calling thread's processor time, medians over rounds that take turns with the peer; kernels are timed by the clock on the wall over
many launches in one submission. `x` after a peer's figure is how many times longer the peer takes.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import vyre_py as vp
from tests.bench.measure import row
from vyre_py.ir.language.types import TYPES

TINY = """program tiny(n) workgroup(64) {
  param a: u32
  buffer x: u32[n] read_write
  x[global_id.x] = x[global_id.x] + a
}"""

BUSY = """program busy(n) workgroup(64) {
  param a: u32
  buffer x: u32[n] read_write
  var v: u32 = x[global_id.x]
  for k in 0u32..a { v = v * 1664525u32 + 1013904223u32 ^ (v >> 3u32) }
  x[global_id.x] = v
}"""

COUNT = 1 << 22  # elements of kernels; of a device in software fewer
SOFTWARE_COUNT = 1 << 18
BIG_BYTES = 64 << 20


class Raw:
    """The same launch in wgpu-py's own calls, with everything made before that can be."""

    def __init__(self, device: Any, launch: Any) -> None:
        self.gpu, (self.pipeline, self.group) = device.gpu, launch.armed

    def dispatches(self, count: int) -> None:
        """So many in one pass."""
        encoder = self.gpu.create_command_encoder()
        compute = encoder.begin_compute_pass()
        for _ in range(count):
            compute.set_pipeline(self.pipeline)
            compute.set_bind_group(0, self.group)
            compute.dispatch_workgroups(1)
        compute.end()
        self.gpu.queue.submit([encoder.finish()])


def turns(works: list[Callable[[], object]], wait: Callable[[], object], calls: int, rounds: int) -> list[float]:
    """The median processor time of one call of each in microseconds, of this thread, over rounds in which they take turns."""
    taken: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    for number in range(rounds):
        order = range(len(works)) if number % 2 else reversed(range(len(works)))
        for k in order:
            wait()
            begin = time.thread_time_ns()
            for _ in range(calls):
                works[k]()
            taken[k].append((time.thread_time_ns() - begin) / calls / 1e3)
            wait()
    return [statistics.median(times) for times in taken]


def walls(works: list[Callable[[], object]], rounds: int) -> list[float]:
    """The median time of each on the wall, in milliseconds, over rounds in which they take turns."""
    taken: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    for number in range(rounds):
        for k in range(len(works)) if number % 2 else reversed(range(len(works))):
            begin = time.perf_counter_ns()
            works[k]()
            taken[k].append((time.perf_counter_ns() - begin) / 1e6)
    return [statistics.median(times) for times in taken]


def calls(device: Any, rounds: int) -> None:
    """Launches, sequences, graphs, binds and dispatches."""
    pipeline = device.compile_native(vp.Program.from_text(TINY))
    x, wait = device.allocate(64, vp.u32), device.synchronize
    launch = pipeline.bind(x=x, a=1)
    raw = Raw(device, launch)
    ours, peer = turns([launch, lambda: raw.dispatches(1)], wait, 200, rounds)
    row("launch()", ours, "us", peer, "wgpu-py, one pass")
    sequence, graph = device.sequence(*[launch] * 100), device.capture(lambda: [launch() for _ in range(100)])
    ours, replay, peer = turns([sequence, graph, lambda: raw.dispatches(100)], wait, 10, rounds)
    row("sequence of 100, a launch", ours / 100, "us", peer / 100, "wgpu-py, one pass")
    row("replay of 100, a launch", replay / 100, "us", peer / 100, "wgpu-py, one pass")
    host = np.zeros(64, np.uint32)
    row("launch.set", turns([lambda: launch.set(a=3)], wait, 100, rounds)[0], "us")
    row("bind", turns([lambda: pipeline.bind(x=x, a=1)], wait, 100, rounds)[0], "us")
    row("dispatch", turns([lambda: pipeline.dispatch(x=host, a=1)], wait, 50, rounds)[0], "us")


def copies(device: Any, rounds: int) -> None:
    """Reading back and uploading beside wgpu-py's own; submitting ahead beside one dispatch after the other."""
    queue = device.gpu.queue
    for size in (4 << 10, 1 << 20, BIG_BYTES):
        buffer, host = device.allocate(size, vp.u8), np.ones(size, np.uint8)
        out = np.empty(size, np.uint8)
        raw = buffer.handle.buffer
        ours, peer = walls([lambda b=buffer, o=out: b.read(o), lambda r=raw, s=size: np.asarray(queue.read_buffer(r, 0, s)).copy()], rounds)  # type: ignore[misc]  # what loops bind
        row(f"read {size >> 10} KiB", ours, "ms", peer, "wgpu-py read_buffer")

        def written(raw: Any = raw, host: Any = host) -> None:
            queue.write_buffer(raw, 0, host)
            device.synchronize()

        def uploaded(buffer: Any = buffer, host: Any = host) -> None:
            buffer.write(host)
            device.synchronize()

        ours, peer = walls([uploaded, written], rounds)
        row(f"write {size >> 10} KiB", ours, "ms", peer, "wgpu-py write_buffer")
    pipeline, host = device.compile_native(vp.Program.from_text(BUSY)), np.zeros(1 << 16, np.uint32)
    busy = 200 if device.is_software else 100_000

    def ahead() -> None:
        for pending in [pipeline.submit(x=host, a=busy) for _ in range(16)]:
            pending.result()

    def one_by_one() -> None:
        for _ in range(16):
            pipeline.dispatch(x=host, a=busy)

    ours, peer = walls([ahead, one_by_one], rounds)
    row("16 kernels over 256 KiB, submitted ahead", ours, "ms", peer, "dispatched in turn")


def kernel(device: Any, text: str, arguments: dict[str, Any], repeats: int = 8, everywhere: bool = False) -> Callable[[], None]:
    """A kernel as often as that, and the wait for it; by the code for every device, or for this one."""
    program = vp.Program.from_text(text)
    pipeline = device.load(vp.compile_native(program, ["wgsl"])) if everywhere else device.compile_native(program)
    launch = pipeline.bind(arguments)
    sequence = device.sequence(*[launch] * repeats)

    def run() -> None:
        sequence()
        device.synchronize()

    return run


MAP = "program map(n) {{ buffer x: {kind}[n] read\n buffer y: {kind}[n] write\n let i = global_id.x\n let v = x[i]\n y[i] = {value} }}"
BRIEF = (("add", "v + v"), ("mul", "v * v"), ("shift", "v << (v & {last})"), ("div", "v / (v | {one})"))
SUMS = "program sums(n) over(n) { buffer x: f32[n] read\n buffer y: f32[64] read_write\n let i = global_id.x\n atomic_add(y[i & 63], x[i]) }"
LOOKED_UP = "program looked_up(n) {{ {table}\n buffer x: u32[n] read\n buffer y: u32[n] write\n let i = global_id.x\n y[i] = t[x[i] & 63u32] }}"
KEPT = """program kept(n) {{
  {private}
  buffer x: u32[n] read
  buffer y: u32[n] write
  let i = global_id.x
  {body}
}}"""


def costs(device: Any, rounds: int) -> None:
    """What is not WGSL's own beside the same work in its own types."""
    count = SOFTWARE_COUNT if device.is_software else COUNT

    def mapped(kind: str, value: str, everywhere: bool = False, begin: int = 0) -> Callable[[], None]:
        buffers = {name: device.allocate(begin + count, TYPES[kind])[begin:] for name in "xy"}
        return kernel(device, MAP.format(kind=kind, value=value), buffers, everywhere=everywhere)

    for kind, value in (("u8", "v + 1u8"), ("u16", "v + 1u16"), ("f16", "v + f16:0x3c00")):
        ours, plain, bytewise, peer = walls([mapped(kind, value), mapped(kind, value, True), mapped(kind, value, begin=1), mapped("u32", "v + 1u32")], rounds)
        row(f"a map over {count} {kind}", ours / 8, "ms", peer / 8, "u32, as many")
        row("    without the adapter's features", plain / 8, "ms", peer / 8, "u32, as many")
        row("    from the middle of a word", bytewise / 8, "ms", peer / 8, "u32, as many")
    for op, value in (*BRIEF, ("long div", "({top} - v) / (v | {one})")):
        texts = {kind: value.format(last=f"31{kind}", one=f"1{kind}", top=f"{(1 << bits) - 1}{kind}") for kind, bits in (("u64", 64), ("u32", 32))}
        ours, plain, peer = walls([mapped("u64", texts["u64"]), mapped("u64", texts["u64"], True), mapped("u32", texts["u32"])], rounds)
        row(f"{op} of {count} u64", ours / 8, "ms", peer / 8, "u32, as many")
        row("    in two words", plain / 8, "ms", peer / 8, "u32, as many")
    sums = {"x": device.allocate(count, vp.f32), "y": device.allocate(64, vp.f32)}
    ours, peer = walls([kernel(device, SUMS, sums), kernel(device, SUMS, sums, everywhere=True)], rounds)
    row(f"{count} atomic sums of f32 into 64", ours / 8, "ms", peer / 8, "by compare and exchange")
    numbers = ", ".join(str(k * k) for k in range(64))
    x, y, t = (device.allocate(n, vp.u32) for n in (count, count, 64))
    table = kernel(device, LOOKED_UP.format(table=f"table t: u32[64] = [{numbers}]"), {"x": x, "y": y})
    buffer = kernel(device, LOOKED_UP.format(table="buffer t: u32[64] read"), {"x": x, "y": y, "t": t})
    ours, peer = walls([table, buffer], rounds)
    row("a look into a table", ours / 8, "ms", peer / 8, "a buffer")
    fill = "\n  ".join(f"own[{k}u32] = x[i] + {k}u32" for k in range(8))
    private = kernel(device, KEPT.format(private="private own: u32[8]", body=f"{fill}\n  y[i] = own[x[i] & 7u32] + own[(i + 3u32) & 7u32]"), {"x": x, "y": y})
    chosen = "\n  ".join(f"let s{k} = x[i] + {k}u32" for k in range(8))
    picked = "0u32"
    for k in range(8):
        picked = f"select((x[i] & 7u32) == {k}u32, s{k}, {picked})"
    second = picked.replace("(x[i] & 7u32)", "((i + 3u32) & 7u32)")
    values = kernel(device, KEPT.format(private="", body=f"{chosen}\n  y[i] = {picked} + {second}"), {"x": x, "y": y})
    ours, peer = walls([private, values], rounds)
    row("a private array of 8", ours / 8, "ms", peer / 8, "8 values and selects")


def main(rounds: str = "9") -> None:
    """Prints all."""
    device = vp.device("wgpu")
    print(f"{device.name}: {device.description}, {device.target}")
    for part in (calls, copies, costs):
        part(device, int(rounds))


if __name__ == "__main__":
    main(*sys.argv[1:])
