"""The generated pages `ir/OPS.md` and `ir/ERRORS.md`, from the tables they are about.

    python tests/pages.py        rewrites both

`test_pages.py` holds the committed pages against what these functions give.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [] if str(ROOT) in sys.path else [str(ROOT)]

from vyre_py.ir import describe  # noqa: E402 - the path above must stand first
from vyre_py.ir.math import EXPANSIONS  # noqa: E402 - as above
from vyre_py.ir.ops import ATOMICS, OPS, AtomicOp, Op  # noqa: E402 - as above
from vyre_py.ir.rules import RULES, Rule  # noqa: E402 - as above
from vyre_py.lowering.compile import _TARGETS  # noqa: E402 - as above
from vyre_py.lowering.wgsl.legal import _EXACT_OPS  # noqa: E402 - as above

__all__ = ["COMMAND", "PAGES", "errors_page", "example_of", "ops_page"]

COMMAND: Final = "python tests/pages.py"
_EXAMPLES: Final = ROOT / "tests" / "filetests" / "check"
_WIDEST: Final = 120  # columns of an example that a page shows of one line

_FAMILIES: Final = {
    "P": "Text that does not parse",
    "B": "A wrong call on a builder",
    "V1": "Structure and scope",
    "V2": "Types",
    "V3": "Memory",
    "V4": "Uniformity",
    "V5": "Limits",
}

_OPS_HEAD: Final = f"""# Ops

Made from `ir/ops.py` and the targets' tables by `{COMMAND}`; changes belong there.

`T` is one type for all operands marked with it, drawn from the list beside; `S` is a type of its own. The equations are what passes may use;
other laws, associativity of floats among them, do not hold to the bit.

Where an op is computed, by kind of target (`ptx` is sm_NN, `host` is cpu): **built in** means by the target's own instructions or a function
in the emitted code; **expanded** means that `ir/math` writes it out in other ops first, so that all targets which do so give the same bits.
Floating point on `reference`, `ptx` and `host` is strict IEEE-754: every operation rounds once, nothing is fused or reordered, subnormals are
kept. WGSL leaves rounding to the device: a row marked **device's own** may differ there in its last bits, lose subnormals, or give anything
where an operand or a result is infinite or NaN.
"""

_ATOMICS_HEAD: Final = """\
On elements of buffers and workgroup memory, relaxed, built in on every target. Each gives the old value; outside of the memory nothing is
changed and the result is 0. Integers only, so results are exact; the order in which invocations come is not fixed.
"""

_ERRORS_HEAD: Final = f"""# Errors

Made from `ir/rules.py` and the Programs in `tests/filetests/check/` by `{COMMAND}`; changes belong there.

Each finding names a rule by its code. In the Programs, `// error:` stands on the line of a finding, or on the line before it, with words
of its message; long lines are cut. A rule without a Program is about what text cannot say, or cannot say briefly. The words of a help
are those for the general case: a finding may know better. `python -m vyre_py explain V201` says the same in a terminal.
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)) + "\n"


def _where(op: Op) -> str:
    """Which targets compute the op themselves, which expand it, and where the bits may differ."""
    expanding = [kind for kind, (_, own) in _TARGETS.items() if op.expands and op.name not in own]
    places = "built in"
    if expanding:
        rest = [kind for kind in _TARGETS if kind not in expanding]
        places = f"expanded on {', '.join(expanding)}, {_accuracy(op)}; built in on {', '.join(rest)}"
    moves_only = op.name in _EXACT_OPS or not (any(t.is_float for t in op.of))
    return places if moves_only else f"{places}; floats on WGSL: device's own"


def _accuracy(op: Op) -> str:
    """How far an expansion's result may be from the exact one, as its module says."""
    found = re.search(r"at most \d+ ULP", sys.modules[EXPANSIONS[op.name].__module__].__doc__ or "")
    assert found is not None, f"the module of {op.name} does not say how accurate it is"
    return found[0]


def _op_row(op: Op) -> tuple[str, ...]:
    return (
        _code(op.name),
        _code(describe.spelling(op)),
        f"{_code(describe.signature(op))}, {describe.accepted(op)}",
        _cell(op.doc),
        "<br>".join(map(_law, describe.laws(op))),
        _where(op),
    )


def _atomic_row(op: AtomicOp) -> tuple[str, ...]:
    types = f"{_code(describe.atomic_signature(op))}, {describe.accepted(op)}"
    return _code(f"atomic_{op.name}"), _code(describe.atomic_spelling(op)), types, _cell(op.doc)


def _law(text: str) -> str:
    equation, bracket, note = text.partition(" (integers only")
    return _code(equation) + bracket + note


def ops_page() -> str:
    """The page of ops, queries and atomics."""
    computed = [op for op in OPS.values() if not op.is_query]
    queries = [op for op in OPS.values() if op.is_query]
    parts = [
        _OPS_HEAD,
        "## Operations\n",
        _table(("op", "spelled", "types", "meaning", "laws", "where"), map(_op_row, computed)),
        "## Queries\n",
        "Where the invocation is. No operands, exact and built in everywhere; on `reference` and `host` the numbers are arrays or vectors of lanes.\n",
        _table(
            ("query", "type", "meaning", "uniformity"),
            ((_code(op.name), _code(describe.signature(op)), _cell(op.doc), describe.how_uniform(op)) for op in queries),
        ),
        "## Atomics\n",
        _ATOMICS_HEAD,
        _table(
            ("atomic", "spelled", "types", "meaning"),
            map(_atomic_row, ATOMICS.values()),
        ),
    ]
    return "\n".join(parts)


def _short(line: str) -> str:
    """A line that fits the page: what is left out of a long one is its middle, since the finding is told at its end."""
    if len(line) <= _WIDEST:
        return line
    code, mark, finding = line.partition(" // error:")
    return f"{code[: _WIDEST // 2].rstrip()} ...{mark}{finding}"


def example_of(code: str) -> str | None:
    """A Program that gives the finding, from the checker's filetests: the first there whose comments name it. None when there is none."""
    path = _EXAMPLES / f"{code}.vir"
    if not path.is_file():
        return None
    programs = re.split(r"^(?=program\b)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    text = next(p for p in programs if f"error: {code}" in p)
    return "\n".join(map(_short, text.rstrip().split("\n")))


def _rule(rule: Rule) -> str:
    said = [f"### {rule.code}: {rule.title}\n"]
    if not rule.code.startswith("B"):
        said.append(f"{rule.reason}\n")
    if rule.help:
        said.append(f"Help: {rule.help}\n")
    if (example := example_of(rule.code)) is not None:
        said.append(f"```\n{example}\n```\n")
    return "\n".join(said)


def errors_page() -> str:
    """The page of rules."""
    parts = [_ERRORS_HEAD]
    for prefix, title in _FAMILIES.items():
        parts += [f"## {title}\n", *(_rule(rule) for code, rule in RULES.items() if code.startswith(prefix))]
    return "\n".join(parts)


PAGES: Final[dict[str, Callable[[], str]]] = {"ir/OPS.md": ops_page, "ir/ERRORS.md": errors_page}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")
