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
    """Within it the collector looks at young objects every `YOUNG` of them, in place of every 700: of what a reader makes nothing is garbage, and looking at it
    again and again takes a third of the time.

    The threshold is raised, and the collector neither disabled nor frozen. Other threads go on meanwhile: their garbage is still found, so that what waits
    is bounded; and `gc.unfreeze`, which would have to follow a `gc.freeze`, gives back what others froze as well. A collector that was disabled, or is held
    back further, stays so. No lock is needed, and a fork finds none held: of threads in here at the same time the first one's leaving sets the threshold
    back, which costs the others time and nothing else. A threshold that somebody else sets meanwhile is kept.
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
