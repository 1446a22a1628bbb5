"""The suite catches bugs: each of `planted.PLANTS`, planted in a process of its own, is noticed by generated Programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLANTED = Path(__file__).parent / "planted.py"
NAMES = (
    "wrong_mask", "missed_barrier", "dropped_check", "dropped_store_check", "short_loop", "uniform_by_mistake", "merged_loads", "wrong_way",
)  # fmt: skip


def run(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(PLANTED), name], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_bug_is_caught(name: str) -> None:
    done = run(name)
    assert done.returncode != 0
    # By a disagreement or a crash, not because the plant itself is broken.
    assert done.returncode < 0 or "differs at" in done.stderr, done.stderr[-2000:]


def test_without_a_plant_nothing_is_noticed() -> None:
    done = run("none")
    assert done.returncode == 0, done.stderr[-2000:]
