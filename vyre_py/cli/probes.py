"""Probes of what may crash or hang: libraries, drivers and devices. Each runs in a process of its own, which `doctor` starts.

    python -m vyre_py.cli.probes cuda

It prints one line of JSON, a list of findings. An error that a probe raises is a finding too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from vyre_py.drivers.errors import DeviceUnavailable, DriverError
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import VyreError
from vyre_py.lowering.errors import Unsupported

__all__ = ["MARK", "PROBES", "Finding", "isolated"]

MARK: Final = "vyre-py findings: "  # what the line begins with, since libraries may print as well


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of doctor's report. `status` is "ok", "missing" (not installed, and not needed by everybody) or "failed"; `help` says how to get it."""

    group: str
    name: str
    status: str
    detail: str
    help: str = ""


def isolated(group: str, name: str, look: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """What a look finds, and what it raises as a finding behind that."""
    found: list[Finding] = []
    try:
        found += look()
    except (DeviceUnavailable, Unsupported) as error:
        lines = str(error).splitlines()
        remedy = error.remedy if isinstance(error, DriverError) else "; ".join(item.help for item in error.items if item.help)
        found.append(Finding(group, name, "missing", " ".join(line.strip() for line in lines if not line.startswith("  help:")), remedy))
    except Exception as error:  # noqa: BLE001 - the report must not end at the first broken library
        found.append(Finding(group, name, "failed", f"{'' if isinstance(error, VyreError) else type(error).__name__ + ': '}{error}"))
    return found


def _llvm() -> Iterator[Finding]:
    """Compiles a Program to PTX, so that the version is that of an LLVM which works."""
    from vyre_py.drivers.selftest import program
    from vyre_py.lowering.compile import emit_text
    from vyre_py.lowering.llvm.gpu import nvptx

    lines = emit_text(program(), "compute_90").count("\n")
    yield Finding("compilers", "LLVM", "ok", f"{nvptx.version()}, inside llvmlite: PTX and host code ({lines} lines of PTX for a small Program)")


def _nvvm() -> Iterator[Finding]:
    from vyre_py.lowering.llvm.gpu.nvvm import libnvvm

    yield Finding("compilers", "libNVVM", "ok", f"{libnvvm.version()}: option codegen='nvvm'")


def _nvjitlink() -> Iterator[Finding]:
    from vyre_py.lowering.llvm.gpu.machine_code import nvjitlink

    yield Finding("compilers", "nvJitLink", "ok", f"{nvjitlink.version()}: machine code ahead of time, targets sm_90 and their like")


def _devices(kind: str) -> Callable[[], Iterator[Finding]]:
    """Opens each device of a kind and has it compute something whose result is known."""
    def look() -> Iterator[Finding]:
        from importlib import import_module

        from vyre_py.drivers.registry import device
        from vyre_py.drivers.selftest import require_right

        for ordinal in range(import_module(f"vyre_py.drivers.{kind}").count()):
            found = device(f"{kind}:{ordinal}")
            require_right(found)
            software = ", in software: taken by name only" if found.is_software else ""
            yield Finding("devices", found.name, "ok", f"{found.description}; self test right{software}")

    return look


# Name of a probe -> the group and the name of what it finds, and the look itself.
PROBES: Final[Mapping[str, tuple[str, str, Callable[[], Iterator[Finding]]]]] = {
    "llvm": ("compilers", "LLVM", _llvm),
    "nvvm": ("compilers", "libNVVM", _nvvm),
    "nvjitlink": ("compilers", "nvJitLink", _nvjitlink),
    **{kind: ("devices", kind, _devices(kind)) for kind in ("cuda", "wgpu", "cpu", "reference")},
}


def _main(name: str) -> None:
    found: list[dict[str, Any]] = [asdict(finding) for finding in isolated(*PROBES[name])]
    sys.stdout.write(f"\n{MARK}{json.dumps(found)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main(sys.argv[1])
