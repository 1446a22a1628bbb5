"""LLVM IR of adapters: functions that another library calls, by its own convention, and that call a pipeline's native entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["MEMCPY", "AdapterLines", "c_string"]

MEMCPY: Final = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"


class AdapterLines:
    """The text of a function, line by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def do(self, text: str) -> None:
        """An instruction without a value."""
        self.lines.append(f"  {text}")

    def emit(self, text: str) -> str:
        """An instruction; gives the name of its value."""
        self._count += 1
        self.do(f"%v{self._count} = {text}")
        return f"%v{self._count}"

    def label(self, name: str) -> None:
        """The head of a block."""
        self.lines.append(f"{name}:")

    def at(self, base: str, offset: int) -> str:
        """The address so many bytes from another."""
        return self.emit(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base

    def load(self, type_: str, base: str, offset: int) -> str:
        """What lies there."""
        return self.emit(f"load {type_}, ptr {self.at(base, offset)}")

    def store(self, type_: str, value: object, base: str, offset: int) -> None:
        """Puts a value there."""
        self.do(f"store {type_} {value}, ptr {self.at(base, offset)}")

    def copy(self, target: str, source: str, size_bytes: int) -> None:
        """Copies bytes; the text needs `MEMCPY`."""
        self.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size_bytes}, i1 false)")

    def require(self, conditions: Sequence[str], passed: str, other: str = "misfit") -> None:
        """Goes on at a label where all conditions hold, and at another, which the caller writes, elsewhere."""
        held = "true"
        for condition in conditions:
            held = self.emit(f"and i1 {held}, {condition}")
        self.do(f"br i1 {held}, label %{passed}, label %{other}")
        self.label(passed)


def c_string(name: str, text: str) -> str:
    """A string of C's."""
    data = text.encode() + b"\0"
    return f'@{name} = private constant [{len(data)} x i8] c"' + "".join([f"\\{byte:02x}" for byte in data]) + '"'
