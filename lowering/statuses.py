"""What native code gives in place of a result: the statuses of `vyre.h`, one table for all that runs or plans a launch."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Self

__all__ = ["LAUNCH_STATUSES", "PLAN_STATUSES", "CStatus"]


class CStatus(IntEnum):
    """0, or why nothing ran: -1 to -5 of a launch, the others of arguments that break a rule of binding. What is positive is the device library's own.

    Attribute: `words`, what it says.
    """

    words: str

    def __new__(cls, number: int, words: str) -> Self:
        """A status and its words."""
        made = int.__new__(cls, number)
        made._value_ = number
        made.words = words
        return made

    OK = 0, ""
    LOST = -1, "the device was closed or lost, or this is a child forked from the process that opened it"
    FREED = -2, "a buffer that the launch uses was freed"
    MEMORY = -3, "there is no memory for the scratch space of the kernel"
    BUSY = -4, "a graph is being captured on the device, or the launch is being changed: try again later"
    STREAM = -5, "a stream was given, and the device has none"
    NULL = -16, "a buffer that has elements has no address"
    ALIGNMENT = -17, "a buffer's address is not a multiple of the size of its elements"
    OVERLAP = -18, "a buffer that is written shares bytes with another one"
    SHAPE = -19, "an axis has not the size that the others ask for"
    SIZE = -20, "a size is larger than the code takes, or negative where something is to run, divides by zero, or leaves 64 bits on the way"
    GRID = -21, "the grid is larger than the device takes, or its size cannot be computed"
    CODE = -22, "no code here is for this GPU"


    @property
    def macro(self) -> str:
        """Its name in C."""
        return f"VYRE_{'' if self is CStatus.OK else 'ERROR_'}{self.name}"


# The same in two groups: those of every launch, and those of arguments.
LAUNCH_STATUSES: Final = tuple(status for status in CStatus if status >= CStatus.STREAM)
PLAN_STATUSES: Final = tuple(status for status in CStatus if status <= CStatus.NULL)
