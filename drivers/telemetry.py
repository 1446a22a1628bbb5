"""Plain counters, always on, read as one snapshot."""

from __future__ import annotations

__all__ = ["COUNTERS", "Telemetry"]

# Name -> what it counts.
COUNTERS: dict[str, str] = {
    "compiles": "Programs compiled for this device",
    "memory_cache_hits": "compile_native calls answered from memory",
    "binds": "binding plans made",
    "launches": "kernels launched",
    "bytes_uploaded": "bytes copied from the host to the device",
    "bytes_downloaded": "bytes copied from the device to the host",
    "syncs": "waits for the device",
    "allocations": "device allocations made",
    "bytes_allocated": "bytes of device memory held now",
}


class Telemetry:
    """One device's counters, as attributes; adding to one is a plain attribute increment."""

    __slots__ = tuple(COUNTERS)

    compiles: int
    memory_cache_hits: int
    binds: int
    launches: int
    bytes_uploaded: int
    bytes_downloaded: int
    syncs: int
    allocations: int
    bytes_allocated: int

    def __init__(self) -> None:
        for name in COUNTERS:
            setattr(self, name, 0)

    def snapshot(self) -> dict[str, int]:
        """All counters now, by name."""
        return {name: getattr(self, name) for name in COUNTERS}
