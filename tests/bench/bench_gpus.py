"""What several GPUs of one machine do together: all_reduce and copies beside PyTorch's, and how a stencil grows with the GPUs.

    python -m tests.bench.bench_gpus [all_reduce] [copies] [scaling]

One process for each GPU, all GPUs that are here, up to eight; figures are those of the first rank. Rates of all_reduce are of the bus, as NCCL's own tests
count: 2 (n - 1) / n times the bytes, for n ranks. A part that fails says so, the others go on, and the exit code is 1.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench.measure import row
from tests.tree import on_path

on_path()

from gpu_jobs import gpu_count  # noqa: E402 - found by `on_path`
from ranks import run_ranks  # noqa: E402 - found by `on_path`

_CELLS = 8192
_MANY = 8


def all_reduce(gpus: int, folder: Path) -> None:
    """all_reduce of three sizes, and the same ten in a graph."""
    found = run_ranks("rate_jobs:all_reduce", gpus, folder, seconds=150)[0]
    for what, times in found.items():
        size_bytes, _, way = what.partition(" ")
        factor = 2 * (gpus - 1) / gpus * int(size_bytes)
        name = f"all_reduce, {gpus} GPUs, {int(size_bytes) >> 10:,} KiB {way}"
        if int(size_bytes) > 1 << 25:
            row(name, factor / times["ours"] / 1e9, "GB/s", factor / times["theirs"] / 1e9, "PyTorch", more_is_better=True)
        else:
            row(name, times["ours"] * 1e6, "us", times["theirs"] * 1e6, "PyTorch")


def copies(gpus: int, folder: Path) -> None:
    """Copies of 1 GiB from one GPU to another."""
    found = run_ranks("rate_jobs:peer_copies", 1, folder, seconds=100)[0]
    one = found["one way"]
    row("copy_peer, 1 GiB", 1.0737 / one["ours"], "GB/s", 1.0737 / one["theirs"], "PyTorch", more_is_better=True)
    row("copy_peer, 1 GiB, no GPU reaches the other", 1.0737 / found["by the driver"]["ours"], "GB/s")


def scaling(gpus: int, folder: Path) -> None:
    """A turn of heat over as many cells for each GPU, on 1, 2, 4 and 8."""
    alone = 0.0
    for count in (1, 2, 4, 8):
        if count <= gpus:
            found = run_ranks("rate_jobs:weak_scaling", count, folder / str(count), seconds=60, cells=_CELLS)
            seconds = max(one["seconds"] for one in found)
            alone = alone or seconds
            row(f"stencil, {_CELLS}^2 cells a GPU, {count} GPUs, a turn", seconds * 1e6, "us", alone * 1e6, "one GPU")


_PARTS: dict[str, Callable[[int, Path], None]] = {"all_reduce": all_reduce, "copies": copies, "scaling": scaling}


def main(*names: str) -> int:
    """Prints the table; gives the exit code."""
    gpus = min(gpu_count(), _MANY)
    if gpus < 2:
        print(f"two GPUs are needed, and {gpus} are here")
        return 1
    failed = 0
    for name in names or _PARTS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                _PARTS[name](gpus, Path(folder))
            except Exception as error:  # noqa: BLE001 - the other parts go on
                print(f"{name} failed: {error}")
                failed = 1
        sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
