"""The figures of NVIDIA's assembler and linker for each kernel: registers, spills, stack, memory. The text is that of their option `-verbose`.

Both print every kernel, the assembler first:

    ptxas info    : Compiling entry function 'k' for 'sm_90'
    ptxas info    : Function properties for k
    ptxas         .     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
    ptxas info    : Used 10 registers, used 1 barriers, 256 bytes smem, 376 bytes cmem[0]
    info    : Function properties for 'k':
    info    : used 10 registers, used 1 barriers, 8 stack, 256 bytes smem, 376 bytes cmem[0], 0 bytes lmem

The assembler's figures come first. Only the linker states the constants of sm_90; neither states those of later architectures. The linker's workgroup memory
includes a part that the system reserves. Its number of barriers is arbitrary for a kernel without barriers (13.5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["resources", "settled"]

# A number and what it counts -> its name. Of several banks of constants the sum is taken.
_FIGURES: Final[Mapping[str, re.Pattern[str]]] = {
    "registers": re.compile(r"\b[Uu]sed (\d{1,18}) registers"),
    "barriers": re.compile(r"\bused (\d{1,18}) barriers"),
    "stack_bytes": re.compile(r"(\d{1,18}) (?:bytes stack frame|stack\b)"),
    "spill_store_bytes": re.compile(r"(\d{1,18}) bytes spill stores"),
    "spill_load_bytes": re.compile(r"(\d{1,18}) bytes spill loads"),
    "workgroup_bytes": re.compile(r"(\d{1,18}) bytes smem"),
    "constant_bytes": re.compile(r"(\d{1,18}) bytes cmem\[\d+\]"),
}
# The assembler leaves out what is zero.
_ZERO: Final = ("barriers", "workgroup_bytes")
# What the linker says is taken where the assembler says nothing, but for what it does not know.
_LINKERS: Final = ("registers", "stack_bytes", "constant_bytes")

_ENTRY: Final = re.compile(r"Compiling entry function '([^']*)'")
_FUNCTION: Final = re.compile(r"Function properties for '?([^\s':]+)")
_LINKER: Final = "info"

_TIMES: Final = re.compile(r"^ptxas info\s*: Compile time = .*\n?", re.MULTILINE)
_MADE_UP: Final = re.compile(r"(?m)(^info\s*: used \d+ registers), used \d+ barriers")


def settled(log: str) -> str:
    """A log without what differs from one run to the next: times, and the barriers that the linker makes up."""
    return _MADE_UP.sub(r"\1", _TIMES.sub("", log)).rstrip("\n")


def _figures(line: str) -> dict[str, int]:
    found = {name: pattern.findall(line) for name, pattern in _FIGURES.items()}
    return {name: sum(map(int, numbers)) for name, numbers in found.items() if numbers}


def resources(log: str) -> dict[str, dict[str, int]]:
    """What each kernel takes, by symbol: "registers" of a thread, "stack_bytes", "spill_store_bytes" and "spill_load_bytes" of a thread, "workgroup_bytes" of
    static workgroup memory, "barriers", and "constant_bytes" where they are stated. A function that is called has a stack and spills alone.

    Any text is taken; lines that say nothing of this are passed over.
    """
    assembled: dict[str, dict[str, int]] = {}
    linked: dict[str, dict[str, int]] = {}
    entry = function = ""
    for line in log.splitlines():
        ours = not line.startswith(_LINKER)  # before 13.5 the assembler's second line begins with nothing but spaces
        if found := _ENTRY.search(line):
            entry = function = found[1]
        elif found := _FUNCTION.search(line):
            function = found[1]
        elif figures := _figures(line):
            # An entry's registers are said last, after those of functions that it calls.
            symbol = entry if ours and "registers" in figures else function
            if not symbol:
                continue
            made = (assembled if ours else linked).setdefault(symbol, {})
            made.update(figures)
            if ours and "registers" in figures:
                made.update({name: made.get(name, 0) for name in _ZERO})
    kept = {symbol: {name: figures[name] for name in _LINKERS if name in figures} for symbol, figures in linked.items()}
    merged = {symbol: {**kept.get(symbol, {}), **assembled.get(symbol, {})} for symbol in {**assembled, **kept}}
    return {symbol: {name: figures[name] for name in _FIGURES if name in figures} for symbol, figures in merged.items()}
