"""The table of what is counted on a device: one row a figure, read by the counters, the snapshots and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from vyre_py.ir.data_classes import dataclass

__all__ = ["METRICS", "RATIOS", "STORED", "Metric"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure. A counter only grows, until it is reset; a gauge is what something is now.

    `unit` is "count", "bytes", "ns" or "ratio" (0 to 1); `doc` one line for people.
    """

    kind: Literal["counter", "gauge"]
    unit: Literal["count", "bytes", "ns", "ratio"]
    doc: str


def _count(doc: str) -> Metric:
    return Metric("counter", "count", doc)


def _bytes(doc: str) -> Metric:
    return Metric("counter", "bytes", doc)


def _time(doc: str) -> Metric:
    return Metric("counter", "ns", doc)


def _now(doc: str) -> Metric:
    return Metric("gauge", "count", doc)


def _held(doc: str) -> Metric:
    return Metric("gauge", "bytes", doc)


# Name -> what it counts. A kind of device that has no such thing leaves the figure at zero.
METRICS: Final[Mapping[str, Metric]] = {
    # cold and warm
    "compiles": _count("Programs compiled for this device"),
    "memory_cache_hits": _count("compile_native calls answered from memory"),
    "artifact_cache_hits": _count("compilations that found their code in memory"),
    "disk_cache_hits": _count("compile_native calls answered from the disk cache"),
    "disk_cache_misses": _count("looks into the disk cache that found nothing that fits"),
    "binds": _count("binding plans made"),
    # work
    "dispatches": _count("dispatches: host arrays or buffers in, run, wait, results out"),
    "submits": _count("dispatches that gave a pending result"),
    "timeouts": _count("dispatches that ran longer than they were allowed to"),
    "launches": _count("kernels launched, those of sequences included, those of graphs not"),
    "graphs_captured": _count("graphs captured"),
    "graph_launches": _count("kernels that replayed graphs launched"),
    "graph_updates": _count("changes of captured graphs in place"),
    "graph_replays": _count("replays of captured graphs"),
    "elements_launched": _count("invocations that Programs asked for"),
    "threads_scheduled": _count("invocations that ran: those asked for, and those that fill the last workgroups"),
    "threads_occupied": _count("invocations that ran, each times the theoretical occupancy of its launch"),
    "parameter_bytes": _bytes("argument blocks given to launches"),
    "fallbacks": _count("calls that took a slower way than the one meant for them"),
    "overflows": _count("calls that found something bounded full: staging memory, events, streams, a trace"),
    # moving data
    "uploads": _count("copies from the host to the device"),
    "bytes_uploaded": _bytes("copied from the host to the device"),
    "downloads": _count("copies from the device to the host"),
    "bytes_downloaded": _bytes("copied from the device to the host"),
    "copies": _count("copies from device memory to device memory"),
    "bytes_copied": _bytes("copied from device memory to device memory"),
    "fills": _count("fills of device memory"),
    "bytes_filled": _bytes("filled in device memory"),
    # keeping data
    "allocations": _count("device allocations made"),
    "bytes_allocated": _held("device memory that buffers hold"),
    "device_pool_bytes_asked": _bytes("asked of the pool of device memory"),
    "device_pool_hits": _count("requests that the pool of device memory had a block for"),
    "device_pool_misses": _count("requests that the pool of device memory passed on to the driver"),
    "device_pool_cached_bytes": _held("unused device memory that the pool keeps"),
    "device_pool_held_bytes": _held("device memory of the pool in all: cached, and handed out"),
    "graph_memory_used_bytes": _held("device memory that captured graphs allocate themselves and have mapped"),
    "graph_memory_reserved_bytes": _held("device memory that the driver has for what captured graphs allocate themselves, in use or kept"),
    "pinned_pool_bytes_asked": _bytes("asked of the pool of pinned host memory, or of staging buffers"),
    "pinned_pool_hits": _count("requests that the pool of pinned host memory, or of staging buffers had a block for"),
    "pinned_pool_misses": _count("requests that the pool of pinned host memory, or of staging buffers passed on to the driver"),
    "pinned_pool_cached_bytes": _held("unused pinned host memory, or staging buffers, that the pool keeps"),
    "pinned_pool_held_bytes": _held("pinned host memory, or staging buffers, of the pool in all: cached, and handed out"),
    "arenas": _count("arenas laid out for chains of launches"),
    "arena_reuses": _count("arenas that memory of a freed one served"),
    "arena_kept_bytes": _held("device memory of freed arenas that is kept for others"),
    "constants": _now("constant buffers on the device"),
    "constant_hits": _count("constants asked for that were on the device already"),
    "oom_retries": _count("calls of the driver made again after memory was given back"),
    # waiting and time
    "syncs": _count("waits of the host for the device"),
    "waits": _count("waits of one stream for another, which the host does not notice"),
    "timed_dispatches": _count("dispatches that were timed"),
    "timed_with_device": _count("timed dispatches for which the device gave its own time as well"),
    "device_ns": _time("time on the device of timed dispatches"),
    "wall_ns": _time("time on the host, from call to return, of timed dispatches"),
    # what is there now
    "streams": _now("streams made, in use or idle"),
    "streams_idle": _now("idle streams of those"),
    "events": _now("events made, those that take the time included, in use or idle"),
    "events_idle": _now("idle events of those"),
    "graphs": _now("captured graphs alive"),
    "pipelines": _now("pipelines in the memory cache"),
    "occupancy": Metric("gauge", "ratio", "theoretical occupancy of what ran, weighted by invocations: threads_occupied / threads_scheduled"),
}

# Gauge -> the two counters that it is the quotient of: it is worked out, never stored.
RATIOS: Final[Mapping[str, tuple[str, str]]] = {"occupancy": ("threads_occupied", "threads_scheduled")}

# What is added to in place, in the order of its words: all counters, and gauges that are counted up and down.
STORED: Final = tuple(name for name, row in METRICS.items() if row.kind == "counter" or name == "bytes_allocated")
