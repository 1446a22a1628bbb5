"""The command `doctor`: what is here, what is missing and how to get it, and whether each device computes what it should."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic
from typing import Final

import vyre_py
from vyre_py.cli.output import say, say_json, size_text
from vyre_py.cli.probes import MARK, PROBES, Finding, isolated
from vyre_py.drivers.observe.progress import Progress
from vyre_py.ir.extras import extra

__all__ = ["doctor", "examine"]

# Package -> the extra that brings it and what it is for; those without an extra come with vyre-py itself.
_PACKAGES: Final[Mapping[str, tuple[str, str]]] = {
    "numpy": ("", "arrays, and the interpreter"),
    "llvmlite": ("", "PTX and host code"),
    "ml-dtypes": ("", "bf16, f8e4m3 and f8e5m2 in arrays"),
    "pydantic": ("", "settings"),
    "platformdirs": ("", "where the cache lies"),
    "cuda-bindings": ("cuda", "NVIDIA GPUs"),
    "wgpu": ("wgpu", "WebGPU"),
    "nvmath-python": ("gemm", "products of matrices by cuBLASLt"),
    "pillow": ("demo", "the demo's pictures"),
    "matplotlib": ("plot", "rooflines of bench"),
    "scipy": ("ops", "Sobol's direction numbers"),
    "nvtx": ("trace", "NVTX ranges"),
}
_NEEDED: Final = ("reference:0", "cpu:0")
_COLOURS: Final = {"ok": "green", "missing": "yellow", "failed": "red"}
_TAIL: Final = 400  # characters of what a process said last


# ---------------------------------------------------------------- in this process


def _host() -> Iterator[Finding]:
    yield Finding("system", "Python", "ok", f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}")
    yield Finding("system", "system", "ok", f"{platform.platform()}, {os.cpu_count()} cores")
    yield Finding("system", "vyre-py", "ok", f"{vyre_py.__version__}, {Path(vyre_py.__file__).parent}")


def _packages() -> Iterator[Finding]:
    for name, (wanted, use) in _PACKAGES.items():
        try:
            yield Finding("packages", name, "ok", f"{version(name)}: {use}")
        except PackageNotFoundError:
            yield Finding("packages", name, "missing" if wanted else "failed", f"not installed: {use}", extra(wanted) if wanted else f"pip install {name}")


def _tools() -> Iterator[Finding]:
    """Nothing that runs a Program needs one."""
    from vyre_py.lowering.llvm.gpu.machine_code.disassemble import find_nvdisasm

    use = "vyre-py lower --emit sass"
    found = find_nvdisasm()
    if found is not None:
        yield Finding("compilers", "nvdisasm", "ok", f"{found}: {use}")
    else:
        yield Finding("compilers", "nvdisasm", "missing", f"not found: {use}", "pip install nvidia-cuda-nvdisasm, or have a CUDA toolkit on the path")


def _cache() -> Iterator[Finding]:
    from vyre_py.drivers.cache.disk import DiskCache

    cache = DiskCache.open_default()
    if cache.limit_bytes == 0:
        yield Finding("cache", "disk cache", "ok", "turned off by VYRE_CACHE_LIMIT=0")
        return
    if cache.trouble:
        where = "" if cache.path is None else f"{cache.path}: "
        yield Finding("cache", "disk cache", "failed", f"{where}not used, {cache.trouble}", "VYRE_CACHE_DIR names another directory")
        return
    stats = cache.stats()
    yield Finding("cache", "disk cache", "ok", f"{stats.path}: {stats.entries} entries, {size_text(stats.size_bytes)} of {size_text(stats.limit_bytes)}")


def _settings() -> Iterator[Finding]:
    from vyre_py.settings import Settings, SettingsError, unknown_variables

    for sentence in unknown_variables():
        yield Finding("settings", "environment", "failed", sentence, "unset it")
    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        for problem in error.problems:
            yield Finding("settings", "environment", "failed", problem, "set it to something else, or unset it")
        return
    for variable, field, meaning in Settings.rows():
        if field in settings.model_fields_set:
            yield Finding("settings", variable, "ok", f"{getattr(settings, field)}: {meaning}")


_HERE: Final[tuple[tuple[str, str, Callable[[], Iterator[Finding]]], ...]] = (
    ("system", "system", _host), ("packages", "packages", _packages), ("compilers", "tools", _tools), ("cache", "disk cache", _cache),
    ("settings", "environment", _settings),
)  # fmt: skip


# ---------------------------------------------------------------- in processes of their own


def _command(name: str) -> list[str]:
    return [sys.executable, "-P", "-m", "vyre_py.cli.probes", name]


def _start(name: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([entry or str(Path.cwd()) for entry in sys.path])
    return subprocess.Popen(  # noqa: S603 - the command is our own
        _command(name), env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
    )  # fmt: skip


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a process and what it started; one that a driver holds on to is left behind."""
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    with suppress(subprocess.TimeoutExpired, ValueError):
        process.communicate(timeout=1)


def _heard(process: subprocess.Popen[str], group: str, name: str, timeout: float) -> list[Finding]:
    """What a probe says, or what became of it."""
    try:
        out, err = process.communicate(timeout=max(timeout, 0.1))
    except subprocess.TimeoutExpired:
        _end(process)
        return [Finding(group, name, "failed", "it did not answer in time, and was ended", "look at the driver; vyre-py doctor --timeout 300 waits longer")]
    line = next((line for line in reversed(out.splitlines()) if line.startswith(MARK)), None)
    if line is not None:
        try:
            return [Finding(**row) for row in json.loads(line.removeprefix(MARK))]
        except (ValueError, TypeError):
            return [Finding(group, name, "failed", "the process that looked at it gave an invalid finding")]
    ended = f"signal {-process.returncode}" if process.returncode < 0 else f"status {process.returncode}"
    said = err.strip()[-_TAIL:]
    return [Finding(group, name, "failed", f"the process that looked at it ended with {ended}" + (f": {said}" if said else ""), "look at the driver")]


def _elsewhere(timeout: float, progress: Progress) -> list[Finding]:
    """What the probes find, started together, since most of the time goes into loading libraries."""
    running = {}
    found: list[Finding] = []
    try:
        for name, (group, what, _) in PROBES.items():
            try:
                running[name] = _start(name)
            except OSError as error:
                found.append(Finding(group, what, "failed", f"no process could be started: {error.strerror or error}"))
        deadline = monotonic() + timeout
        for number, (name, process) in enumerate(running.items()):
            progress(number, len(running), name)
            group, what, _ = PROBES[name]
            found += _heard(process, group, what, deadline - monotonic())
    finally:
        for process in running.values():
            if process.poll() is None:
                _end(process)
    return found


def examine(timeout: float, progress: Progress) -> list[Finding]:
    """Everything that doctor reports, in groups."""
    found = [finding for row in _HERE for finding in isolated(*row)] + _elsewhere(timeout, progress)
    groups = list(dict.fromkeys(finding.group for finding in found))
    return sorted(found, key=lambda finding: groups.index(finding.group))


def doctor(arguments: argparse.Namespace) -> int:
    """Reports; status 0 when the devices that need nothing else work."""
    with Progress("doctor") as progress:
        found = examine(arguments.timeout, progress)
    right = {finding.name for finding in found if finding.group == "devices" and finding.status == "ok"}
    ok = right.issuperset(_NEEDED)
    if arguments.json:
        say_json({"ok": ok, "findings": [asdict(finding) for finding in found]})
        return int(not ok)
    group = ""
    for finding in found:
        if finding.group != group:
            group = finding.group
            say(f"{group}:")
        detail = finding.detail.replace("\n", " ")
        say(f" {finding.name:14s} {detail}", lead=f"  {finding.status:7s}", colour=_COLOURS[finding.status])
        if finding.help and finding.status != "ok":
            say(f"{'':25s}{finding.help}")
    say("vyre-py works here" if ok else f"vyre-py does not work here: {' and '.join(name for name in _NEEDED if name not in right)} failed")
    return int(not ok)
