"""The processes that jobs of several ranks run in: results, failures, ranks that hang and ranks that are killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from ranks import Rank, RankFailure, run_ranks


def add(rank: Rank) -> dict[str, Any]:
    """Adds what all ranks tell."""
    rank.tell(f"mine-{rank.number}", str(rank.options["base"] + rank.number))
    rank.meet("told")
    return {"sum": sum(int(rank.hear(f"mine-{other}")) for other in range(rank.count)), "kept": os.environ["KEPT"]}


def fail(rank: Rank) -> None:
    """One fails, the others wait."""
    if rank.number == 1:
        raise ValueError("of this rank")
    time.sleep(60)


def hang(rank: Rank) -> None:
    """One never ends."""
    if rank.number == 1:
        time.sleep(60)


def die(rank: Rank) -> int:
    """The last is killed."""
    if rank.number == rank.count - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return rank.number


def test_results_come_in_order(tmp_path: Path) -> None:
    assert run_ranks("test_ranks:add", 3, tmp_path, seconds=60, environment={"KEPT": "yes"}, base=10) == [{"sum": 33, "kept": "yes"}] * 3


def test_a_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(RankFailure, match=r"(?s)rank 0: killed, since it was late.*rank 1: exit status 1.*ValueError: of this rank"):
        run_ranks("test_ranks:fail", 2, tmp_path, seconds=50)
    assert time.monotonic() - begin < 30


def test_a_rank_that_hangs_says_where(tmp_path: Path) -> None:
    with pytest.raises(RankFailure, match=r"(?s)rank 0: exit status 0.*rank 1: killed, since it was late.*in hang"):
        run_ranks("test_ranks:hang", 2, tmp_path, seconds=5)


def test_a_rank_that_is_to_be_killed(tmp_path: Path) -> None:
    assert run_ranks("test_ranks:die", 3, tmp_path, seconds=60, killed=(2,)) == [0, 1, None]
    with pytest.raises(RankFailure, match="rank 2: exit status -9"):
        run_ranks("test_ranks:die", 3, tmp_path / "again", seconds=60)
    with pytest.raises(RankFailure, match="rank 1: exit status 0"):
        run_ranks("test_ranks:die", 3, tmp_path / "other", seconds=60, killed=(1, 2))
