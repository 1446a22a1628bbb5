"""Counted loops (`lowering/llvm/gpu/interrupt/counted_loops.py`): which are found, and that strips of them are exact and short, on the host."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
import simt_host
from test_interrupt import until_cancelled

from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.nodes import Loop
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.passes import unoptimised
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import prepare
from vyre_py.lowering.llvm.gpu.interrupt import checks, interruptible
from vyre_py.lowering.llvm.gpu.interrupt.counted_loops import Counters
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

TARGET = Target("ptx", "sm_90")
INTERRUPTIBLE = CompileOptions(interruptible=True)
STRIP = 64

HEAD = """program p workgroup(1) over(1) {{
  param first: {t}
  param bound: {t}
  param zero: u32
  buffer out: u32[5] write
  buffer given: u32[4] read
  var k: {t} = first
  var x: u32 = 1
  var turns: u32 = 0
  {body}
  out[0] = {k}
  out[1] = x
  out[2] = turns
}}"""


def program_of(body, kind="u32"):
    return parse(HEAD.format(body=body, t=kind, k="k" if kind == "u32" else "cast(k, u32)"))


def counter(body, kind="u32"):
    program = prepare(check(program_of(body, kind)), TARGET, INTERRUPTIBLE).program
    found = Counters(program).of(next(i for i, s in enumerate(program.body) if isinstance(s, Loop)))
    return found and (found.name, found.step, found.late)


# Body of a loop -> what is found: when it ends, the step, whether the step comes before the test.
FOUND = {
    "if k >= bound { break }; x = x * 3; k = k + 1": ("ge", 1, False),
    "if bound <= k { break }; x = x * 3; k = 1 + k": ("ge", 1, False),
    "if k >= bound || x > 100 { break }; x = x * 3; k = k + 1": ("ge", 1, False),
    "if !(x < 100 && k < bound) { break }; x = x * 3; k = k + 1": ("ge", 1, False),
    "if x > 100 { break }; if k >= bound { break }; x = x * 3; if x == 7 { break }; k = k + 1": ("ge", 1, False),
    "if given[x % 4] == 9 { return }; if k >= bound { break }; x = x * 3; k = k + 1; if x == 8 { continue }; x = x + 1": ("ge", 1, False),
    "if x > 9 { if x == 100 { break } }; if k == 10 { break }; k = k - 1; x = x * 3": ("eq", -1, False),
    "if k <= bound { break }; x = x * 3; k = k - 1": ("le", -1, False),
    "x = x * 3; k = k + 1; if k >= bound { break }": ("ge", 1, True),
    "x = x * 3; if x == 8 { break }; k = k - 1; if k == 0 { break }": ("eq", -1, True),
    "for j in 0u32..4 { x = x * 3 + j }; k = k + 1; if bound <= k { break }": ("ge", 1, True),
    # A bound that may never be passed.
    "if k > bound { break }; x = x * 3; k = k + 1": None,
    "if k < bound { break }; x = x * 3; k = k - 1": None,
    "if k <= bound { break }; x = x * 3; k = k + 1": None,
    "if k != bound { break }; x = x * 3; k = k + 1": None,
    # No counter, or a bound that changes.
    "if k >= bound { break }; x = x * 3; k = k + 2": None,
    "if k >= bound { break }; x = x * 3; k = k * 3": None,
    "if k >= bound { break }; x = x * 3; k = k + 1; k = k + 1": None,
    "if k >= bound { break }; x = x * 3; if x != 8 { k = k + 1 }": None,
    "for j in 0u32..2 { k = k + 1 }; if k >= bound { break }": None,
    "if cast(k, u32) >= x { break }; x = x + 2; k = k + 1": None,
    # Ways past the step or the test.
    "if k >= bound { break }; x = x * 3; if x % 5 == 1 { continue }; k = k + 1": None,
    "x = x * 3; if x % 5 == 1 { continue }; k = k + 1; if k >= bound { break }": None,
    "x = x * 3; k = k + 1; if x % 5 == 1 { continue }; if k >= bound { break }": None,
    "if x < 50 { if k >= bound { break } }; x = x * 3; k = k + 1": None,
    # Breaks at which the counter may be at the bound, and tests that do more than end the loop.
    "if k >= bound { break }; k = k + 1; x = x * 3; if x > 50 { break }": None,
    "x = x * 3; k = k + 1; if x > 50 { break }; if k >= bound { break }": None,
    "x = x * 3; k = k + 1; if k >= bound || x > 50 { break }": None,
    "if k >= bound { x = 7; break }; x = x * 3; k = k + 1": None,
    # Turns that cannot be begun again.
    "x = x * 3; if k >= bound { break }; k = k + 1": None,
    "k = k + 1; if k >= bound { break }; x = x * 3": None,
    "k = k + 1; if k >= bound { break }; if x == given[0] { return }": None,
    "out[3] = x; if k >= bound { break }; k = k + 1": None,
}  # fmt: skip


@pytest.mark.parametrize("body", FOUND)
def test_what_is_found(body):
    assert counter(f"loop {{ {body} }}", "i32") == FOUND[body]


def test_of_other_types_none_is_found():
    for kind in ("u64", "u16", "f32"):
        assert counter(f"loop {{ if k >= bound {{ break }}; x = x * 3; k = k + {1.0 if kind == 'f32' else 1} }}", kind) is None


@pytest.fixture
def short(monkeypatch):
    """Strips of a few turns, and a flag that is looked at after each, whose second word counts the looks."""
    for module in (checks, interruptible):
        monkeypatch.setattr(module, "STRIP", STRIP)
    monkeypatch.setattr(interruptible, "_SHORT", 4)
    monkeypatch.setattr(checks, "_INTERVAL", 0)
    pause = checks.Watch.pause

    def counting(self):
        looks = self.w.let(f"getelementptr i32, ptr addrspace(1) {self._flag}, i64 1")
        before = self.w.let(f"load i32, ptr addrspace(1) {looks}")
        self.w.line(f"store i32 {self.w.let(f'add i32 {before}, 1')}, ptr addrspace(1) {looks}")
        pause(self)

    monkeypatch.setattr(checks.Watch, "pause", counting)


def run(body, kind, first, bound):
    """Runs the Program and the interpreter, which agree; gives what was written, and how often the flag was looked at."""
    program = check(program_of(body, kind))
    type_ = np.uint32 if kind == "u32" else np.int32
    given = {"first": type_(first), "bound": type_(bound), "zero": np.uint32(0), "given": np.arange(4, dtype=np.uint32)}
    want, got = ({**given, "out": np.zeros(5, np.uint32)} for _ in range(2))
    with np.errstate(all="ignore"):
        interpret(unoptimised(program, expand=EXPANDED_ONLY), want, {})
    cancel = np.zeros(2, np.uint32)
    simt_host.run(prepare(program, TARGET, INTERRUPTIBLE), got, {}, options=INTERRUPTIBLE, cancel=cancel)
    assert got["out"].tolist() == want["out"].tolist(), (kind, first, bound, body)
    return got["out"], int(cancel[1])


# `turns > 300` ends what would take long, and is no counter's test.
CHECKED = "if turns > 300 { break }; "
SHAPES = {
    "ge": CHECKED + "if k >= bound { break }; x = x * 3; turns = turns + 1; k = k + 1",
    "ge and more": CHECKED + "if x % 97 == 5 || k >= bound { break }; x = x * 3 + 2; if x % 89 == 7 { break }; turns = turns + 1; k = k + 1; "
    "if x % 5 == 1 { continue }; x = x + 1",
    "le": CHECKED + "if k <= bound { break }; x = x * 3; turns = turns + 1; k = k - 1",
    "eq": CHECKED + "if k == bound { break }; x = x * 3; turns = turns + 1; k = k + 1",
    "eq down": CHECKED + "if k == bound || x % 101 == 5 { break }; x = x * 3 + 1; turns = turns + 1; k = k - 1",
    "ge late": CHECKED + "x = x * 3; turns = turns + 1; k = k + 1; if k >= bound { break }",
    "le late": CHECKED + "x = x * 3; if x % 89 == 7 { break }; turns = turns + 1; k = k - 1; if k <= bound { break }",
    "eq late": CHECKED + "x = x * 3; turns = turns + 1; k = k + 1; if k == bound { break }",
    "eq down late": CHECKED + "x = x * 3; turns = turns + 1; k = k - 1; if k == bound { break }",
}


@pytest.mark.parametrize("kind", ["u32", "i32"])
@pytest.mark.parametrize("shape", SHAPES)
def test_strips_are_exact_and_short(shape, kind, short):
    """Around the ends of the type, where counters wrap, and over lengths that meet strips in every way."""
    body = f"loop {{ {SHAPES[shape]} }}"
    assert counter(body, kind) is not None
    low, high = (0, 2**32 - 1) if kind == "u32" else (-(2**31), 2**31 - 1)
    middle = 1000 if kind == "u32" else -3
    down = -1 if counter(body, kind)[1] < 0 else 1
    pairs = [(middle, middle + down * d) for d in (-1, 0, 1, 2, 7, 8, 9, 31, 64, 150)]
    pairs += list(product((low, low + 1, low + 20, high - 20, high - 1, high), repeat=2))
    for first, bound in pairs:
        out, looks = run(body, kind, first, bound)
        turns = int(out[2])
        # A turn is some units, so that a strip is a few turns; each ends in a look but the last.
        assert turns // STRIP - 1 <= looks <= turns, (first, bound, turns, looks)


@pytest.mark.parametrize("seed", range(12))
def test_generated_loops(seed, short):
    """Loops put together by chance, those without a counter among them, alone and within another loop."""
    chance = random.Random(4000 + seed)
    leave = ["if x % 31 == 3 { break }", "if x % 41 == 7 { continue }", "if given[x % 4] == x % 7 { break }", "if x % 199 == 5 { return }", ""]
    for _ in range(6):
        test = chance.choice(["k >= bound", "bound <= k", "k == bound", "k <= bound", "!(k < bound)", "k >= bound || x % 23 == 4", "k > bound", "k != bound"])
        step = chance.choice(["k = k + 1", "k = k - 1", "k = 1 + k", "k = k + 2"])
        parts = [f"if {test} {{ break }}", step, "x = x * 3 + 1", *chance.choices(leave, k=3), "if x % 2 == 0 { x = x + 5 }"]
        chance.shuffle(parts)
        fuel = "turns = turns + 1; if turns > 300 { break }"  # every turn burns some: where that is at the end, nothing goes past it
        if at_the_end := chance.random() < 0.5:
            parts = [part for part in parts if "continue" not in part]
        loop = f"loop {{ {'; '.join(filter(None, [*parts, fuel] if at_the_end else [fuel, *parts]))} }}"
        body = loop if chance.random() < 0.5 else f"for i in 0u32..(5 + zero) {{ {loop}; x = x + 1; k = first }}"
        kind = chance.choice(["u32", "i32"])
        for first, bound in [(0, 0), (0, 9), (5, 200), (7, 3), (2**31 - 4, 2**31 - 1)]:
            run(body, kind, first, bound)


@pytest.mark.parametrize("body", [
    "loop { if k == bound { break }; x = x * 3 + 1; k = k + 1 }",
    "loop { if k >= 4294967295 { break }; x = x * 3 + 1; k = k + 1 }",
    "loop { x = x * 3 + 1; k = k + 1; if k == first { break } }",
    "loop { loop { if k <= 0 { break }; x = x * 3 + 1; k = k - 1 }; k = bound }",
])  # fmt: skip
def test_long_counts_end_with_the_flag(body):
    """As they are, with strips of their own length."""
    program = program_of(f"out[4] = 1; {body}")
    arguments = {"first": np.uint32(0), "bound": np.uint32(4294967295), "zero": np.uint32(0), "given": np.zeros(4, np.uint32), "out": np.zeros(5, np.uint32)}
    until_cancelled(program, arguments, INTERRUPTIBLE)
    assert arguments["out"].tolist() == [0, 0, 0, 0, 1], "what follows the loop was run"
