"""NVIDIA's assembler, out of its wheel (nvidia-cuda-nvcc, in the extra `dev`), or from the path."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from vyre_py.ir.check import Checked
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.target import Target

__all__ = ["assemble", "assemble_together", "compile_and_assemble", "find_ptxas"]


@cache
def find_ptxas() -> Path:
    """Where it is. Where it is not, tests are skipped, or fail when VYRE_REQUIRE_DEVICES names `ptxas`."""
    package = find_spec("nvidia")
    for home in (package.submodule_search_locations or []) if package is not None else []:
        for tool in sorted(Path(home).glob("cu*/bin/ptxas*")):
            return tool
    if found := shutil.which("ptxas"):
        return Path(found)
    if "ptxas" in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
        pytest.fail("ptxas is required: pip install nvidia-cuda-nvcc")
    pytest.skip("ptxas is not here: pip install nvidia-cuda-nvcc")


@cache
def _knows(arch: str) -> bool:
    return f"'{arch}'" in subprocess.run([find_ptxas(), "--help"], capture_output=True, text=True, check=True).stdout


def assemble(ptx: str, arch: str, level: int = 3) -> None:
    """Assembles PTX, as it reads it; an architecture that this assembler has left behind (CUDA 13 has no sm_70) is passed over."""
    if not _knows(arch):
        return
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        made = [find_ptxas(), f"-arch={arch}", f"-O{level}", "-o", str(Path(folder) / "kernel.cubin"), str(source)]
        done = subprocess.run(made, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{ptx}"


# A directive of the module's head, which stands once; and what declares a name that other modules may have as well.
_HEAD = re.compile(r"^\.(?:version|target|address_size).*$", re.MULTILINE)
_DECLARED = re.compile(r"\.(?:(?:global|shared|const)\b[^;{}=()]*?\s([\w$]+)\s*\[|func\s*\([^()]*\)\s*([\w$]+)\s*\()")


def assemble_together(modules: Sequence[str], arch: str, level: int = 3) -> None:
    """Assembles PTX modules of one target as one, since starting the assembler takes as long as a small kernel does, in the newest of their versions of PTX.
    Each kernel has a name of its own; other names of a module's are made so here."""
    bodies = []
    for number, ptx in enumerate(modules):
        body = _HEAD.sub("", ptx)
        for name in {name for names in _DECLARED.findall(body) for name in names if name}:
            body = re.sub(rf"(?<![\w$.]){re.escape(name)}(?![\w$])", f"{name}_of_{number}", body)
        bodies.append(body)
    heads = max([_HEAD.findall(ptx) for ptx in modules], key=lambda head: [int(digits) for digits in re.findall(r"\d+", head[0])])
    assemble("\n".join([*heads, *bodies]), arch, level)


def compile_and_assemble(programs: Iterable[tuple[Checked, str]], refused: str = "$never") -> None:
    """Compiles Programs of different names, each for an architecture, and assembles those of one together. Some may be `Unsupported`, where that says a text of
    the pattern `refused`; not all."""
    modules: dict[str, list[str]] = {}
    for checked, arch in programs:
        try:
            (part,) = compile_for(checked, [Target("ptx", arch)]).parts
        except Unsupported as error:
            if not re.search(refused, str(error)):
                raise
            continue
        modules.setdefault(arch, []).append(part.steps[0].images[0].code.decode())
    assert modules
    for arch, texts in modules.items():
        assemble_together(texts, arch)
