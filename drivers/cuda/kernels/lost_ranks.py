"""A watch over a communicator of NCCL's: two threads, since any call of the driver may wait for what never ends.

One, the prober, marks our stream again and again, and notes when a mark has come to its end. It may be stuck in the driver, behind a stream that takes no more
work. The other, the watcher, calls nothing that waits: it looks at that note and at NCCL's own word of the communicator, and ends the communicator.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from vyre_py.drivers.cuda.kernels.collective import NcclCommunicator
from vyre_py.drivers.cuda.launch.waiting import event_is_done
from vyre_py.drivers.errors import DispatchTimeout, DriverError
from vyre_py.drivers.many.rank_watch import RankWatch

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["CudaRankWatch", "Lookout"]

# How often the threads look, in seconds; and how often in a row the watcher has to find a mark late, since a process that was stopped finds all late at first.
_INTERVAL: Final = 0.05
_LATE: Final = 3
# How long kernels may take to end once the communicator was revoked, before it is aborted.
_GRACE: Final = 1.0
# How long after its own users were told a rank ends the communicator. What waits on the other ranks ends with it, as if all were well and with values of no
# worth, so their watches have to find out first.
_AGREED: Final = 1.0


class Lookout:
    """What the threads share. Attributes: `error`, which makes the error by which the communicator was ended; `progress`, when a mark last came to its end."""

    def __init__(self, device: CudaDevice, communicator: NcclCommunicator, timeout: float) -> None:
        self._device, self._communicator, self._timeout = device, communicator, timeout
        self._stop = threading.Event()
        self.error: Callable[[], DriverError] | None = None
        self.progress = time.monotonic()
        self._threads = [threading.Thread(target=work, name=f"vyre-ranks-{device.name}", daemon=True) for work in (self._probe, self._watch)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Ends the watch. Again is quiet."""
        self._stop.set()
        self._device.watches.discard(self)
        self._device.reports.trust(self)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_GRACE)  # no longer: it may be stuck in the driver

    def _probe(self) -> None:
        """Marks the stream until the end. An error counts as progress: it is told to who uses the device."""
        context, doing = self._device.context, f"{self._device.name} cannot be watched"
        while not self._stop.wait(_INTERVAL) and context.usable:
            if context.capture is None:  # nothing is marked in what is captured
                with suppress(DriverError), context.entered(), context.events.borrowed() as event:
                    with context.using(doing):
                        context.ok(context.cuda.cuEventRecord(event, context.stream), doing)
                    while not event_is_done(context, event, doing) and not self._stop.wait(_INTERVAL):
                        pass
            self.progress = time.monotonic()

    def _watch(self) -> None:
        """Looks until the end, or until a rank is lost."""
        late = 0
        while not self._stop.wait(_INTERVAL) and self._device.context.usable:
            late = late + 1 if time.monotonic() - self.progress > self._timeout else 0
            error = self._communicator.told_error() or (self._late if late == _LATE else None)
            if error is not None:
                self.error = error
                self._communicator.refuse()
                self._device.reports.doubt(self, error)  # before anybody stops waiting
                self._stop.wait(_AGREED)
                self._end_communicator()
                return

    def _late(self) -> DispatchTimeout:
        return DispatchTimeout(
            f"nothing that {self._device.name} does with {self._communicator.ranks} ranks has come to its end for {self._timeout} s",
            meaning="a rank was lost, or takes longer than the watch allows; the communicator was ended, and what it had not written is of no value",
            remedy="make a communicator of the ranks that are left, or allow more time",
        )  # fmt: skip

    def _end_communicator(self) -> None:
        """Has kernels that wait for other ranks end: each way in a thread of its own, until the stream goes on."""
        for end in self._communicator.ways_to_end():
            begin = time.monotonic()
            threading.Thread(target=end, name=f"vyre-end-{self._device.name}", daemon=True).start()
            while time.monotonic() < begin + _GRACE and not self._stop.wait(_INTERVAL):
                if self.progress > begin + _INTERVAL:
                    return


class CudaRankWatch(RankWatch):
    """See `watch_ranks`."""

    __slots__ = ("_finalizer", "_watched")

    def __init__(self, device: CudaDevice, communicator: NcclCommunicator, timeout: float) -> None:
        super().__init__(device, timeout)
        self._watched = Lookout(device, communicator, timeout)
        device.watches.add(self._watched)
        self._finalizer = weakref.finalize(self, self._watched.end)

    @property
    def failure(self) -> DriverError | None:
        """See `RankWatch.failure`."""
        return None if self._watched.error is None else self._watched.error()

    def close(self) -> None:
        """Ends the watch; the device can be read again. Close it before the communicator is destroyed."""
        self._finalizer()
