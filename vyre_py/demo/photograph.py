"""Runs the photograph's Programs on one device, keeping everything resident, and reports what ran where and how long it took."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from vyre_py.demo import programs
from vyre_py.drivers.device import Device
from vyre_py.drivers.observe.snapshot import Snapshot
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.types import f32, u8, u32

__all__ = ["Report", "Step", "process"]

Picture = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the table: what ran, the grid in workgroups, checks kept and removed, milliseconds to compile and to run."""

    name: str
    grid: tuple[int, ...]
    checks_kept: int
    checks_removed: int
    compile_ms: float
    run_ms: float


@dataclass(frozen=True, slots=True)
class Report:
    """The finished picture, its SHA-256, and the table."""

    device: str
    description: str
    picture: Picture
    steps: tuple[Step, ...]
    telemetry: Snapshot

    @property
    def digest(self) -> str:
        """SHA-256 of the finished pixels."""
        return hashlib.sha256(self.picture.tobytes()).hexdigest()

    def table(self) -> str:
        """The report as text."""
        lines = [f"{'step':12s} {'where':14s} {'workgroups':>12s} {'checks':>14s} {'compile ms':>11s} {'run ms':>9s}"]
        for s in self.steps:
            grid = "x".join(map(str, s.grid)) or "-"
            checks = f"{s.checks_removed} of {s.checks_removed + s.checks_kept}" if s.grid else "-"
            lines.append(f"{s.name:12s} {self.device:14s} {grid:>12s} {checks:>14s} {s.compile_ms:11.2f} {s.run_ms:9.3f}")
        counted = ", ".join(f"{name.replace('_', ' ')} {round(value, 3):,}" for name, value in self.telemetry.items() if value)
        return "\n".join([*lines, "(checks: bounds checks proven unnecessary, of all)", f"telemetry: {counted}"])


def process(device: Device, picture: Picture, progress: Callable[[str], None] = lambda name: None) -> Report:
    """Equalises and sharpens u8[height, width, 3]. Raises what the device raises; `progress` hears the name of each step."""
    height, width, _ = picture.shape
    before = device.telemetry.snapshot()
    steps: list[Step] = []
    progress("upload")
    start = time.perf_counter()
    source = device.upload(picture)
    bins, curve = device.allocate(programs.BINS, u32), device.allocate(programs.BINS, f32)
    toned, result = device.allocate((height, width, 3), u8), device.allocate((height, width, 3), u8)
    blurred = device.allocate((height, width, 3), f32)
    device.synchronize()
    steps.append(Step("upload", (), 0, 0, 0.0, (time.perf_counter() - start) * 1e3))
    work: list[tuple[Callable[[], Any], dict[str, Any]]] = [
        (programs.histogram, {"picture": source, "bins": bins}),
        (programs.tone_curve, {"bins": bins, "curve": curve}),
        (programs.equalise, {"picture": source, "curve": curve, "amount": 0.7, "out": toned}),
        (programs.blur, {"picture": toned, "blurred": blurred}),
        (programs.sharpen, {"picture": toned, "blurred": blurred, "amount": 0.9, "threshold": 1.5, "out": result}),
    ]
    for make, arguments in work:
        progress(make.__name__)
        started = time.perf_counter()
        pipeline = device.compile_native(make())
        launch = pipeline.bind(arguments)
        compiled = time.perf_counter()
        launch()
        device.synchronize()
        done = time.perf_counter()
        kept, removed = (pipeline.report.get(f"checks_{what}", 0) for what in ("kept", "removed"))
        steps.append(Step(make.__name__, launch.plan.grid, kept, removed, (compiled - started) * 1e3, (done - compiled) * 1e3))
    progress("download")
    start = time.perf_counter()
    finished = result.read()
    steps.append(Step("download", (), 0, 0, 0.0, (time.perf_counter() - start) * 1e3))
    after = device.telemetry.snapshot()
    for buffer in (source, bins, curve, toned, result, blurred):
        buffer.free()
    return Report(device.name, device.description, finished, tuple(steps), after - before)
