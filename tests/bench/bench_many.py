"""How many Programs a second `compile_many` compiles, by the number of worker processes.

    python -m tests.bench.bench_many [TARGET [PROGRAMS]]

64 Programs of some 300 statements each, for compute_90 unless another target is named. One worker is this process alone, after a first compile. "started"
includes the start of all workers, "kept" is a later call, to which Programs are given as objects and as bytes.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Sequence

os.environ["VYRE_CACHE_LIMIT"] = "0"

import vyre_py as vp
from vyre_py.drivers.cores import core_count
from vyre_py.drivers.process.compile_pool import end_idle
from vyre_py.ir.language.program import Program

STATEMENTS = 300
ROUNDS = 3


def program(number: int) -> Program:
    """A polynomial of a window, with other coefficients for each number."""
    with vp.ProgramBuilder(f"window{number}") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n), b.write("y", vp.f32, n)
        i = b.global_id(0)
        value = x[i]
        for k in range(STATEMENTS // 4):
            value = value * (1.0 + 1e-3 * (k + number)) + x[i + k % 16]
        y[i] = value
    return b.program


def rate(programs: Sequence[Program | bytes], target: str, workers: int) -> float:
    """Programs a second."""
    began = time.perf_counter()
    vp.compile_many(programs, target, workers=workers)
    return len(programs) / (time.perf_counter() - began)


def main(target: str = "compute_90", count: str = "64") -> None:
    """Prints the table."""
    drawn = map(program, itertools.count())

    def fresh() -> list[Program]:
        """Programs that nobody has compiled yet."""
        return list(itertools.islice(drawn, int(count)))

    def kept(workers: int, to_bytes: bool = False) -> float:
        sets = [[made.to_bytes() if to_bytes else made for made in fresh()] for _ in range(ROUNDS)]
        return max(rate(given, target, workers) for given in sets)

    programs = fresh()
    print(f"{len(programs)} Programs of {len(programs[0].body)} statements for {target}, {core_count()} processors; Programs a second, and times one process")
    print(f"{'processes':>9s} {'started':>18s} {'kept':>18s} {'kept, bytes':>18s}")
    vp.compile_native(programs[0], target)
    alone = kept(1)
    print(f"{1:9d} {'':18s} {alone:10.1f}   1.00x {kept(1, to_bytes=True):10.1f}", flush=True)
    for workers in sorted({2**k for k in range(1, 10) if 2**k < core_count()} | {max(core_count(), 2)}):
        end_idle()
        figures = (rate(fresh(), target, workers), kept(workers), kept(workers, to_bytes=True))
        print(f"{workers:9d} " + " ".join(f"{found:10.1f} {found / alone:6.2f}x" for found in figures), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
