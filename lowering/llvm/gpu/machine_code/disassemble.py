"""The machine code of an NVIDIA GPU as text, by NVIDIA's own `nvdisasm`, which runs as a process and needs no GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from vyre_py.lowering.errors import Missing, ToolchainError, Unsupported

__all__ = ["disassemble", "find_nvdisasm"]

_TOOL: Final = "nvdisasm"
_HELP: Final = f"it is NVIDIA's {_TOOL}: pip install nvidia-cuda-nvdisasm, or have a CUDA toolkit on the path or in CUDA_HOME"
# Environment variables that name the folder of a CUDA toolkit.
_HOMES: Final = ("CUDA_HOME", "CUDA_PATH")
# The largest kernels take a second or two.
_TIMEOUT_S: Final = 120.0


def _candidates() -> Iterator[Path]:
    """Where it may be: in a wheel, in a toolkit that the environment names, on the path."""
    package = find_spec("nvidia")
    for home in (package.submodule_search_locations or ()) if package is not None else ():
        yield from sorted(Path(home).glob(f"*/bin/{_TOOL}"), reverse=True)
    for name in _HOMES:
        if folder := os.environ.get(name):
            yield Path(folder) / "bin" / _TOOL
    if found := shutil.which(_TOOL):
        yield Path(found)


def find_nvdisasm() -> Path | None:
    """Where NVIDIA's disassembler is, if it is anywhere."""
    return next((path for path in _candidates() if os.access(path, os.X_OK)), None)


def disassemble(cubin: bytes, *, lines: bool = False) -> str:
    """The instructions of a cubin; with `lines`, the places in the source that they come from stand between them.

    The code goes through a private file, which is gone afterwards. Raises Unsupported where there is no `nvdisasm`, ToolchainError with its message for
    bytes that it refuses, and where it takes longer than two minutes.
    """
    tool = find_nvdisasm()
    if tool is None:
        raise Unsupported("vyre-py", [Missing("disassembly of machine code", help=_HELP)])
    with tempfile.TemporaryDirectory(prefix="vyre-") as folder:
        source = Path(folder) / "kernel.cubin"
        source.write_bytes(cubin)
        command = [str(tool), "--print-code", *(["--print-line-info"] if lines else []), str(source)]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603 - NVIDIA's tool, over our own file
        except subprocess.TimeoutExpired:
            raise ToolchainError(_TOOL, f"it took longer than {_TIMEOUT_S:.0f} s, and was ended") from None
        except OSError as error:
            raise ToolchainError(_TOOL, f"{tool} cannot be run: {error}") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").replace(str(source), "the cubin").strip()
        raise ToolchainError(_TOOL, said or f"it ended with status {done.returncode}")
    return done.stdout.decode("utf-8", "replace")
