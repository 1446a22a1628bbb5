"""Kernels for NVIDIA GPUs that can be ended from outside: when an invocation checks a flag in device memory, and how it ends.

A check is expensive. A loop of two instructions that checked one word every 1,024 turns took 12 times as long on an H200, since the threads of the
whole device then queue for one word. So a check takes two steps. Invocations count their work in units of about one statement (`interruptible`).
After some `STRIP` units they read the clock, a register of their multiprocessor. They load the flag only when `_INTERVAL` cycles have passed since the
first reading or the last check. So the rate does not depend on the time of a turn, and all threads together check some fifty times a second. Each
invocation also checks once when it starts: when the flag is set, the rest of a large grid ends at once. The load is issued early; the wait comes
before the first statement that takes long or has an effect outside (`first_check`).

An invocation ends by exit. From sm_70 on a barrier waits only for the threads of the workgroup that have not exited, so one that ends early delays no
other. Nobody gets the results of a launch that was ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from vyre_py.lowering.llvm.text import Writer

__all__ = ["ACCOUNT", "STRIP", "Watch"]

# Units between two readings of the clock. On a full device a unit takes some 16 cycles, and a strip half a millisecond.
STRIP: Final = 1 << 16
# Cycles between two checks of the flag: some 20 milliseconds.
_INTERVAL: Final = 1 << 25

# The account that a function gets from its caller: pointers to the clock at the last check (0 before it was first read), and to the units since the
# clock was last read.
ACCOUNT: Final = ("%since", "%spent")

# How many values at most are computed before the flag is waited for.
_MOST_PINNED: Final = 16
# LLVM's type -> its name for a register that holds one, in inline assembly.
_REGISTERS: Final[Mapping[str, str]] = {"i16": "h", "i32": "r", "i64": "l", "float": "f", "double": "d"}


class Watch:
    """Writes the account and the checks of one function. `flag` is the name of the pointer to the flag. The account is the function's own, or its
    caller's."""

    def __init__(self, w: Writer, flag: str, account: tuple[str, str] | None = None) -> None:
        self.w = w
        self._flag = flag
        self.account = account or (w.local("i32"), w.local("i32"))
        self._since, self._spent = self.account

    def begin(self) -> None:
        """Starts the account. The clock is read when it is first full, so that what ends before does not read it."""
        for part in self.account:
            self.w.line(f"store i32 0, ptr {part}")

    def ask(self) -> str:
        """Every invocation loads the flag; gives the name for `hear`, which may come much later."""
        return self._load()

    def hear(self, found: str, computed: Sequence[tuple[str, str]] = ()) -> None:
        """Ends if the flag was set. The (type, name) values are `computed` first, while the flag comes: LLVM would do that afterwards, for those that
        go on, if they were of no use before."""
        pins = [(_REGISTERS[type_], f"{type_} {name}") for type_, name in computed if type_ in _REGISTERS and name.startswith("%")]
        if pins := pins[-_MOST_PINNED:]:
            self.w.line(f'call void asm sideeffect "", "{",".join(r for r, _ in pins)}"({", ".join(value for _, value in pins)})')
        self._end_if(found)

    def spend(self, units: str) -> None:
        """Adds to the account; no more than `STRIP` and the units of a group of turns or of a turn, and then it is checked, so that it stays far below 2^32."""
        spent = self.w.let(f"load i32, ptr {self._spent}")
        self.w.line(f"store i32 {self.w.let(f'add i32 {spent}, {units}')}, ptr {self._spent}")

    def check(self) -> None:
        """Pauses when the account says so."""
        w = self.w
        full, on = w.label("full"), w.label("on")
        w.branch(w.let(f"icmp uge i32 {w.let(f'load i32, ptr {self._spent}')}, {STRIP}"), full, on)
        w.block(full)
        self.pause()
        w.block(on)

    def pause(self) -> None:
        """Reads the clock, and looks if it is time."""
        w = self.w
        due, on = w.label("due"), w.label("early")
        now = self._clock()
        since = w.let(f"load i32, ptr {self._since}")
        since = w.let(f"select i1 {w.let(f'icmp eq i32 {since}, 0')}, i32 {now}, i32 {since}")
        gone = w.let(f"sub i32 {now}, {since}")
        w.line(f"store i32 {since}, ptr {self._since}")
        w.line(f"store i32 0, ptr {self._spent}")
        w.branch(w.let(f"icmp uge i32 {gone}, {_INTERVAL}"), due, on)
        w.block(due)
        w.line(f"store i32 {now}, ptr {self._since}")
        self._end_if(self._load())
        w.block(on)

    def _clock(self) -> str:
        return self.w.call("i32", "llvm.nvvm.read.ptx.sreg.clock")

    def _load(self) -> str:
        """The flag. Relaxed, at the scope of the device: from L2, anew each time."""
        return self.w.let(f'load atomic i32, ptr addrspace(1) {self._flag} syncscope("device") monotonic, align 4')

    def _end_if(self, found: str) -> None:
        w = self.w
        ended, on = w.label("ended"), w.label("on")
        w.branch(w.let(f"icmp ne i32 {found}, 0"), ended, on)
        w.block(ended)
        w.run("llvm.nvvm.exit")  # no return: the function may have been called for one of many workgroups
        w.end("unreachable")
        w.block(on)
