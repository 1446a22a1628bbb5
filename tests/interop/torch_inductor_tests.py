"""PyTorch's own tests of Inductor, run with the backend "vyre" in its place: as `make_halide` of PyTorch's `test/inductor/test_halide.py` runs them.

    make torch-tests FILE=inductor/test_torchinductor.py [EXPECTED=names.txt]
    python tests/interop/torch_inductor_tests.py FILE [--expected NAMES] [--classes CpuTests,SweepInputsCpuTest] [--only WORD ...] [--part 1/4]

FILE is `test/inductor/test_torchinductor.py` of PyTorch's repository, at the tag of the version that is installed: wheels have not got it. What fails is run
with Inductor's C++, too. NAMES is a file with a line for each test that is known to fail here alone, `CpuTests.test_this_vyre: why`. Exits with 1 where
another fails here alone, or one of them does not.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import signal
import sys
import unittest
import warnings
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch
from torch._dynamo.testing import make_test_cls_with_patches
from torch._inductor import compile_fx, config

from vyre_py.interop.torch.backend import compile_graph
from vyre_py.interop.torch.scheduling import backend_name, register

__all__ = ["expected_failures", "outcomes", "verdict"]

CLASSES: Final = ("CpuTests", "SweepInputsCpuTest")
SECONDS: Final = 300  # that a test may take
ALONE: Final = "wrong here alone"
RIGHT: Final = "right, and expected to be wrong"


def module_of(path: Path) -> ModuleType:
    """The file, imported; files beside it may be imported by it."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def in_place_of_inductor(module: ModuleType) -> Iterator[None]:
    """What compiles graphs by Inductor compiles them by our backend: here, and in `torch.compile` without a backend."""
    theirs = compile_fx.compile_fx

    def ours(graph: Any, inputs: Any, *args: Any, config_patches: Any = None, **kwargs: Any) -> Any:
        if args or kwargs:  # by somebody's own inner compiler, or our own backend's
            return theirs(graph, inputs, *args, config_patches=config_patches, **kwargs)
        return compile_graph(graph, inputs, options=config_patches)

    places = [place for place in (module, compile_fx) if getattr(place, "compile_fx", None) is theirs]
    for place in places:
        place.compile_fx = ours  # type: ignore[attr-defined]  # of a module that is imported here
    try:
        yield
    finally:
        for place in places:
            place.compile_fx = theirs  # type: ignore[attr-defined]  # as above


def _alarm(*_: Any) -> None:
    raise TimeoutError("it was not done in time")


def outcome(test: unittest.TestCase) -> tuple[str, str]:
    """"right", "skipped" or "wrong", and why."""
    result = unittest.TestResult()
    torch._dynamo.reset()
    signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(SECONDS)
    try:
        test.run(result)
    finally:
        signal.alarm(0)
    if problems := [*result.failures, *result.errors]:
        return "wrong", problems[0][1].strip().splitlines()[-1]
    if result.unexpectedSuccesses:
        return "wrong", "it was expected to fail"
    return ("skipped", result.skipped[0][1]) if result.skipped else ("right", "")


def outcomes(path: Path, classes: Sequence[str] = CLASSES, only: Sequence[str] = (), part: str = "1/1") -> Iterator[tuple[str, str, str, str]]:
    """For each test its name, what became of it and why, and what becomes of it with Inductor's C++ where it is wrong."""
    register()
    module, (number, parts) = module_of(path), map(int, part.split("/"))
    for cls in [getattr(module, name) for name in classes if hasattr(module, name)]:
        ours = make_test_cls_with_patches(cls, "Vyre", "_vyre", (config, "cpu_backend", backend_name()), xfail_prop="_expected_failure_vyre")
        names = [name for name in unittest.TestLoader().getTestCaseNames(ours) if not only or any(word in name for word in only)]
        for name in names[number - 1 :: parts]:
            with in_place_of_inductor(module):
                became, why = outcome(ours(name))
            yield f"{cls.__name__}.{name}", became, why, outcome(cls(name.removesuffix("_vyre")))[0] if became == "wrong" else ""


def expected_failures(text: str) -> dict[str, str]:
    """Names of tests, and why they fail, of a text with a line for each. Raises ValueError for a line that does not say why."""
    found = {}
    for line in filter(str.strip, text.splitlines()):
        name, _, why = line.partition(":")
        if not why.strip():
            raise ValueError(f"{line!r} does not say why it fails")
        found[name.strip()] = why.strip()
    return found


def verdict(name: str, became: str, other: str, expected: Container[str]) -> str:
    """What is counted for a test, of what became of it, and with Inductor's C++."""
    if became == "wrong":
        return "wrong with Inductor's C++, too" if other != "right" else "wrong as expected" if name in expected else ALONE
    return RIGHT if became == "right" and name in expected else became


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--expected", type=Path)
    parser.add_argument("--classes", default=",".join(CLASSES))
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--part", default="1/1")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    expected = expected_failures(given.expected.read_text("utf-8")) if given.expected else {}
    counts: Counter[str] = Counter()
    for name, became, why, other in outcomes(given.file, given.classes.split(","), given.only, given.part):
        kind = verdict(name, became, other, expected)
        counts[kind] += 1
        if became == "wrong" or kind == RIGHT:
            print(f"{name}: {kind}: {expected.get(name) or why}", flush=True)
    print(f"{sum(counts.values())} tests of {given.file.name}, PyTorch {torch.__version__}: {', '.join(f'{n} {kind}' for kind, n in sorted(counts.items()))}")
    sys.exit(bool(counts[ALONE] or counts[RIGHT]))


if __name__ == "__main__":
    main()
