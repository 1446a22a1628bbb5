"""Programs of many statements: LLVM gets the stack that it needs, levels that take linear time, and no more than it can do in some minutes."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading

import numpy as np
import pytest

import vyre_py as vp
from tests.children import child_environment
from vyre_py.lowering.llvm import large
from vyre_py.lowering.llvm.large import Size, measure

CHAIN = """
import sys
import vyre_py as vp
with vp.ProgramBuilder("chain") as b:
    n = b.dim("n")
    x = b.read_write("x", vp.u32, n)
    i = b.global_id(0)
    v, w = x[i], x[i + 1]
    for k in range(2500):
        v = vp.popcount(v) + w
    x[i] = v
vp.compile_native(b.program, [sys.argv[1]])
"""


@pytest.mark.parametrize("target", ["cpu:x86-64-v4", "compute_90"])
def test_a_long_chain_does_not_overflow_the_stack(target: str) -> None:
    """In a process whose main thread has 256 KiB; LLVM takes more for 5,000 statements, and some 10 MiB for 60,000."""

    def little_stack() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    done = subprocess.run(
        [sys.executable, "-c", CHAIN, target], env=child_environment(VYRE_CACHE_LIMIT="0"), preexec_fn=little_stack, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def chain(statements: int) -> vp.Program:
    with vp.ProgramBuilder("chain") as b:
        n = b.dim("n")
        x = b.read_write("x", vp.u32, n)
        i = b.global_id(0)
        v = x[i]
        for k in range(statements // 2):
            v = (v ^ i) * (2 * k + 3)
        x[i] = v
    return b.program


@pytest.mark.parametrize("target", ["cpu", "compute_90"])
def test_what_takes_too_long_is_refused_with_the_figure(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    monkeypatch.setattr(large, "_MOST_LINES", 800)
    vp.compile_native(chain(20), [target])
    with pytest.raises(vp.Unsupported, match=r"a Program that makes \d[\d,]* lines of LLVM IR \(at most \d+ are compiled"):
        vp.compile_native(chain(1000), [target])


def test_a_straight_body_of_many_statements_computes_what_it_says() -> None:
    """Past the length at which LLVM's levels are lowered."""
    program = chain(6000)
    x = np.array([1, 2, 3, 5], np.uint32)
    expected, i = x.copy(), np.arange(4, dtype=np.uint32)
    for k in range(3000):
        expected = (expected ^ i) * np.uint32(2 * k + 3)
    np.testing.assert_array_equal(vp.device("cpu").compile_native(program).dispatch(x=x)["x"], expected)


def test_a_size_counts_code_and_not_what_is_said_of_it() -> None:
    text = "define void @f() {\nstart:\n  %a = add i32 1, 2\n  ret void\nb:\n  ret void\n}\n!0 = !{}\n"
    assert measure(text) == Size(7, 2)
    assert not Size(5000, 3000).large and Size(5000, 3000).generation(3) == 3
    assert Size(5000, 4000).large and Size(5000, 4000).generation(3) == 0


def test_a_stack_of_its_own_leaves_other_threads_as_they_were_and_raises_what_is_raised() -> None:
    before = threading.stack_size()
    assert Size(10**5, 10).run(lambda: threading.current_thread().name) == "vyre-llvm"
    assert Size(100, 10).run(lambda: threading.current_thread() is threading.main_thread())
    assert threading.stack_size() == before
    with pytest.raises(ZeroDivisionError):
        Size(10**5, 10).run(lambda: 1 // 0)
