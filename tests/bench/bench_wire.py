"""The door: from flat arrays, bytes and JSON to a Program, and back, on one core.

    python tests/bench/bench_wire.py [STATEMENTS]
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tree import on_path

on_path()

from generator import Seeded, generate  # noqa: E402 - the path above must stand first
from measure import row, seconds  # noqa: E402 - as above
from test_from_nodes import arrays_of, chain  # noqa: E402 - as above

from vyre_py.ir.check import check  # noqa: E402 - as above
from vyre_py.ir.language.program import Program  # noqa: E402 - as above


def main(statements: int) -> None:
    """Prints the table: arrays to `Checked` within 2 s at 100,000 statements, decoding within 1 us a byte."""
    plain, mixed = chain(statements), generate(Seeded(1), budget=statements).program
    drawn = arrays_of(mixed)
    for name, arrays in (("additions", plain), ("generated", drawn)):
        size = len(arrays["codes"])
        program = Program.from_nodes(**arrays)
        print(f"{name}: {size} statements")
        row("  arrays to Program", seconds(partial(lambda a: Program.from_nodes(**a), arrays), rounds=3), "s")
        row("  check", seconds(partial(check, program), rounds=3), "s")
        row("  arrays to Checked", seconds(partial(lambda a: check(Program.from_nodes(**a)), arrays), rounds=3), "s", 2.0 * size / 100_000, "target")
    size = len(mixed.body)
    data, text = mixed.to_bytes(), mixed.to_json()
    for name, work, length in (
        ("to_bytes", mixed.to_bytes, len(data)), ("from_bytes", partial(Program.from_bytes, data), len(data)),
        ("to_json", mixed.to_json, len(text)), ("from_json", partial(Program.from_json, text), len(text)),
    ):
        taken = seconds(work, rounds=3)
        row(f"{name}, {length / size:.1f} bytes a statement", taken / size * 1e6, "us/stmt")
        row(f"{name}", taken / length * 1e6, "us/byte", 1.0 if name.startswith("from") else None, "limit")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
