"""Every figure that was promised for NVIDIA GPUs, beside the peers' in one run: medians, ratios, and whether the promise was kept.

    python -m tests.bench.cuda [--json FILE] [--only TEXT] [--device cuda:N] [--dry]

Peers that are not installed are left out, and named at the end. A row that fails prints its error, the others go on, and the exit code is 1; a promise
that was missed is said so and changes no exit code, since a busy machine misses some. `--dry` runs every row over a stand-in for the driver.

This folder has no `__init__.py`: beside the scripts of the folder above it would hide NVIDIA's package of the same name, which has none either, so that
Python takes both for parts of one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import vyre_py as vp
from tests.bench.cuda.dry import dry_device
from tests.bench.cuda.peers import forbid
from tests.bench.cuda.rows_attention import ATTENTION_ROWS
from tests.bench.cuda.rows_data import DATA_ROWS
from tests.bench.cuda.rows_elementwise import ELEMENTWISE_ROWS
from tests.bench.cuda.rows_launch import LAUNCH_ROWS
from tests.bench.cuda.rows_ops import OPS_ROWS
from tests.bench.cuda.rows_reductions import REDUCTION_ROWS
from tests.bench.cuda.rows_scans import SCAN_ROWS
from tests.bench.cuda.rows_tiles import TILE_ROWS
from tests.bench.cuda.rows_work import WORK_ROWS
from tests.bench.cuda.table import Bench, Result, Results, Row
from vyre_py.drivers.cuda.device import CudaDevice

ROWS: tuple[Row, ...] = (*LAUNCH_ROWS, *DATA_ROWS, *WORK_ROWS, *ELEMENTWISE_ROWS, *REDUCTION_ROWS, *SCAN_ROWS, *OPS_ROWS, *TILE_ROWS, *ATTENTION_ROWS)
_PACKAGES = ("llvmlite", "cuda-bindings", "cuda-core", "numpy", "torch", "cupy-cuda13x", "cupy-cuda12x")


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _open(name: str, dry: bool) -> CudaDevice:
    """The device. Raises SystemExit where it is not here, or of another kind."""
    if dry:
        forbid("a dry run has nothing to give to other libraries")
        return dry_device()
    try:
        device = vp.device(name)
    except vp.DeviceUnavailable as error:
        raise SystemExit(str(error)) from None
    if not isinstance(device, CudaDevice):
        raise SystemExit(f"{device.name} is not an NVIDIA GPU: the rows are about cuda devices (--dry runs them without one)")
    return device


def _write(path: Path, bench: Bench, results: Sequence[Result], seconds: dict[str, float]) -> None:
    report: dict[str, Any] = {
        "device": bench.device.description, "versions": _versions(), "dry": bench.dry, "rows": [result.as_json() for result in results],
        "absent": bench.absent, "seconds": seconds,
    }  # fmt: skip
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Prints the table; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cuda", description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name holds this text")
    parser.add_argument("--device", default="cuda", metavar="NAME", help="which GPU (cuda)")
    parser.add_argument("--dry", action="store_true", help="over a stand-in for the driver: figures mean nothing")
    given = parser.parse_args()
    begin = time.perf_counter()
    bench = Bench(_open(given.device, given.dry), given.dry)
    print(bench.device.description, *(f"{name} {number}" for name, number in _versions().items()), sep="; ", flush=True)
    results = Results(bench)
    made: list[Result] = []
    for row in ROWS:
        if given.only in row.what:
            made.append(results.of(row))
            print(made[-1], flush=True)
            if given.json is not None:
                _write(given.json, bench, made, results.seconds)  # each time: a run that is cut short leaves what it has
    for why, names in bench.absent.items():
        print(f"left out: {', '.join(dict.fromkeys(names))}: {why}")
    missed = [f"{result.row.what} ({result.row.promise} {result.row.peer})" for result in made if result.kept is False]
    kept, failed = sum(result.kept is True for result in made), sum(bool(result.error) for result in made)
    print(f"{kept} promises kept, {len(missed)} missed, {failed} rows failed, in {time.perf_counter() - begin:.0f} s")
    for name in missed:
        print(f"missed: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
