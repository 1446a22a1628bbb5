"""What compiled code was made by: everything beside the Program that it depends on, by name. Parts of artifacts say it, and keys of caches hold it.

Importing this, and asking it, loads no compiler: versions are read from what is installed.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Final

from vyre_py.ir.digest import places_digest
from vyre_py.ir.program import Program
from vyre_py.lowering.llvm.host_targets import NATIVE, machine_number
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

__all__ = ["contract", "made_by"]

# Raised whenever the same Program, target and options lower to other code, or drivers read code in another way: two checkouts' files may be equally old.
_CONTRACT: Final = "3"
_HERE: Final = Path(__file__).resolve().parent
_FLOORS: Final = (_HERE, _HERE.parent / "ir")
_COMPILED_BY_LLVM: Final = frozenset({"ptx", "host"})


@lru_cache(maxsize=64)
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


@lru_cache(maxsize=1)
def contract() -> str:
    """What the code of a Program depends on of vyre-py itself: a digest of the compiler's files. In a checkout, where they change, it is of when they were
    last written, which takes no reading; installed, it is of what is in them, so that two builds of one version share nothing that differs."""
    if (_HERE.parent / "pyproject.toml").is_file():
        files = [(path, f"{path.stat().st_mtime_ns} {path.stat().st_size}") for path in _files()]
    else:
        files = _recorded() or [(path, hashlib.sha256(path.read_bytes()).hexdigest()) for path in _files()]
    said = "\n".join(sorted(f"{path.relative_to(_HERE.parent).as_posix()} {what}" for path, what in files))
    return f"{_CONTRACT}/{hashlib.sha256(said.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


def _files() -> Iterator[Path]:
    """The compiler's files."""
    return (path for floor in _FLOORS for path in floor.rglob("*.py"))


def _recorded() -> list[tuple[Path, str]]:
    """The compiler's files with the digests that the installer noted, where it did so for what runs here."""
    try:
        installed = distribution("vyre-py")
    except PackageNotFoundError:
        return []
    root, floors = Path(str(installed.locate_file(""))).resolve(), set(_FLOORS)
    found = [(root / file, file.hash.value) for file in installed.files or () if file.hash is not None and file.suffix == ".py"]
    return [(path, digest) for path, digest in found if not floors.isdisjoint(path.parents)]


def _options(options: CompileOptions) -> str:
    """The options that are not the usual ones."""
    changed = [(f.name, getattr(options, f.name)) for f in fields(options) if getattr(options, f.name) != f.default]
    return " ".join(f"{name}={value}" for name, value in changed) or "usual"


def made_by(program: Program, target: Target, options: CompileOptions) -> dict[str, str]:
    """What code of a Program, compiled here for a target, is made by: names and values, all of them text.

    With `debug` the code has places in it, and with them a digest of those is here; code for this machine's own CPU has the number of that.
    """
    return dict(_fields(program, target, options))


def _fields(program: Program, target: Target, options: CompileOptions) -> Iterator[tuple[str, str]]:
    yield "vyre-py", contract()
    yield "options", _options(options)
    if target.kind in _COMPILED_BY_LLVM:
        yield "llvmlite", _version("llvmlite")
    if target.kind == "ptx" and options.codegen == "nvvm":
        from vyre_py.lowering.llvm.nvvm import version as nvvm_version  # loads the library, which compiling will do too

        yield "libnvvm", nvvm_version()
    if target.cubin:
        from vyre_py.lowering.llvm.nvjitlink import version as nvjitlink_version

        yield "nvjitlink", nvjitlink_version()
    if target.kind == "host" and target.arch == NATIVE:
        yield "cpu", f"{sys.platform}-{platform.machine()}-{machine_number():x}"
    if options.debug:
        yield "places", places_digest(program).hex()
