"""The suite's own checks as detectors of plants: generated Programs, tests by name, round trips through the three forms of a Program.

Whatever goes wrong counts as noticed, but for the errors of a plant whose text is no sensible Python.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tree import file_of

from planted.plant import ROOT, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest
    from generator import Case

    from vyre_py.ir.language.program import Program

__all__ = ["Generated", "RoundTrip", "Suite"]

_SEED: Final = 5
_BADLY_MADE: Final = (NameError, TypeError, AttributeError, ImportError, SyntaxError)


def _cases(count: int, device: str) -> Iterator[Case]:
    """The same Programs for every plant, over the types that are exact on the device."""
    from generator import WHOLE_TYPES, Seeded, generate

    for number in random.Random(_SEED).sample(range(100_000), count):
        yield generate(Seeded(number), types=WHOLE_TYPES, wide_atomics=False) if device == "wgpu" else generate(Seeded(number))


def _noticed(error: BaseException) -> Finding | None:
    """What an exception says in its first lines, unless it is a fault of the plant's own text."""
    if isinstance(error, _BADLY_MADE):
        return None
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


@dataclass(frozen=True)
class Generated:
    """Generated Programs on a device, against the interpreter over the Programs as written."""

    device: str
    count: int = 100

    @property
    def title(self) -> str:
        """As for the list."""
        return f"generated Programs, {self.device} against the interpreter"

    def run(self) -> Finding | None:
        """The first Program over which the two disagree."""
        from test_generated import assert_agrees

        from vyre_py.drivers.registry import device

        for number, case in enumerate(_cases(self.count, self.device)):
            try:
                assert_agrees(device(self.device), case)
            except Exception as error:
                if (finding := _noticed(error)) is None:
                    raise
                return f"Program {number}: {finding}"
        return None


@dataclass(frozen=True)
class RoundTrip:
    """Generated Programs, written in a form and read again: the Program must be the same, and its form too."""

    form: str
    count: int = 60
    device: str = field(default="", init=False)

    @property
    def title(self) -> str:
        """As for the list."""
        return f"round trips of generated Programs through {self.form}"

    def _ways(self) -> tuple[Callable[[Program], Any], Callable[[Any], Program]]:
        from vyre_py.ir.language.program import Program
        from vyre_py.ir.text.printer import print_program

        if self.form == "text":
            return print_program, Program.from_text
        return (Program.to_json, Program.from_json) if self.form == "JSON" else (Program.to_bytes, Program.from_bytes)

    def run(self) -> Finding | None:
        """The first Program that comes back as another."""
        write, read = self._ways()
        for number, case in enumerate(_cases(self.count, "")):
            try:
                written = write(case.program)
                again = read(written)
                assert again == case.program, f"another Program comes back:\n{case.program}\n{again}"
                assert write(again) == written, "the form of what comes back is another"
            except Exception as error:
                if (finding := _noticed(error)) is None:
                    raise
                return f"Program {number}: {finding}"
        return None


class _Watch:
    """Keeps what the first failing test says, and whether it is a finding."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self.broken = ""

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Looks at every exception that ends a test."""
        import pytest

        if call.excinfo is None or self.finding is not None or isinstance(call.excinfo.value, pytest.skip.Exception):
            return
        finding = _noticed(call.excinfo.value)
        if finding is None:
            self.broken = f"{item.nodeid}: {call.excinfo.exconly()}"
        else:
            self.finding = f"{item.nodeid}: {finding}"


@dataclass(frozen=True)
class Suite:
    """Tests of the suite, until the first fails: a file, which is named without its folder, or a test of one, and what its tests' names must match."""

    tests: str
    names: str = ""
    device: str = ""

    @property
    def title(self) -> str:
        """As for the list."""
        return f"`{self.tests}`" + (f", `-k {self.names!r}`" if self.names else "")

    def run(self) -> Finding | None:
        """The first test that fails."""
        import pytest

        # What happens to be installed beside pytest takes as long to import as a test to run, and none of it is needed here.
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        watch = _Watch()
        names = ("-k", self.names) if self.names else ()
        file, *test = self.tests.split("::")
        where = "::".join([str(file_of(file)), *test])
        code = pytest.main(["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", f"--rootdir={ROOT}", where, *names], plugins=[watch])
        if watch.broken or code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise RuntimeError(watch.broken or f"pytest ends with {code!r}")
        return watch.finding
