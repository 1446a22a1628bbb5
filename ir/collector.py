"""Python's cyclic garbage collector, held back while many objects are made at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["YOUNG", "held_back"]

# How many objects more than were freed may be made, by all threads together, before the young ones are looked at.
YOUNG: Final = 200_000


@contextmanager
def held_back() -> Iterator[None]:
    """A block in which the collector scans young objects once for every `YOUNG` of them, instead of every 700. The objects of a reader are no garbage, and
    scanning them again and again takes a third of the time.

    The threshold is raised; the collector is neither disabled nor frozen. Other threads run meanwhile: their garbage is still found, so its amount is
    bounded; and `gc.unfreeze`, which would have to follow a `gc.freeze`, also unfreezes objects of others. A collector that was disabled, or has a higher
    threshold, stays so. No lock is needed, so a fork finds none held. Of several threads in such blocks, the first to leave resets the threshold, which
    costs the others time and nothing else. A threshold that other code sets meanwhile is kept.
    """
    young, *older = gc.get_threshold()
    raised = 0 < young < YOUNG
    if raised:
        gc.set_threshold(YOUNG, *older)
    try:
        yield
    finally:
        if raised and gc.get_threshold()[0] == YOUNG:
            gc.set_threshold(young, *older)
