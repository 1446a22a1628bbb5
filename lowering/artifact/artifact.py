"""Artifacts: all that a machine without the Program and without the compiler needs to run a kernel."""

from __future__ import annotations

import os
from typing import Any

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing
from vyre_py.ir.public import public
from vyre_py.ir.travel import Portable, made_by
from vyre_py.lowering.artifact.parts import Interface, Part
from vyre_py.lowering.errors import ArtifactError

__all__ = ["Artifact"]


@public
@dataclass(frozen=True, slots=True, eq=False)
class Artifact(Portable):
    """A compiled Program: what a caller binds, and one part per target it was compiled for. The digests are the Program's; that of the interface is
    empty where it is not known. Artifacts are equal whose files are the same, byte for byte."""

    interface: Interface
    parts: tuple[Part, ...]
    capabilities: frozenset[str]
    code_digest: bytes
    interface_digest: bytes = b""

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return tuple(p.target.name for p in self.parts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Artifact):
            return NotImplemented
        return self is other or (self._content != b"" and self._content == other._content)

    def __hash__(self) -> int:
        return hash(self._content)

    @property
    def _content(self) -> bytes:
        """The file's bytes; none of what no file has a place for, which equals itself alone."""
        try:
            return self.to_bytes()
        except ArtifactError:
            return b""

    def __reduce__(self) -> tuple[Any, ...]:
        return made_by(Artifact.from_bytes, self.to_bytes())

    def _identity(self) -> bytes:
        return self.to_bytes()

    # What reads, writes and describes artifacts is imported where it is called: who compiles or runs needs none of it.

    def to_bytes(self) -> bytes:
        """The file's bytes (`lowering/ARTIFACT.md`). Raises ArtifactError for what the file has no place for."""
        with importing:
            from vyre_py.lowering.artifact.file import encode

        return encode(self)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Artifact:
        """The artifact that `to_bytes` wrote. All of it is looked at, and what is not understood is refused, before anything is used; that its code is
        harmless cannot be seen from its bytes: load only what you would run. Raises ArtifactError, which names the part at fault."""
        with importing:
            from vyre_py.lowering.artifact.file import decode

        return cls(*decode(data))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file: all of it or nothing, in place of one that was there. Raises ArtifactError where that is not possible."""
        with importing:
            from vyre_py.lowering.artifact.file import save

        save(self, path)

    @classmethod
    def load(cls, source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Artifact:
        """The artifact in a file of 1 GiB at most, or in bytes, as `from_bytes`. Needs no compiler. Raises ArtifactError, which names the part at fault."""
        with importing:
            from vyre_py.lowering.artifact.file import load

        return cls(*load(source))

    def describe(self) -> str:
        """The content, for people: targets, code and its size, entries and what they need, registers, numerics, versions."""
        with importing:
            from vyre_py.lowering.artifact.summary import describe

        return describe(self)

    __str__ = describe

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.lowering.artifact.cards import artifact_html

        return artifact_html(self)

    def __repr__(self) -> str:
        return f"<Artifact {self.interface.name!r} for {', '.join(self.targets) or 'no target'}>"
