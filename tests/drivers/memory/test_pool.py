"""The size-class pool: no block is given out twice, the cap holds, counts add up."""

from __future__ import annotations

import random
import threading
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vyre_py.drivers.errors import DriverError
from vyre_py.drivers.memory.pool import GRAIN_BYTES, HUGE_BYTES, SizePool, bytes_from, class_bytes


@given(st.integers(1, 1 << 40))
def test_classes_hold_their_requests_and_waste_little(size: int) -> None:
    held = class_bytes(size)
    assert held >= size and class_bytes(held) == held
    assert held == GRAIN_BYTES or held - size <= max(size // 8, 1)


def test_classes_are_eight_steps_from_one_power_of_two_to_the_next() -> None:
    assert [class_bytes(n) for n in (1, 512, 513, 576, 577, 1000, 1024, 1025)] == [512, 512, 576, 576, 640, 1024, 1024, 1152]
    assert len({class_bytes(n) for n in range(4097, 8193)}) == 8
    assert class_bytes(HUGE_BYTES) == HUGE_BYTES and class_bytes(HUGE_BYTES + 1) == HUGE_BYTES + (2 << 20)
    sizes = sorted({class_bytes(n) for n in range(1, 1 << 16)})
    assert all(class_bytes(low + 1) == high for low, high in pairwise(sizes))


class Owner:
    """Makes blocks, remembers which are out, and fails when one is handed out twice, or dropped while it is out."""

    def __init__(self, keep: int) -> None:
        self.pool: SizePool[int] = SizePool(keep, self.drop)
        self.made = 0
        self.out: dict[int, int] = {}
        self.dropped: set[int] = set()

    def take(self, size: int) -> int:
        size = class_bytes(size)
        block = self.pool.take(size)
        if block is None:
            self.made += 1
            block = self.made
        assert block not in self.out and block not in self.dropped
        self.out[block] = size
        return block

    def give(self, block: int) -> None:
        self.pool.give(block, self.out.pop(block))

    def drop(self, block: int, size: int) -> None:
        assert block not in self.out and block not in self.dropped
        self.dropped.add(block)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 20_000),
    st.lists(
        st.one_of(st.tuples(st.just("take"), st.integers(1, 9000)), st.tuples(st.sampled_from(["give", "shrink", "keep"]), st.integers(0, 20_000))),
        max_size=80,
    ),
)
def test_blocks_are_out_once_and_the_cap_holds(keep: int, actions: list[tuple[str, int]]) -> None:
    owner = Owner(keep)
    for what, number in actions:
        if what == "take":
            owner.take(number)
        elif what == "give" and owner.out:
            owner.give(sorted(owner.out)[number % len(owner.out)])
        elif what == "shrink":
            owner.pool.shrink(number)
            assert owner.pool.cached_bytes <= number
        elif what == "keep":
            owner.pool.keep_bytes = number
            owner.pool.shrink(number)
        assert owner.pool.cached_bytes <= owner.pool.keep_bytes
    waiting = owner.made - len(owner.out) - len(owner.dropped)
    blocks = owner.pool.drain()
    assert len(set(blocks)) == len(blocks) == waiting and owner.pool.cached_bytes == 0


def test_what_is_given_now_stays_and_other_classes_make_room() -> None:
    owner = Owner(4096)
    first = [owner.take(512) for _ in range(8)]
    for block in first:
        owner.give(block)
    large = owner.take(2048)
    owner.give(large)
    assert owner.pool.cached_bytes == 4096 and len(owner.dropped) == 4
    assert owner.take(2048) == large
    huge = owner.take(8192)
    owner.give(huge)
    assert huge in owner.dropped and owner.pool.cached_bytes == 2048


def test_a_finaliser_within_a_drop_may_give() -> None:
    pool: SizePool[int]
    gone: list[int] = []

    def drop(block: int, size: int) -> None:
        gone.append(block)
        if block == 1:
            pool.give(99, 512)

    pool = SizePool(1024, drop)
    pool.give(0, 512)
    pool.give(1, 512)
    pool.give(2, 1024)
    assert pool.cached_bytes <= 1024 and sorted([*gone, *pool.drain()]) == [0, 1, 2, 99]


def test_threads() -> None:
    owner = Owner(64 << 10)
    taken: list[set[int]] = []

    def work(seed: int) -> None:
        rng, mine = random.Random(seed), []
        for _ in range(3000):
            if mine and rng.random() < 0.5:
                owner.give(mine.pop(rng.randrange(len(mine))))
            else:
                size = class_bytes(rng.randint(1, 4000))
                block = owner.pool.take(size)
                if block is None:
                    block = seed * 1_000_000 + rng.randrange(1 << 60)
                assert block not in owner.out
                owner.out[block] = size
                mine.append(block)
        taken.append(set(mine))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 4 and not any(a & b for a in taken for b in taken if a is not b)
    cached = owner.pool.cached_bytes
    assert 0 <= cached <= 64 << 10
    owner.pool.shrink()
    assert owner.pool.cached_bytes == 0


def test_settings_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VYRE_DEVICE_POOL_BYTES", raising=False)
    assert bytes_from("VYRE_DEVICE_POOL_BYTES", 7) == 7
    monkeypatch.setenv("VYRE_DEVICE_POOL_BYTES", " 1024 ")
    assert bytes_from("VYRE_DEVICE_POOL_BYTES", 7) == 1024
    for wrong in ("1 MiB", "-1", "0x10", "\u0663"):
        monkeypatch.setenv("VYRE_DEVICE_POOL_BYTES", wrong)
        with pytest.raises(DriverError, match=r"VYRE_DEVICE_POOL_BYTES=.* is not a number of bytes"):
            bytes_from("VYRE_DEVICE_POOL_BYTES", 7)
