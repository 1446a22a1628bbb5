"""Kinds of machines, for which ready Programs of products have shapes of tiles that are fast there."""

from __future__ import annotations

from typing import Any, Final

from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.llvm.gpu.architectures import generation
from vyre_py.lowering.target import Target, parse_target
from vyre_py.ops.checks import refuse

__all__ = ["ANY", "CPU", "NARROW", "PLAIN", "WARPGROUPS", "WIDE", "WITH_CORES", "machine"]

# Any machine; CPUs; what has no tensor cores that are used; GPUs with some, whose workgroups may have 96 KiB of memory, or more; those of sm_90.
ANY, CPU, PLAIN, NARROW, WIDE, WARPGROUPS = "any", "cpu", "plain", "narrow", "wide", "warpgroups"
WITH_CORES = (NARROW, WIDE, WARPGROUPS)

_CORES_SINCE: Final = 80  # the generation
_NARROW: Final = (86, 88, 89)
_NARROW_SINCE: Final = 120
_WITH_WARPGROUPS: Final = 90


def machine(on: Any) -> str:
    """The kind of a target, of a target's name, or of a device; any for None."""
    if on is None:
        return ANY
    target = getattr(on, "target", on)
    try:
        target = target if isinstance(target, Target) else parse_target(target)
    except Unsupported:
        refuse(f"what it runs on is a device, a target or a target's name, got {on!r}", 'on=vp.device("cuda"), or on="sm_90"')
    if target.kind != "ptx":
        return CPU if target.kind == "host" else PLAIN
    of = generation(target.arch)
    if of == _WITH_WARPGROUPS:
        return WARPGROUPS
    return PLAIN if of < _CORES_SINCE else NARROW if of in _NARROW or of >= _NARROW_SINCE else WIDE
