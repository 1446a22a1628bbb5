"""What a plant is, and how it takes effect: a module of the project is imported with one piece of its text replaced.

Nothing of the project is imported here, so that a plant can be in place before anything is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, Protocol

from tree import ROOT

__all__ = ["CAUGHT", "ROOT", "Detector", "Finding", "Plant"]

# The exit status of a process whose plant was noticed.
CAUGHT: Final = 3

# What noticed the plant, in a line.
Finding = str


class Detector(Protocol):
    """A check of the suite, run in a process in which a plant is in place."""

    @property
    def title(self) -> str:
        """What it is, for the list."""

    @property
    def device(self) -> str:
        """The kind of device that it cannot do without, or nothing."""

    def run(self) -> Finding | None:
        """The first thing that it notices; None where all is as it should be."""


@dataclass(frozen=True)
class Plant:
    """A realistic mistake: in `module`, the only `before` becomes `after`.

    `breaks` says what is wrong then, in a sentence; `caught_by` should notice it, if the process does not end first, as it may where
    `may_crash`. Where nothing notices, `survives` says why.
    """

    name: str
    breaks: str
    module: str
    before: str
    after: str
    caught_by: Detector
    may_crash: bool = False
    survives: str = ""

    @property
    def path(self) -> Path:
        """The file of the module."""
        stem = ROOT.joinpath(*self.module.split(".")[1:])
        return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")

    def planted(self) -> str:
        """The module's text with the mistake in it. Raises ValueError where the text to replace is not there once."""
        text = self.path.read_text(encoding="utf-8")
        if (count := text.count(self.before)) != 1:
            raise ValueError(f"{self.name}: {self.path.relative_to(ROOT)} has the text to be replaced {count} times: {self.before!r}")
        return text.replace(self.before, self.after)

    def install(self) -> None:
        """From now on in this process the module is imported with the mistake in it."""
        assert self.module not in sys.modules, f"{self.module} is imported already"
        sys.meta_path.insert(0, _Finder(self.module, self.planted()))

    @property
    def imported(self) -> bool:
        """Whether the mistake has been imported since."""
        return self.module in sys.modules


class _Finder(MetaPathFinder):
    """Finds one module where it is, and has it loaded from another text."""

    def __init__(self, module: str, text: str) -> None:
        self.module, self.text = module, text

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None and spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self.text)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, text: str) -> None:
        super().__init__(fullname, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self.text, self.path, "exec", dont_inherit=True)
        return code
