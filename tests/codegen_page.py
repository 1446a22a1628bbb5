"""The page `lowering/CODEGEN.md`: the two ways to PTX beside each other, from `lowering/codegen.json`, which `tests/bench/bench_codegen.py` measures."""

from __future__ import annotations

import json
from typing import Any, Final

from tree import ROOT

__all__ = ["codegen_page"]

FIGURES: Final = ROOT / "lowering" / "codegen.json"

_HEAD: Final = """# Two ways to PTX

Made by `python tests/pages.py` from `lowering/codegen.json`, which `python tests/bench/bench_codegen.py` measures and writes.

`CompileOptions(codegen="llvm")`, the default, is the LLVM inside llvmlite; `"nvvm"` is libNVVM, NVIDIA's own. Both read the same LLVM IR of ours, rewritten for
libNVVM into its dialect, keep the same rules of floating point, and give the same results. Each cell has LLVM's figure, then libNVVM's.

Compiling is from the Program to machine code by nvJitLink, without a cache, the median of several; registers are those of a thread of the entry that takes any
arguments, spills its bytes of stores and loads; a launch is timed by the device's clock.
"""


def _cell(row: dict[str, dict[str, float]], name: str) -> str:
    return " / ".join(f"{row[way][name]:g}" for way in ("llvm", "nvvm"))


def codegen_page() -> str:
    """The page's text."""
    found: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    lines = [_HEAD, f"On one {found['device']}, for {found['target']}:", ""]
    lines += ["| Program | compile, ms | registers | spills, bytes | launch, us | libNVVM's launch beside LLVM's |", "|---|---|---|---|---|---|"]
    for name, row in found["rows"].items():
        beside = row["nvvm"]["launch_us"] / row["llvm"]["launch_us"]
        cells = [_cell(row, figure) for figure in ("compile_ms", "registers", "spill_bytes", "launch_us")]
        lines.append(f"| {name} | {' | '.join(cells)} | {beside:.2f} |")
    return "\n".join(lines) + "\n"
