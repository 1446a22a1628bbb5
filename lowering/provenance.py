"""Provenance: all that compiled code depends on beside the Program, by name. Parts of artifacts hold it, and so do the keys of caches.

Importing this, and calling it, loads no compiler: versions are read from the installed packages.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Final

from vyre_py.ir.imports import importing
from vyre_py.ir.language.digest import places_digest
from vyre_py.ir.language.program import Program
from vyre_py.lowering.llvm.cpu.host_targets import NATIVE, machine_number
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

__all__ = ["contract", "made_by", "version_of"]

# Raised whenever the same Program, target and options lower to other code, or drivers read code in another way: two checkouts' files may be equally old.
_CONTRACT: Final = "74"
_HERE: Final = Path(__file__).resolve().parent
_FLOORS: Final = (_HERE, _HERE.parent / "ir")
_FACTS: Final = ".dist-info"
_COMPILED_BY_LLVM: Final = frozenset({"ptx", "host"})


@lru_cache(maxsize=64)
def version_of(package: str, otherwise: str = "none") -> str:
    """The version of an installed package, or what is said of one that is not installed."""
    if found := _version_by_folder(package):
        return found
    with importing:
        # It takes a tenth of the whole way to the first result.
        from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return otherwise


def _version_by_folder(package: str) -> str:
    """The version that the name of a package's own folder of facts has, in the first place where there is one, or nothing."""
    begin = f"{package.replace('-', '_')}-"
    for place in sys.path:
        try:
            names = os.listdir(place or ".")  # noqa: PTH208 - a Path for each of a thousand names takes longer than all the rest
        except OSError:
            continue
        for name in names:
            if name.startswith(begin) and name.endswith(_FACTS):
                return name[len(begin) : -len(_FACTS)]
    return ""


def _modules() -> Iterator[os.DirEntry[str]]:
    """The files of the compiler, in any order. `os.walk`, and a Path for each, take twice as long."""
    folders = [str(floor) for floor in _FLOORS]
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    yield entry
                elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)


@lru_cache(maxsize=1)
def contract() -> str:
    """What the code of a Program depends on of vyre-py itself: a digest of the compiler's files, made once a process. In a checkout, where they change, it is
    of when they were last written; installed, it is of what is in them (some 9 ms), so that two builds of one version share nothing that differs."""
    changing = (_HERE.parent / "pyproject.toml").is_file()
    digest = hashlib.sha256()
    for file in sorted(_modules(), key=lambda file: file.path):
        if changing:
            seen = file.stat()
            what = f"{seen.st_mtime_ns} {seen.st_size}"
        else:
            what = hashlib.sha256(Path(file.path).read_bytes()).hexdigest()
        name = file.path[len(str(_HERE.parent)) + 1 :].replace(os.sep, "/")
        digest.update(f"{name} {what}\n".encode("utf-8", "surrogateescape"))
    return f"{_CONTRACT}/{digest.hexdigest()[:16]}"


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
        yield "llvmlite", version_of("llvmlite")
    if target.kind == "ptx" and options.codegen == "nvvm":
        with importing:
            # Loads the library, which compiling will do too.
            from vyre_py.lowering.llvm.gpu.nvvm.libnvvm import version as nvvm_version

        yield "libnvvm", nvvm_version()
    if target.cubin:
        with importing:
            from vyre_py.lowering.llvm.gpu.machine_code.nvjitlink import version as nvjitlink_version

        yield "nvjitlink", nvjitlink_version()
    if target.kind == "host" and target.arch == NATIVE:
        yield "cpu", f"{sys.platform}-{platform.machine()}-{machine_number():x}"
    if options.debug:
        yield "places", places_digest(program).hex()
