"""Modules of many lines: what LLVM does about them in reasonable time, and the stack that it needs.

Measured on one core: LLVM's pipeline takes minutes for 40,000 lines where a few linear passes take a second. Its instruction combining takes time with the
square of a straight piece that has loads, which are frozen (3,000 of them: minutes), and its passes over loops, and over conditions, take time with the depth
of nesting at every line (250 loops within one another: 16 s). Its code generation takes time with the square of the longest straight piece at levels 1 to 3
(0.1 to 1 s for 3,000 lines, 0.6 to 25 s for 10,000), and is close to linear at level 0. It calls itself for operands of operands: 60,000 lines that depend on
one another overflowed a stack of 8 MiB, which ends the process.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from llvmlite import binding as llvm

from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.errors import ToolchainError
from vyre_py.lowering.llvm.text import CUT

__all__ = ["Size", "measure"]

_T = TypeVar("_T")

_LARGE_LINES: Final = 20_000
_STRAIGHT_LINES: Final = 4_000
_SPANNED_LINES: Final = 250_000
# Past these the stack of the calling thread, of which nothing is known, is left alone.
_DEEP_LINES: Final = 4_000
_STACK_BYTES: Final = 256 << 20
# Of a lane, for each line. 23,700 statements, 130,000 lines in 16 lanes, took 8.5 MB, and ended the process.
_VALUE_BYTES: Final = 4
# The mean nesting of lines from which the assembler tries less.
_DEEP_NESTING: Final = 50

_LABEL: Final = re.compile(r"[$\w.]+:")
_TARGET: Final = re.compile(r"label %([\w.]+)|\bbra(?:\.uni)?\s+(\$\w+)")

_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Size:
    """How many lines a module has, in LLVM IR or PTX, metadata left out; the longest piece of LLVM IR that has no label, but for those at which it is cut
    (`text.Writer`); and how many lines its branches pass over, all together, which is the lines times their mean depth of nesting."""

    lines: int
    straight: int
    spanned: int

    @property
    def large(self) -> bool:
        """Whether only passes that take linear time are for it (`optimise`)."""
        return self.lines >= _LARGE_LINES or self._convoluted

    @property
    def _convoluted(self) -> bool:
        return self.straight >= _STRAIGHT_LINES or self.spanned >= _SPANNED_LINES

    def generation(self, level: int) -> int:
        """The level of code generation, where `level` (0 to 3) is asked for."""
        return 0 if self._convoluted else level

    def stack_bytes(self, level: int, lanes: int) -> int:
        """What a call takes of the stack, about, where `level` of code generation is asked for: at level 0 every value has a place of its own there."""
        return 0 if self.generation(level) else self.lines * lanes * _VALUE_BYTES

    def assembler(self, level: int) -> int:
        """The level of NVIDIA's assembler, where `level` (0 to 4) is asked for: minutes become seconds at level 1 where loops are nested very deeply."""
        return min(level, 1) if self.spanned >= max(_SPANNED_LINES, _DEEP_NESTING * self.lines) else level

    def optimise(self, module: Any, builder: Any) -> None:
        """Runs those of LLVM's passes over a large module that are linear in its size and do most for code as it is emitted."""
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        if not self._convoluted:
            passes.add_simplify_cfg_pass()  # would make one block again of a straight piece that is cut
        passes.add_sccp_pass()
        passes.add_aggressive_dce_pass()
        passes.run(module, builder)

    def run(self, work: Callable[[], _T]) -> _T:
        """What `work` gives or raises, done with as much stack as LLVM needs for such a module. Raises ToolchainError where there is no memory for that."""
        return work() if self.lines < _DEEP_LINES else _with_stack(work)


def measure(text: str) -> Size:
    """The size of a module's text, in LLVM IR or PTX."""
    total = straight = longest = spanned = 0
    labels: dict[str, int] = {}  # of the function at hand -> the line
    branches: list[tuple[int, str]] = []
    for line in text.splitlines():
        if line.startswith("!"):
            continue
        total += 1
        if line.startswith((" ", "\t")):
            straight += 1
            if "br" in line:
                branches += [(total, llvm_label or ptx_label) for llvm_label, ptx_label in _TARGET.findall(line)]
            continue
        if line.startswith(CUT):
            continue  # the same straight piece
        longest, straight = max(longest, straight), 0
        if label := _LABEL.match(line):
            labels[label[0][:-1]] = total
        elif line == "}":
            spanned += sum([abs(labels.get(target, at) - at) for at, target in branches])
            labels, branches = {}, []
    return Size(total, max(longest, straight), spanned)


def _with_stack(work: Callable[[], _T]) -> _T:
    given: list[_T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            given.append(work())
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller raises it
            raised.append(error)

    thread = threading.Thread(target=run, name="vyre-llvm", daemon=True)
    try:
        with _lock:
            before = threading.stack_size(_STACK_BYTES)  # of all threads that are started from now on
            try:
                thread.start()
            finally:
                threading.stack_size(before)
    except (RuntimeError, MemoryError) as error:
        raise ToolchainError("LLVM", f"a Program of this length is compiled with a stack of {_STACK_BYTES >> 20} MiB, and there is no memory for it") from error
    thread.join()
    if raised:
        raise raised[0]
    return given[0]


def _forked() -> None:
    """In a forked child: a thread of the parent may have held the lock."""
    global _lock  # noqa: PLW0603 - the one lock of the process
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
