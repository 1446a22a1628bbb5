"""The page `ir/math/ULP.md`: how accurate the transcendental functions were measured to be, from `ir/math/ulp.json`.

`tests/bench/math_ulp.py` measures and writes both; `pages.py` holds the page with the others that are generated.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from tree import ROOT

from vyre_py.ir.language.ops import OPS, TRANSCENDENTAL
from vyre_py.ir.language.types import f64

__all__ = ["COMMAND", "Measured", "read_measured", "ulp_page", "write_measured"]

COMMAND: Final = "python tests/bench/math_ulp.py"
_LARGE: Final = 1e5  # ULP; of an error beyond it the size is enough
FIGURES: Final = ROOT / "ir" / "math" / "ulp.json"

_FUNCTIONS: Final = {name: len(row.operands) for name, row in OPS.items() if name in TRANSCENDENTAL}

_HEAD_F64: Final = """\
Of f64 each function was given a million arguments: drawn from all bit patterns and from the ranges where it bends, and those that are hard:
next to multiples of pi/2, poles, roots, the ends of domains and of reductions. The exact results are those of x87's 80 bits (of mpmath for
error functions), and for the 200 arguments where the error was greatest those of mpmath.
"""

_HEAD: Final = f"""# Accuracy of the transcendental functions

Measured by `{COMMAND}`, which writes this page; the figures are in `ulp.json` beside it.

ULP are units in the last place of the exact result in the type of the column, subnormal results included; 0.5 is a correctly rounded
function. A function of one argument was given the stated share of all bit patterns of its type, and every special value among them had to be
right: NaN, infinities, the sign of zero. Those of several were given random ones. The exact results are those of f64 functions for the same
arguments. reference, cpu and cuda compute the same bits, so that one column stands for all three, from the device that was given most.
"""


@dataclass(frozen=True)
class Measured:
    """One function of one type on one kind of device.

    `arguments` how many, `worst_ulp` the greatest error, `at` where, as hexadecimal floats, `wrong` how many special results were not what
    C's Annex F says: a NaN or infinity too many or too few, or a zero of the wrong sign.
    """

    function: str
    type: str
    device: str
    arguments: int
    worst_ulp: float
    at: tuple[str, ...]
    wrong: int

    @property
    def key(self) -> tuple[str, str, str]:
        """What there is one of."""
        return self.function, self.type, self.device


def read_measured() -> dict[tuple[str, str, str], Measured]:
    """What is in the file, by `Measured.key`."""
    rows = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.is_file() else []
    found = [Measured(**{**row, "at": tuple(row["at"])}) for row in rows]
    return {row.key: row for row in found}


def write_measured(rows: dict[tuple[str, str, str], Measured]) -> None:
    """Replaces the file, in the order of the functions."""
    order = list(_FUNCTIONS)
    made = sorted(rows.values(), key=lambda row: (order.index(row.function), row.type, row.device))
    lines = ",\n".join(json.dumps(asdict(row)) for row in made)
    FIGURES.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


_STRICT: Final = ("reference", "cpu", "cuda")
_TYPES: Final = {"f32": 1 << 32, "f16": 1 << 16, "bf16": 1 << 16}


_SEVERAL: Final = {2: "pairs", 3: "triples"}


def _share(row: Measured) -> str:
    if _FUNCTIONS[row.function] > 1:
        return f"{row.arguments:,} {_SEVERAL[_FUNCTIONS[row.function]]}"
    if row.type not in _TYPES:
        return f"{row.arguments:,}"
    whole = _TYPES[row.type]
    return "all" if row.arguments == whole else f"1 in {round(whole / row.arguments)}"


def _strict(rows: dict[tuple[str, str, str], Measured], function: str, type_: str) -> Measured | None:
    found = [rows[key] for device in _STRICT if (key := (function, type_, device)) in rows]
    return max(found, key=lambda row: row.arguments, default=None)


def _cells(row: Measured | None) -> list[str]:
    if row is None:
        return [""] * 2
    wrong = f", {row.wrong} wrong" if row.wrong else ""
    return [f"{row.worst_ulp:.4f}{wrong}" if row.worst_ulp < _LARGE else f"{row.worst_ulp:.2g}{wrong}", _share(row)]


def ulp_page() -> str:
    """The page."""
    rows = read_measured()
    head = ["function", "f32", "of", "at", *(cell for type_ in ("f16", "bf16") for cell in (type_, "of"))]
    lines = [head, ["---"] * len(head)]
    for function in _FUNCTIONS:
        first = _strict(rows, function, "f32")
        at = "" if first is None else ", ".join(f"`{x}`" for x in first.at)
        narrow = [cell for type_ in ("f16", "bf16") for cell in _cells(_strict(rows, function, type_))]
        lines.append([f"`{function}`", *_cells(first), at, *narrow])
    parts = [_HEAD, "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"]
    wide = [["function", "f64", "of", "at"], ["---"] * 4]
    for function in [name for name in _FUNCTIONS if f64 in OPS[name].of]:
        row = _strict(rows, function, "f64")
        wide.append([f"`{function}`", *_cells(row), "" if row is None else ", ".join(f"`{x}`" for x in row.at)])
    parts += [_HEAD_F64, "\n".join("| " + " | ".join(line) + " |" for line in wide) + "\n"]
    own = [row for row in rows.values() if row.device not in _STRICT]
    if own:
        table = [["function", "type", "device", "worst", "of"], ["---"] * 5]
        table += [[f"`{row.function}`", row.type, row.device, *_cells(row)] for row in own]
        about = (
            "Where a device computes some of the functions itself, over arguments and results that are normal numbers (and angles up to 256). The others are\n"
            "expanded there, too; their sums are kept from being cancelled, and what is beyond 3 ULP comes of an `fma` that rounds twice, as WebGPU lets it:\n"
        )
        parts += [about, "\n".join("| " + " | ".join(line) + " |" for line in table) + "\n"]
    return "\n".join(parts)
