"""Litmus Programs on devices: what the order of memory forbids is never seen, and what relaxed atomics leave open is.

`VYRE_LITMUS_TURNS=1000000` takes each so many turns; there are few without it.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
import pytest
from device_kinds import open_device
from litmus import KEPT, RELAXED, arguments, broken, litmus

from vyre_py import CompileOptions, DispatchConfig, RaceError
from vyre_py.drivers.cores import core_count

_TURNS: Final = int(os.environ.get("VYRE_LITMUS_TURNS", "20000"))
# What nothing forbids need not be seen, on a busy machine least of all.
_LONG: Final = pytest.mark.skipif("VYRE_LITMUS_TURNS" not in os.environ, reason="VYRE_LITMUS_TURNS=1000000 looks for what nothing forbids")
# How many pairs of workgroups run at once. On the CPU an interruptible launch runs workgroups in threads, however few there are.
_PAIRS: Final = {"cpu": 1, "cuda": 64}
_LOOKS: Final = 20_000
_ROUNDS: Final = 50


def _found(kind: str, name: str) -> dict[str, Any]:
    pipeline = open_device(kind).compile_native(litmus(name), CompileOptions(interruptible=True))
    return pipeline.dispatch(arguments(_PAIRS[kind], -(-_TURNS // _PAIRS[kind]), _LOOKS))


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("kind", _PAIRS)
def test_what_an_order_forbids_is_never_seen(kind: str, name: str) -> None:
    found = _found(kind, name)
    assert broken(name, found) == 0
    assert found["met"].min() == 2 and (found["first"] + found["second"]).max() > 0


def _is_broken(kind: str, name: str) -> bool:
    """Whether some turn of some round sees what an order would forbid: how often two threads really meet depends on what else the machine does."""
    return any(broken(name, _found(kind, name)) for _ in range(_ROUNDS))


@_LONG
@pytest.mark.skipif(core_count() < 2, reason="one core runs one thread after another")
def test_without_a_fence_stores_are_buffered_on_the_cpu() -> None:
    assert _is_broken("cpu", "store buffering, relaxed")


@_LONG
def test_without_an_order_a_gpu_reorders() -> None:
    """An H200 was seen to pass messages in another order, and not to buffer stores where the CPU does."""
    assert _is_broken("cuda", "message passing, relaxed")


@pytest.mark.parametrize("name", [*KEPT, *RELAXED])
def test_the_interpreter_knows_which_of_them_race(name: str) -> None:
    pipeline, given = open_device("reference").compile_native(litmus(name)), arguments(2, 3, 4)
    if name == "message passing, relaxed":
        with pytest.raises(RaceError, match=r"R101 x\[0, 0\]"):
            pipeline.dispatch(given, config=DispatchConfig(races=True))
        return
    found = pipeline.dispatch(given, config=DispatchConfig(races=True))
    assert broken(name, found) == 0 and np.all(found["met"] == 2)
