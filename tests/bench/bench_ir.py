"""Programs of 10,000 statements: build, check, print, parse, digest and the passes, on one core.

    python tests/bench/bench_ir.py
"""

from __future__ import annotations

from measure import row, seconds

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.digest import code_digest
from vyre_py.ir.parser import parse
from vyre_py.ir.passes import optimise
from vyre_py.ir.printer import print_program
from vyre_py.ir.program import Program


def build(statements: int) -> Program:
    """Arithmetic, loads, stores and branches, `statements` of them."""
    with vp.ProgramBuilder("large") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n)
        i = b.global_id(0)
        total = b.var("total", vp.f32)
        value = x[i]
        for k in range(statements // 10):
            value = value * 1.5 + x[i + k]
            with b.if_(value > float(k)):
                total += value
            y[i] = value
    return b.program


def main() -> None:
    """Prints the table; the target is 500 ms each at 10,000 statements."""
    for statements in (1_000, 10_000):
        program = build(statements)
        text = print_program(program)
        checked = check(program)
        size = len(program.body)
        print(f"{size} statements, {len(text)} characters")
        for name, work in (
            ("build", lambda: build(statements)),  # noqa: B023 - called within this turn
            ("check", lambda: check(program)),  # noqa: B023 - called within this turn
            ("print", lambda: print_program(program)),  # noqa: B023 - called within this turn
            ("parse", lambda: parse(text)),  # noqa: B023 - called within this turn
            ("digest", lambda: code_digest(program)),  # noqa: B023 - called within this turn
            ("optimise", lambda: optimise(checked, expand=frozenset())),  # noqa: B023 - called within this turn
        ):
            taken = seconds(work, rounds=5)
            row(name, taken * 1e3, "ms", 500.0 * size / 10_000, "target")


if __name__ == "__main__":
    main()
