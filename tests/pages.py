"""The generated pages and pictures, from the tables they are about: `PAGES` names them, and `wire_pages` those of the wire form.

    python tests/pages.py        rewrites them

`test_pages.py` holds the committed pages against what these functions give.
"""

from __future__ import annotations

import linecache
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tree import ROOT, on_path

on_path()

from artifact_page import artifact_page  # noqa: E402 - the path above must stand first
from codegen_page import codegen_page  # noqa: E402 - as above
from face_page import face_page  # noqa: E402 - as above
from fast_page import fast_page  # noqa: E402 - as above
from kernel_pages import FIGURE_PAGES, FIGURE_PICTURES  # noqa: E402 - as above
from math_ulp_page import ulp_page  # noqa: E402 - as above
from model_pictures import MODEL_PICTURES  # noqa: E402 - as above
from reference_pages import REFERENCE  # noqa: E402 - as above
from telemetry_page import telemetry_page  # noqa: E402 - as above
from tile_pictures import PICTURES  # noqa: E402 - as above
from wire_pages import FILES  # noqa: E402 - as above

from vyre_py.ir.check import Checked, check  # noqa: E402 - as above
from vyre_py.ir.check.facts import GRID_BARRIER, GRID_SCAN, MEMORY_ORDER, OF_ATOMICS, OF_TYPES  # noqa: E402 - as above
from vyre_py.ir.language import describe  # noqa: E402 - as above
from vyre_py.ir.language.errors import Diagnostic, ProgramError, ProgramWarning  # noqa: E402 - as above
from vyre_py.ir.language.op import AtomicOp, Op, Operand, Result, SubgroupOp  # noqa: E402 - as above
from vyre_py.ir.language.ops import ATOMICS, OPS, SUBGROUPS  # noqa: E402 - as above
from vyre_py.ir.language.rules import RULES, Rule  # noqa: E402 - as above
from vyre_py.ir.language.tiles.tile_op import MAX_TILE_ELEMENTS, TileOp  # noqa: E402 - as above
from vyre_py.ir.language.tiles.tile_ops import MMA_TYPES, TILE_OPS  # noqa: E402 - as above
from vyre_py.ir.text.parser import parse  # noqa: E402 - as above
from vyre_py.lowering.compile import emit_text  # noqa: E402 - as above
from vyre_py.lowering.errors import Unsupported  # noqa: E402 - as above
from vyre_py.lowering.kinds import TARGET_KINDS, expanded_for  # noqa: E402 - as above

__all__ = ["COMMAND", "PAGES", "Example", "errors_page", "example_of", "ops_page"]

COMMAND: Final = "python tests/pages.py"
_EXAMPLES: Final = ROOT / "tests" / "filetests" / "check"
_WIDEST: Final = 120  # columns of an example that a page shows of one line

_FAMILIES: Final = {
    "P": "Text that does not parse",
    "W": "Bytes, JSON or arrays that are not a Program",
    "B": "A wrong call on a builder",
    "V1": "Structure and scope",
    "V2": "Types",
    "V3": "Memory",
    "V40": "Uniformity",
    "V47": "What is hardly meant",
    "V5": "Limits",
    "V6": "Tiles",
    "R": "What is seen while a Program runs",
}

_OPS_HEAD: Final = f"""# Ops

Made from `ir/language/ops.py` and the targets' tables by `{COMMAND}`; changes belong there.

`T` is one type for all operands marked with it: one of those beside, or a vector of 2 to 4 of them, and then the op works component by
component, `bool` stands for a bool per component, and an operand marked `bool` or `u32` is one for all components or one for each. Where T is
said to be "one of" or "vectors of", it is that alone. `S` is a type of its own. Integers are i8 to i64 and u8 to u64, floats f16, bf16, f32 and f64,
numbers both. The equations are what passes may use; other laws, associativity of floats among them, do not hold to the bit.

Where an op is computed, by kind of target (`ptx` is sm_NN, `host` is cpu): **built in** means by the target's own instructions or a function
in the emitted code; **expanded** means that `ir/math` writes it out in other ops first, so that all targets which do so give the same bits.
Floating point on `reference`, `ptx` and `host` is strict IEEE-754: every operation rounds once, nothing is fused or reordered, subnormals are
kept. WGSL leaves rounding to the device: a row marked **device's own** may differ there in its last bits, lose subnormals, or give anything
where an operand or a result is infinite or NaN. The sign and the other bits of a NaN that an op gives are unspecified, and may differ from target to target;
loads, stores, `select` and what takes vectors apart keep the bits of what they move; `bitcast` and the packs give the canonical quiet NaN,
0x7fc00000 for f32. Vectors are taken apart before all targets but `reference`, so that a vector costs what its
components do.
"""

_CAPABILITIES_HEAD: Final = """\
What a Program may ask beyond 8- to 32-bit integers, f32 and vectors of them, which every target has; `check(program).capabilities` names it.
The last columns say which targets compile such a Program: a `no` is the error `Unsupported`, with the op, the type and the place.
"""

_ATOMICS_HEAD: Final = """\
On elements of buffers and workgroup memory. Each but `atomic_store` gives the old value; outside of the memory nothing is changed and the result is 0.
The order in which invocations come is not fixed, so sums of floats may differ in their last bits; all else is exact.

As spelled here they are relaxed: they order no other memory. An order stands behind the name, `atomic_add.acq_rel(memory[i], x)`: `.acquire` (not on
`atomic_store`), `.release` (not on `atomic_load`), or `.acq_rel` (on neither); the order of an `atomic_compare_exchange` that changes nothing is `.acquire`
at most. It holds for the device, or with `.workgroup` behind it for the workgroup. `fence.device` and `fence.workgroup` are statements, and order all memory
accesses before them with all behind them. `docs/guide/memory-model.md` says what that means.
"""

_SUBGROUPS_HEAD: Final = """\
A Program says in its head how many invocations make a subgroup: `subgroup(S)`, S a power of two from 1 to 128 that divides the workgroup. S is the Program's
number, not the device's, so each op has one meaning everywhere: invocation k of a workgroup, by `local_index`, is lane k % S of subgroup k / S. All S lanes
take part, always: an op is legal where a subgroup comes to it together (V405), and there is no mask of active lanes. Ops order no memory.

A shuffle and a match move or compare every component of a vector alike; a reduction or scan works component by component. Floats are folded in the order that
the row says, so the bits are the same everywhere, but for the rounding of WGSL. A lane that does not exist gives zero. A mask is a `u32` for S up to 32, of
whose bits lane k has bit k; for S = 64 a `u32x2`, for S = 128 a `u32x4`, with lane k in bit k % 32 of component k / 32. In Python a reduction is
`b.subgroup_reduce("add", x)`, a scan `b.subgroup_scan("add", x, exclusive=True)`, and every other op the builder's method of its name.

The identity, with which an exclusive scan begins, is 0 for add, or and xor, 1 for mul, all bits for and; for min the greatest value of the type and for max the
least, for floats the infinities.
"""

_TILES_HEAD: Final = f"""\
A Program says `tiles` in its head in place of `workgroup(...)`: then its values are scalars, the same for a whole workgroup, and tiles, arrays of 1 to 3 axes
and constant extents, of at most {MAX_TILE_ELEMENTS} elements, which a workgroup has together. The type is written `tile(f32, 128, 256)`. Such a Program says
how many workgroups run, `grid(...)`, and nothing of invocations, which are the compiler's affair.

Every op that works component by component goes over tiles element by element: between tiles of as many axes, where an extent of 1 goes with any, and
scalars, which go with all; so do conversions. `memory[i : 128, j]` is a load of a tile, and `memory[i : 128, j] = x` a store: from the offset on
along each axis, as many elements as the extent says; an axis without an extent is none of the tile's. What is outside, along each axis by itself, is zero
when it is loaded and dropped when it is stored. `tile_atomic_add(memory[i : 128, j], x)` adds each element as a relaxed atomic.

The ops below take values, and then numbers, which are constant. The order in which elements are folded is fixed, so the bits of floats are the same
everywhere, but for the rounding of WGSL and the sums of `mma_tensor`.
"""

_ERRORS_HEAD: Final = f"""# Errors

Made from `ir/language/rules.py` and the Programs in `tests/filetests/check/` by `{COMMAND}`; changes belong there.

Each finding names a rule by its code. A rule is shown by what breaks it, the finding as it is printed, and the same mended: in the text of
Programs, or in Python where text cannot say it, or not briefly. The words of a help are those for the general case: a finding may know
better. `python -m vyre_py explain V201` says the same in a terminal.
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
    if op.approximates:
        return f"on PTX approximate instructions where there are; on WGSL the device's own; elsewhere {op.approximates}"
    expanding = [kind for kind in TARGET_KINDS if op.name in expanded_for(kind)]
    rest = [kind for kind in TARGET_KINDS if kind not in expanding]
    places = "built in"
    if expanding:
        places = f"{'' if op.expands == op.of else f'{describe.family(op.expands)}: '}expanded on {', '.join(expanding)}, {_accuracy(op)}"
        places += f"; built in on {', '.join(rest)}" if rest else ""
    elif not op.is_lanewise:
        places = "built in on reference, elsewhere written out by components"
    computes_floats = any(t.is_float for t in op.of) or (op.fixed is not None and op.fixed.is_float)
    moves_only = op.moves_bits or op.result is Result.VECTOR or Operand.LANES in op.operands or not computes_floats
    return places if moves_only else f"{places}; floats on WGSL: device's own"


def _accuracy(op: Op) -> str:
    """How far an expansion's result may be from the exact one."""
    return f"at most {op.ulp} ULP" if op.through else "to the same bits"


# Capability -> an element type and a statement that ask for it, and for nothing else that a target may lack.
_ASKING: Final[dict[str, tuple[str, str]]] = {
    "int64": ("i64", "y[i] = y[i] * 3"),
    "float16": ("f16", "y[i] = y[i] * 3.0"),
    "bfloat16": ("bf16", "y[i] = y[i] * 3.0"),
    "float8": ("f8e4m3", "y[i] = cast(cast(y[i], f32) * 3.0, f8e4m3)"),
    "float64": ("f64", "y[i] = y[i] * 3.0"),
    "int64_atomics": ("u64", "atomic_add(y[i], 1)"),
    "float32_atomics": ("f32", "atomic_add(y[i], 1.0)"),
    "float64_atomics": ("f64", "atomic_add(y[i], 1.0)"),
    "grid_barrier": ("u32", "grid_barrier"),
    "grid_scan": ("u32", "y[i] = grid_scan(add, workgroup_id.x)"),
    "memory_order": ("u32", "fence.device"),
}
_ASKED: Final = ("reference", "sm_90", "cpu", "wgsl", "wgsl:f64", "wgsl:i64:i64atomics")


def _capability_row(name: str, by: str) -> tuple[str, ...]:
    type_, line = _ASKING[name]
    checked = check(parse(f"program p(n) {{\n  buffer y: {type_}[n] read_write\n  let i = global_id.x\n  {line}\n}}"))
    assert name in checked.capabilities
    return (_code(name), by, *(_compiles(checked, target) for target in _ASKED))


def _compiles(checked: Checked, target: str) -> str:
    try:
        emit_text(checked, target)
    except Unsupported:
        return "no"
    return "yes"


def _capability_rows() -> list[tuple[str, ...]]:
    asked: dict[str, str] = {}
    for table, words in ((OF_TYPES, ""), (OF_ATOMICS, "atomics on ")):
        for type_, name in table.items():
            asked[name] = f"{asked[name]}, {type_}" if name in asked else f"{words}{type_}"
    asked |= {GRID_BARRIER: _code("grid_barrier"), GRID_SCAN: _code("grid_scan"), MEMORY_ORDER: "fences, and atomics of another order than relaxed"}
    return [_capability_row(name, by) for name, by in asked.items()]


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
    types = f"{_code(describe.signature(op))}, {describe.accepted(op)}"
    return _code(describe.full_name(op)), _code(describe.spelling(op)), types, _cell(op.doc)


def _subgroup_row(op: SubgroupOp) -> tuple[str, ...]:
    types = f"{_code(describe.signature(op))}, {describe.accepted(op)}"
    return _code(describe.spelling(op)), types, _cell(op.doc), describe.how_uniform(op)


def _tile_row(op: TileOp) -> tuple[str, ...]:
    return _code(describe.spelling(op)), describe.accepted(op), _cell(op.doc)


def _mma_rows() -> list[tuple[str, ...]]:
    return [(str(a), str(b), ", ".join(sorted(map(str, sums)))) for (a, b), sums in MMA_TYPES.items()]


def _law(text: str) -> str:
    equation, bracket, note = text.partition(" (integers only")
    return _code(equation) + bracket + note


def ops_page() -> str:
    """The page of ops, queries, atomics, subgroup ops and tile ops."""
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
        "## Capabilities\n",
        _CAPABILITIES_HEAD,
        _table(("capability", "asked by", *map(_code, _ASKED)), _capability_rows()),
        "## Atomics\n",
        _ATOMICS_HEAD,
        _table(
            ("atomic", "spelled", "types", "meaning"),
            map(_atomic_row, ATOMICS.values()),
        ),
        "## Subgroups\n",
        _SUBGROUPS_HEAD,
        _table(("op", "types", "meaning", "uniformity"), map(_subgroup_row, SUBGROUPS.values())),
        "## Tiles\n",
        _TILES_HEAD,
        _table(("op", "types", "meaning"), map(_tile_row, TILE_OPS.values())),
        "What `mma` and `mma_tensor` multiply, and in which types the products are summed:\n",
        _table(("elements of a", "of b", "of acc"), _mma_rows()),
    ]
    return "\n".join(parts)


@dataclass(frozen=True)
class Example:
    """What breaks a rule, and the same mended; Python where text cannot show it."""

    code: str
    python: bool
    bad: str
    good: str

    def run(self, text: str) -> tuple[Diagnostic, ...]:
        """The warnings. Raises what reading and checking the text, or running the Python, raises."""
        file = f"{self.code}.{'py' if self.python else 'vir'}"
        if not self.python:
            return check(parse(text, file)).warnings
        # The builder names the line at fault, and finds its text here.
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            exec(compile(text, file, "exec"), {"__name__": file})
        return tuple([found.message.diagnostic for found in given if isinstance(found.message, ProgramWarning)])

    def finding(self) -> str:
        """The finding about what is bad, as it is printed."""
        found: tuple[Diagnostic, ...] = ()
        try:
            found = self.run(self.bad)
        except ProgramError as error:
            found = error.diagnostics
        shown = next((str(d) for d in found if d.code == self.code), None)
        assert shown is not None, f"the example of {self.code} gives {[d.code for d in found]}"
        return "\n".join([line if len(line) <= _WIDEST else line[: _WIDEST - 3] + "..." for line in shown.split("\n")])


def example_of(code: str) -> Example:
    """The example in the filetest of the rule: its last two Programs, or a file of two pieces of Python."""
    python = _EXAMPLES / f"{code}.py.txt"
    text = (python if python.is_file() else _EXAMPLES / f"{code}.vir").read_text(encoding="utf-8")
    bad, _, good = text.partition("# ---- mended\n" if python.is_file() else "// ---- mended\n")
    bad = bad.rpartition("// ---- example\n")[2]
    # The comment that a filetest expects the finding by would only say it twice.
    bad = re.sub(r" +// (error|warning): .*", "", bad)
    return Example(code, python.is_file(), bad.strip() + "\n", good.strip() + "\n")


def _rule(rule: Rule) -> str:
    example = example_of(rule.code)
    fence = "```python" if example.python else "```"
    said = [f"### {rule.code}: {rule.title}\n", f"{rule.reason}{' A warning: the Program is valid.' if rule.warning else ''}\n"]
    if rule.help:
        said.append(f"Help: {rule.help}\n")
    said += [f"{fence}\n{example.bad}```\n", f"```\n{example.finding()}\n```\n", "Mended:\n", f"{fence}\n{example.good}```\n"]
    return "\n".join(said)


def errors_page() -> str:
    """The page of rules."""
    parts = [_ERRORS_HEAD]
    for prefix, title in _FAMILIES.items():
        parts += [f"## {title}\n", *(_rule(rule) for code, rule in RULES.items() if code.startswith(prefix))]
    return "\n".join(parts)


PAGES: Final[dict[str, Callable[[], str]]] = {
    "ir/OPS.md": ops_page, "ir/ERRORS.md": errors_page, "ir/math/ULP.md": ulp_page,
    "lowering/FAST.md": fast_page, "lowering/CODEGEN.md": codegen_page, "lowering/ARTIFACT.md": artifact_page,
    "drivers/TELEMETRY.md": telemetry_page, "vyre_py/__init__.pyi": face_page, **REFERENCE, **PICTURES, **MODEL_PICTURES, **FIGURE_PAGES, **FIGURE_PICTURES,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")
    from photograph_picture import PICTURE, picture_file

    for path, make in {**FILES, PICTURE: picture_file}.items():
        path.write_bytes(make())
