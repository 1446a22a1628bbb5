"""What takes longer than CI may, one stage after the other, and what each found: `make long`.

    python tests/long.py --workers 16        exits with 1 where a stage failed; logs lie under out/long
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tree import ROOT

__all__ = ["Stage", "run_stages"]

_HOURS: Final = str(4 * 3600)


@dataclass(frozen=True)
class Stage:
    """Commands that run together; the last line of each says what it found."""

    title: str
    commands: Sequence[Sequence[str]]
    settings: Mapping[str, str] = field(default_factory=dict)

    def run(self, folder: Path) -> tuple[bool, list[str]]:
        """Whether all succeeded, and what they found, which is in logs in a folder, too."""
        processes, logs = [], []
        for number, command in enumerate(self.commands):
            logs.append(folder / f"{self.title.replace(' ', '_')}_{number}.log")
            with logs[-1].open("wb") as log:
                environment = {**os.environ, **self.settings}
                processes.append(subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT))
        statuses = [process.wait() for process in processes]
        last = [(log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["nothing"])[-1] for log in logs]
        found = [f"{line}  ({log}, exit {status})" if status else line for line, log, status in zip(last, logs, statuses, strict=True)]
        return not any(statuses), found


def stages(workers: int, folder: Path) -> list[Stage]:
    """All that is long."""
    python = sys.executable
    mutants = [python, "tests/mutants", "--folder", str(folder / "mutants"), "--workers", str(workers)]
    generated = [python, "-m", "pytest", "-q", "-n", str(workers), "--dist", "worksteal", "tests/test_generated.py"]
    tiles = [*generated[:-1], "tests/test_generated_tiles.py", "tests/lowering/tiles/test_tile_layouts.py"]
    required = os.environ.get("VYRE_REQUIRE_DEVICES") or "reference,cpu,ptxas"
    settings = {"VYRE_GENERATED": "20000", "VYRE_GENERATED_ARCHS": "5", "VYRE_TEST_SECONDS": _HOURS, "VYRE_REQUIRE_DEVICES": required}
    operators = [python, "tests/interop/torch_ops.py"]
    dtypes = ("float32", "float64", "int64", "bfloat16", "float16", "bool")
    checked = [*operators, "run", *dtypes, "--workers", str(workers), "--out", str(folder / "torch")]
    litmus = [python, "-m", "pytest", "-q", "tests/drivers/test_litmus.py"]
    return [
        Stage("generated Programs", [generated], settings),
        Stage("generated Programs of tiles", [tiles], {**settings, "VYRE_GENERATED": "4000"}),
        Stage("memory of many dispatches", [[python, "-m", "pytest", "-q", "-s", "tests/drivers/test_flat_memory.py"]], {"VYRE_DISPATCHES": "200000"}),
        Stage("litmus Programs", [litmus], {"VYRE_LITMUS_TURNS": "1000000"}),
        Stage("hostile text", [[python, "tests/fuzz/malformed.py", "--part", f"{k + 1}/{workers}"] for k in range(workers)]),
        Stage("the site", [["make", "site"]]),
        Stage("pages of the site, viewed", [[python, "tests/site_views.py"]]),
        Stage("examples explored", [[python, "-m", "pytest", "-q", "tests/explore/test_explored_examples.py"]], {"VYRE_EXPLORED": "all"}),
        Stage("operators of PyTorch", [checked], {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}),
        Stage("operators of PyTorch, the page", [[*operators, "page", str(folder / "torch")]]),
        Stage("models of transformers", [[python, "tests/interop/torch_models.py", "--page"]]),
        Stage("map of the tests", [[*mutants, "map"]]),
        Stage("mutants tried", [[*mutants, "run"]]),
        Stage("mutants", [[*mutants, "show"]]),
    ]


def run_stages(wanted: Sequence[Stage], folder: Path) -> int:
    """Runs each, whatever failed before, and prints what was found; the exit status."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    summary, failed = [], False
    for stage in wanted:
        begin = time.monotonic()
        print(f"{stage.title} ...", flush=True)
        well, found = stage.run(folder)
        failed |= not well
        summary.append(f"{'well' if well else 'FAILED':6}  {stage.title}, {time.monotonic() - begin:.0f} s")
        summary += [f"          {line}" for line in found]
        print("\n".join(found), flush=True)
    print("\n" + "\n".join(summary))
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    place = ROOT / "out" / "long"
    sys.exit(run_stages(stages(given.workers, place), place))
