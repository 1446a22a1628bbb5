"""Programs of 10,000 statements: build, check, print, parse, digest and the passes, on one core.

    python tests/bench/bench_ir.py
"""

from __future__ import annotations

from functools import partial

from measure import row, seconds

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.language.digest import code_digest
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import optimise
from vyre_py.ir.text.parser import parse
from vyre_py.ir.text.printer import print_program


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
            ("build", partial(build, statements)),
            ("check", partial(check, program)),
            ("print", partial(print_program, program)),
            ("parse", partial(parse, text)),
            ("digest", partial(code_digest, program)),
            ("optimise", partial(optimise, checked, expand=frozenset())),
        ):
            taken = seconds(work, rounds=5)
            row(name, taken * 1e3, "ms", 500.0 * size / 10_000, "target")


if __name__ == "__main__":
    main()
