"""Errors of devices, told apart by what the caller does next.

    VyreError
    +- DriverError           fields: status, meaning, cause, remedy
       +- DeviceUnavailable  not here: install or choose another
       +- OutOfMemory        free something, or ask for less
       +- BindingError       the arguments do not fit the Program: `.problems` lists all of them
       +- LaunchError        the launch itself was refused or failed
       +- KernelAssertion    an assert of the Program failed while it ran
       +- DispatchTimeout    it ran longer than allowed
       +- DeviceLost         the device is gone for this process
       +- CacheError         the disk cache is asked for something that it can't do; reading and writing entries never raise it
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import Place, VyreError
from vyre_py.ir.public import public

__all__ = [
    "BindingError", "CacheError", "DeviceLost", "DeviceUnavailable", "DispatchTimeout", "DriverError", "KernelAssertion", "LaunchError", "OutOfMemory",
    "Status",
]


@public
class DriverError(VyreError):
    """A device, or a call to it, failed. `status` is the device's own name for what happened, `meaning` what that says, `cause` the
    likely reason, `remedy` what to do; each may be empty."""

    def __init__(self, message: str, *, status: str = "", meaning: str = "", cause: str = "", remedy: str = "") -> None:
        self.status, self.meaning, self.cause, self.remedy = status, meaning, cause, remedy
        lines = [f"{message}: {status}" if status else message]
        lines += [f"  {label}: {text}" for label, text in (("meaning", meaning), ("likely cause", cause), ("help", remedy)) if text]
        super().__init__("\n".join(lines))


@public
class DeviceUnavailable(DriverError):
    """The device, or the package that drives it, is not here."""


@public
class OutOfMemory(DriverError):
    """An allocation could not be had; nothing was allocated.

    Where the device says so, in bytes: `asked` for, `free` on the device, `held` by this device object (in use, and kept for reuse), and
    `limit` of all; None elsewhere.
    """

    asked: int | None = None
    free: int | None = None
    held: int | None = None
    limit: int | None = None

    def __init__(
        self, message: str, *, status: str = "", meaning: str = "", cause: str = "", remedy: str = "",
        asked: int | None = None, free: int | None = None, held: int | None = None, limit: int | None = None,
    ) -> None:  # fmt: skip
        figures = {"asked": asked, "free": free, "held": held, "limit": limit}
        known = {name: value for name, value in figures.items() if value is not None}
        said = ", ".join(f"{name} {value:,}" for name, value in known.items())
        text = f"{meaning}; in bytes: {said}" if meaning and said else meaning or said
        super().__init__(message, status=status, meaning=text, cause=cause, remedy=remedy)
        vars(self).update(known)


@public
class BindingError(DriverError):
    """The arguments do not fit; nothing was run. `problems` holds every mismatch; `what` names the Program, or the call."""

    def __init__(self, what: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"the arguments do not fit {what!r}:\n" + "\n".join(f"  - {p}" for p in self.problems))


@public
class LaunchError(DriverError):
    """The device refused or failed the launch."""


@public
class KernelAssertion(DriverError):
    """An assert of a Program failed while it ran; the launch went on to its end. A wait for the launch raises it once.

    Attributes: `message` with the values in it; `values`, those of a vector as a tuple; `global_id`, `workgroup_id` and `local_id` of the invocation, along
    x, y and z; `where`, the place of the assert (file, line and column), "" where that is not known. `others` is how many launches before the same wait
    had failed asserts besides.
    """

    def __init__(
        self, name: str, device: str, message: str, values: tuple[Any, ...], global_id: tuple[int, int, int], workgroup_id: tuple[int, int, int],
        local_id: tuple[int, int, int], place: Place | None, others: int = 0,
    ) -> None:  # fmt: skip
        self.message, self.values, self.others = message, values, others
        self.global_id, self.workgroup_id, self.local_id = global_id, workgroup_id, local_id
        self.where = "" if place is None else str(place)
        said = [f"{what} {ids}" for what, ids in (("global_id", global_id), ("workgroup_id", workgroup_id), ("local_id", local_id))]
        more = f"; so did asserts of {others} other launches" if others else ""
        lines = [] if place is None else [f"  {place}", *place.excerpt()]
        text = f"an assert of {name!r} failed on {device}" + (f": {message}" if message else "")
        super().__init__("\n".join([text, *lines]), meaning=f"it failed in the invocation {', '.join(said)}{more}; the launch went on to its end")


@public
class DispatchTimeout(DriverError, TimeoutError):
    """The work ran longer than it was allowed to, or a result is not there in time. It is a TimeoutError, as futures raise."""


@public
class DeviceLost(DriverError):
    """The device is unusable in this process; the first cause is in the message of every later call."""


@public
class CacheError(DriverError):
    """A setting of the disk cache that makes no sense, a bundle that is not whole, or a directory that cannot be listed."""


@dataclass(frozen=True, slots=True)
class Status:
    """A row of a device kind's table of statuses: the class of error that the caller can branch on, and three sentences for people."""

    error: type[DriverError]
    meaning: str
    cause: str
    remedy: str

    def failure(self, doing: str, status: str, otherwise: type[DriverError]) -> DriverError:
        """The error for what was tried; of class `otherwise` where the row itself does not tell what the caller should do."""
        kind = otherwise if self.error is DriverError else self.error
        return kind(doing, status=status, meaning=self.meaning, cause=self.cause, remedy=self.remedy)
