"""Compiled code by its key: from memory, from the disk, or from the compiler; and Programs that were checked already.

Three layers serve every device of the process: `validation` (Programs that were checked, by the digest of their bytes), `artifacts` (compiled parts) and `disk`
(`drivers.cache.disk`). A fourth, the loaded code, belongs to each device. An entry of the disk is used only if it was made from the same Program, up to names,
for the same target by the same compilers and options.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from vyre_py.drivers.cache.disk import CacheKey, DiskCache
from vyre_py.drivers.errors import CacheError
from vyre_py.drivers.lru import Bounded, LayerSnapshot
from vyre_py.ir.check import Checked, check
from vyre_py.ir.imports import importing
from vyre_py.ir.language.program import Program
from vyre_py.ir.public import public
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.file import decode_part, encode_part
from vyre_py.lowering.artifact.parts import Interface, Part
from vyre_py.lowering.llvm.cpu.host_targets import NATIVE, machine_number
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.provenance import made_by
from vyre_py.lowering.stages import Stage, Stages, Stopwatch
from vyre_py.lowering.target import Target

if TYPE_CHECKING:
    from vyre_py.drivers.observe.telemetry import Telemetry
    from vyre_py.lowering.compile import Prepared

__all__ = ["adopt", "cache_layers", "clear_memory", "compiled", "disk_cache", "key_of", "validated"]

_CHECKED_ENTRIES: Final = 256
_CHECKED_BYTES: Final = 64 << 20
_PART_ENTRIES: Final = 1024
_PART_BYTES: Final = 256 << 20
# What a checked Program takes in memory for each byte of its wire form, about.
_BYTES_OF_A_BYTE: Final = 40
# What a Program's object keeps, beside its fields, which never change.
_PROOF, _KEYS, _INTERFACE = "_proof", "_keys", "_interface"

_checked: Bounded[Checked] = Bounded(_CHECKED_ENTRIES, _CHECKED_BYTES)
_parts: Bounded[Part] = Bounded(_PART_ENTRIES, _PART_BYTES)
# Kind of target -> what the disk calls its code; what is not here stays in memory.
_KINDS: Final[Mapping[str, str]] = {"ptx": "ptx", "host": "object", "wgsl": "wgsl"}


@public
@lru_cache(maxsize=1)
def disk_cache() -> DiskCache:
    """The disk cache of this process, opened when first asked for: `VYRE_CACHE_DIR` and its like say where (drivers/CACHE.md); `path` is its directory.
    Raises CacheError where VYRE_CACHE_DIR is set and empty, DriverError for a VYRE_CACHE_LIMIT that is no number."""
    return DiskCache.open_default()


def validated(program: Program | Checked | bytes | bytearray | memoryview) -> Checked:
    """A Program that keeps the rules, checked once: the object keeps the proof, and bytes that were seen before are neither read nor checked again. Raises
    WireError, ValidationError."""
    if isinstance(program, Checked):
        return program
    if isinstance(program, Program):
        proof: Checked | None = vars(program).get(_PROOF)
        if proof is None:
            proof = vars(program)[_PROOF] = check(program)
        return proof
    if not isinstance(program, (bytes, bytearray, memoryview)):
        return check(program)  # which says what it is
    data = bytes(program)
    return _checked.get_or_put(hashlib.sha256(data).digest(), lambda: check(Program.from_bytes(data)), lambda _: len(data) * _BYTES_OF_A_BYTE)


def key_of(program: Program, target: Target, options: CompileOptions) -> CacheKey:
    """The key of a part: the Program's code, up to names, the target, and all that makes the code. The object keeps it."""
    known: dict[tuple[Target, CompileOptions], CacheKey] = vars(program).setdefault(_KEYS, {})
    key = known.get((target, options))
    if key is None:
        key = known[target, options] = _key(program.code_digest, target, made_by(program, target, options))
    return key


def _interface_of(program: Program) -> Interface:
    """The Program's interface; the object keeps it."""
    kept: Interface | None = vars(program).get(_INTERFACE)
    if kept is None:
        kept = vars(program)[_INTERFACE] = Interface.of(program)
    return kept


def _key(code_digest: bytes, target: Target, makers: Mapping[str, str]) -> CacheKey:
    kind = "cubin" if target.cubin else _KINDS.get(target.kind, target.kind)
    return CacheKey(kind, (("code", code_digest.hex()), ("target", target.name), *makers.items()))


def compiled(
    checked: Checked, targets: Sequence[Target], options: CompileOptions, before: Iterable[Stage] = (), telemetry: Telemetry | None = None
) -> Artifact:
    """A Program compiled for each target, as `compile_for` does, from where it is quickest to be had. Raises Unsupported, ToolchainError."""
    program, interface, stages = checked.program, _interface_of(checked.program), Stopwatch(before).stages
    prepared: Prepared = {}
    parts = []
    for target in targets:
        key = key_of(program, target, options)
        known = (key.name, program.interface_digest)
        part = _parts.get(known)
        if part is None:
            part = _from_disk_or_compiler(checked, target, options, key, interface, stages, prepared, telemetry)
            _parts.put(known, replace(part, stages=Stages()) if part.stages else part, _size(part))
        elif telemetry is not None:
            telemetry.artifact_cache_hits += 1
        parts.append(part if part.stages or not stages else replace(part, stages=stages))
    return Artifact(interface, tuple(parts), checked.capabilities, program.code_digest, program.interface_digest)


def _from_disk_or_compiler(
    checked: Checked, target: Target, options: CompileOptions, key: CacheKey, interface: Interface, before: Stages, prepared: Prepared,
    telemetry: Telemetry | None,
) -> Part:  # fmt: skip
    made: list[Part] = []

    def compile_it() -> Part:
        with importing:  # passes and targets are loaded where something is compiled
            from vyre_py.lowering.compile import compile_for

        made.extend(compile_for(checked, [target], options, before, prepared).parts)
        if telemetry is not None:
            telemetry.compiles += 1
        return made[0]

    disk = disk_cache()
    if not _goes_to_disk(disk, target):
        return compile_it()

    def make() -> bytes:
        return encode_part(compile_it(), interface)

    part = disk.get_or_make(key, make, lambda data: made[0] if made else decode_part(data, interface))
    if telemetry is not None:
        telemetry.disk_cache_hits += not made
        telemetry.disk_cache_misses += bool(made)
    return part


def _goes_to_disk(disk: DiskCache, target: Target) -> bool:
    """Whether code for a target is kept there: none of a CPU that is not known, which another machine's might be taken for."""
    unknown = target.kind == "host" and target.arch == NATIVE and not machine_number()
    return target.kind in _KINDS and bool(disk.limit_bytes or disk.read_only) and not unknown


def adopt(artifact: Artifact, part: Part) -> None:
    """Keeps a part that was compiled elsewhere, for the next compile of its Program with the same options."""
    if artifact.interface_digest and part.made_by:
        key = _key(artifact.code_digest, part.target, part.made_by)
        _parts.put((key.name, artifact.interface_digest), replace(part, stages=Stages()), _size(part))


def _size(part: Part) -> int:
    return sum(len(image.code) + len(image.data) for step in part.steps for image in step.images) + 4096


def clear_memory() -> None:
    """Drops what is kept in memory for speed alone; devices keep what they have loaded."""
    _checked.clear()
    _parts.clear()


@public
def cache_layers() -> dict[str, LayerSnapshot]:
    """What the layers of the process hold, and have counted in it, by name: "validation", "artifacts" and "disk", whose directory is looked through for it.
    Those of a device are in `device.cache_layers()`."""
    disk = disk_cache()
    entries, size_bytes = 0, 0
    with suppress(CacheError):  # a directory that cannot be read holds nothing for us
        found = disk.stats()
        entries, size_bytes = found.entries, found.size_bytes
    counted = disk.snapshot()
    return {
        "validation": _checked.snapshot(), "artifacts": _parts.snapshot(),
        "disk": LayerSnapshot(entries, size_bytes, counted.hits, counted.misses, counted.evictions),
    }  # fmt: skip


def _after_fork() -> None:
    _checked.forked()
    _parts.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
