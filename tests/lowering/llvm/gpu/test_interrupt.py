"""Interruptible and persistent kernels, without a GPU: the walk's LLVM IR on the host (`simt_host`)."""

from __future__ import annotations

import threading
import time
from itertools import product

import numpy as np
import pytest
import simt_host
from filetest import files, read_cases, run_program
from generator import Seeded, generate
from heard import Heard
from ptxas import assemble_together

import vyre_py.drivers.reference.device as reference_device
from vyre_py.ir.check import check
from vyre_py.ir.check.facts import definitions, has_grid_barrier, has_grid_scan
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.nodes import Else, End, For, Get, If, Let, Load, Loop, Region, Set, Var
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.passes import unoptimised
from vyre_py.ir.passes.expand import expand
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import emit_text, prepare
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.llvm.gpu.interrupt import checks, interruptible
from vyre_py.lowering.llvm.gpu.interrupt.first_check import computed_before, first_trace
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

TARGET = Target("ptx", "sm_90")
INTERRUPTIBLE = CompileOptions(interruptible=True)
PERSISTENT = CompileOptions(persistent=True)
BOTH = CompileOptions(interruptible=True, persistent=True)
INDIRECT = CompileOptions(indirect=True)


@pytest.fixture
def busy(monkeypatch):
    """Looks at the clock after every few turns, and at the flag each time: all of the code runs in small tests."""
    for module in (checks, interruptible):
        monkeypatch.setattr(module, "STRIP", 16)
    monkeypatch.setattr(interruptible, "_SHORT", 4)
    monkeypatch.setattr(interruptible, "_MEMORY", dict.fromkeys(interruptible._MEMORY, 3))
    monkeypatch.setattr(checks, "_INTERVAL", 0)


def copied(arguments):
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}


def same(program, arguments, sizes, *all_options, launched=2):
    """The walk gives what the interpreter gives."""
    checked = check(program)
    want = copied(arguments)
    with np.errstate(all="ignore"):
        interpret(unoptimised(checked, expand=EXPANDED_ONLY), want, sizes)
    for options in all_options:
        got = copied(arguments)
        simt_host.run(prepare(checked, TARGET, options), got, sizes, options=options, launched=launched)
        simt_host.assert_same(program, got, want)
    return want


def has_loops(program):
    return any(isinstance(s, (For, Loop)) for s in program.body)


@pytest.mark.parametrize("path", files("run"), ids=lambda path: path.stem)
@pytest.mark.parametrize("options", [INTERRUPTIBLE, BOTH], ids=["interruptible", "both"])
def test_run_filetests(path, options, monkeypatch, busy):
    """The reference device with the walk in the interpreter's place. Programs without a loop are left to the test with both options."""
    walk = simt_host.Walk()

    def run(code, arguments, sizes, reports, **watches):
        values = {name: value if value.ndim else value[()] for name, value in arguments.items()}
        heard = Heard(code.program, reports)
        program = heard.program
        if (has_grid_barrier(program) or has_grid_scan(program)) if options.persistent else not has_loops(program):
            return interpret(code, arguments, sizes, reports=reports)
        return walk.run(prepare(program, TARGET, options), values, sizes, options, heard)

    monkeypatch.setattr(reference_device, "interpret", run)
    for case in read_cases(path):
        if options.persistent or has_loops(expand(case.parse(), EXPANDED_ONLY)):
            run_program(case, "reference")


@pytest.mark.parametrize("seed", range(16))
def test_generated_programs(seed, busy):
    case = generate(Seeded(11000 + seed))
    arguments = {n: v for n, v in case.arguments.items() if n not in case.sizes}
    for memory in case.program.buffers:
        if memory.name not in arguments:
            shape = [case.sizes[d.name] if hasattr(d, "name") else d.value for d in memory.shape]
            arguments[memory.name] = np.zeros([*shape, *[memory.type.lanes] * memory.type.is_vector], memory.type.dtype)
    same(case.program, arguments, case.sizes, INTERRUPTIBLE, BOTH)


# Every nesting of two loops within a third, with all ways to go on and to leave, over trip counts that meet strips in every way.
NESTED = """program nested workgroup(1) over(1) {
  param a: u32
  param b: u32
  param c: u32
  buffer out: u32[4] write
  var sum: u32 = 1
  var turns: u32 = 0
  for i in 0u32..a {
    if i == 7 { continue }
    for j in 0u32..b {
      if j == 5 && i % 2 == 1 { break }
      if j % 3 == 1 { continue }
      sum = sum * 31 + j
    }
    var k: u32 = 0
    loop {
      if k >= c { break }
      k = k + 1
      if k % 4 == 2 { continue }
      sum = sum * 17 + k
      if sum == 0xdeadbeefu32 { return }
    }
    for j in 0i32..-5i32 step -2i32 { sum = sum + cast(j, u32) }
    turns = turns + 1
  }
  loop {
    turns = turns + 1000
    for j in 0u32..c { for l in 0u32..b { sum = sum * 3 + l } }
    if turns > 5000 { break }
  }
  out[0] = sum
  out[1] = turns
  if a == 9 { return }
  loop { loop { out[2] = 7; break }; break }
  out[3] = 1
}"""


def test_nested_loops(busy):
    program = parse(NESTED)
    for a, b, c in product((0, 1, 9, 16), (0, 3, 4, 17), (0, 1, 5, 33)):
        same(program, {"a": a, "b": b, "c": c, "out": np.zeros(4, np.uint32)}, {}, INTERRUPTIBLE)


def test_strips_as_they_are():
    """The same with strips of their own length, which the last loops pass."""
    program = parse("""program long workgroup(1) over(1) {
  param n: u32
  buffer out: u32[2] write
  var a: u32 = 0
  for i in 0u32..n { a = a * 5 + i }
  out[0] = a
  var k: u32 = 0
  loop { a = a * 7 + k; k = k + 1; if k >= n { break } }
  out[1] = a
}""")
    for n in (1, 2, 1 << 14, (1 << 16) + 1, 300_001):
        want = np.zeros(2, np.uint32)
        a = 0
        for i in range(n):
            a = (a * 5 + i) & 0xFFFFFFFF
        want[0] = a
        for k in range(n):
            a = (a * 7 + k) & 0xFFFFFFFF
        want[1] = a
        for options in (INTERRUPTIBLE, BOTH, CompileOptions(interruptible=True, opt=0)):
            got = {"n": n, "out": np.zeros(2, np.uint32)}
            simt_host.run(prepare(program, TARGET, options), got, {}, options=options)
            assert got["out"].tolist() == want.tolist(), (n, options)


HEAD = """program endless workgroup({group}) over({group}) {{
  param zero: u32
  param ten: u32
  buffer out: u32[4] read_write
  workgroup w: u32[4]
  var x: u32 = 1
  {body}
  out[0] = x
}}"""
# An unsigned counter of `ten * 429496730` turns is as good as endless.
ENDLESS = {
    "empty": "loop { }",
    "short": "loop { x = x * 3 + 1; if x == 0 { break } }",
    "inner constant for": "loop { for k in 0u32..10 { x = x * 3 + k } }",
    "inner for": "loop { for k in 0u32..ten { x = x * 3 + k } }",
    "inner for of no turns": "loop { for k in 0u32..zero { x = x * 3 + k } }",
    "inner loop left at once": "loop { loop { x = x + 1; break } }",
    "inner loop of a few turns": "loop { var k: u32 = 0; loop { k = k + 1; x = x * 5 + k; if k > 3 { break } } }",
    "three deep": "loop { for i in 0u32..ten { for j in 0u32..zero { x = x + j }; if i == 5 { continue }; for j in 0u32..ten { x = x * 7 + j } } }",
    "three for": "for i in 0u32..4294967295 { for j in 0u32..ten { for k in 0u32..3 { x = x * 5 + k } } } ",
    "long for": "for i in 0u32..4294967295 { for j in 0u32..4294967295 { for k in 0u32..4294967295 { x = x * 5 + k } } }",
    "memory": "loop { out[1] = out[1] + 1; x = x + out[2] }",
    "atomics": "loop { x = x + atomic_add(out[1], 1) }",
    "barrier": "loop { w[0] = 1; barrier; x = x + w[1]; barrier }",
    "barrier in a for": "loop { for k in 0u32..ten { w[k % 4] = x; barrier; x = x + w[(k + 1) % 4]; barrier } }",
    "one of many": "if local_index == 0 { loop { x = x * 3 + 1 } } else { for k in 0u32..ten { x = x + k } }",
}


def until_cancelled(program, arguments, options):
    """Runs an endless kernel in a thread, sets the flag, and waits for its end."""
    cancel, ended = np.zeros(1, np.uint32), threading.Event()

    def run():
        simt_host.run(prepare(check(program), TARGET, options), arguments, {}, options=options, cancel=cancel)
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    assert not ended.wait(0.3), "it is not endless"
    cancel[0] = 1
    begin, spent = time.monotonic(), time.process_time()
    while not ended.wait(0.05):  # one that goes on takes all of a processor; one that waits for others takes none
        assert time.process_time() - spent < 3 and time.monotonic() - begin < 12, "it goes on"


@pytest.mark.parametrize("options", [INTERRUPTIBLE, BOTH], ids=["interruptible", "both"])
@pytest.mark.parametrize("name", ENDLESS)
def test_endless_kernels_end(name, options):
    body = ENDLESS[name]
    program = parse(HEAD.format(group=4 if "barrier" in name or "many" in name else 1, body=body))
    arguments = {"zero": 0, "ten": 10, "out": np.zeros(4, np.uint32)}
    until_cancelled(program, arguments, options)
    assert arguments["out"][0] == 0 or name == "one of many", "what follows the loop was run"


# Loops of fewer units than a strip, each of which adds to `out[1]` when it is over.
FOLLOWING = "; ".join(["for k in 0u32..ten { x = x * 5 + k }; out[1] = out[1] + 1"] * 12)
COUNTING = "; ".join([f"var k{n}: u32 = 0; loop {{ if k{n} >= ten {{ break }}; k{n} = k{n} + 1; x = x * 5 }}; out[1] = out[1] + 1" for n in range(12)])
NESTINGS = {
    "in none": FOLLOWING,
    "in one": f"for i in 0u32..ten {{ {FOLLOWING} }}",
    "in two": f"for i in 0u32..ten {{ loop {{ {FOLLOWING} }} }}",
    "after an inner one": f"for i in 0u32..ten {{ for j in 0u32..ten {{ for k in 0u32..ten {{ x = x + k }} }}; {FOLLOWING} }}",
    "that count by themselves": f"loop {{ {COUNTING} }}",
}


@pytest.mark.parametrize("name", NESTINGS)
def test_loops_that_follow_each_other_look_once_in_a_strip(name, busy):
    """The kernel sets its own flag, `out[0]`, and counts what it does from then on."""
    options = CompileOptions(interruptible=True, opt=0)
    program = parse(HEAD.format(group=1, body=f"out[0] = 1; {NESTINGS[name]}"))
    out = np.zeros(4, np.uint32)
    simt_host.run(prepare(program, TARGET, options), {"zero": 0, "ten": 2, "out": out}, {}, opt=0, options=options, cancel=out)
    assert out[1] <= 2  # of some ten units each, where a strip has 16


# What a workgroup does -> the kind of statement that the first look comes before.
BEGINNINGS = {
    "out[global_id.x] = 1": "Store",
    "let a = global_id.x * 7; if a % 3 == 1 { out[global_id.x] = a }": "Store",
    "if global_id.x % 3 == 1 { out[global_id.x] = 1 } else { out[global_id.x] = 2 }": "If",
    "if global_id.x % 3 == 1 { out[global_id.x] = 1 }; out[global_id.x] = 2": "If",
    "var a: u32 = out[0]; if a == 9 { a = a * 3 } else { a = a * 5 }; if a % 2 == 0 { if a % 4 == 0 { out[global_id.x] = a + 1; out[0] = a } }": "Store",
    'region "r" { let a = given[global_id.x]; if a < 9 { let b = given[a + 1]; if b < 9 { let c = a * b; loop { out[c % 8] = 1 } } } }': "Loop",
    "for i in 0u32..4 { out[i] = out[i + 1] + 1 }; out[0] = 3": "For",
    "if global_id.x == 1 { return }; out[global_id.x] = 1": "If",
    "if given[1] == 1 { let a = out[1]; w[0] = a; barrier; out[global_id.x] = w[0] + 1 }": "Store",
    "let a = atomic_add(out[0], 1); out[a] = 2": "Atomic",
}  # fmt: skip


def beginning(body):
    return parse(f"program p(n) workgroup(4) over(n) {{ buffer out: u32[n] read_write\n buffer given: u32[n] read\n workgroup w: u32[4]\n {body} }}")


@pytest.mark.parametrize("options", [INTERRUPTIBLE, BOTH], ids=["interruptible", "both"])
@pytest.mark.parametrize("body", BEGINNINGS)
def test_what_has_yet_to_begin_ends_at_once(body, options):
    got = {"out": np.zeros(64, np.uint32), "given": np.ones(64, np.uint32)}
    looks = beginning(f"{body}; for q in 0u32..n {{ out[q] = out[q] * 3 }}")  # without a loop of unknown length nobody looks
    simt_host.run(prepare(check(looks), TARGET, options), got, {"n": 64}, options=options, cancel=np.ones(1, np.uint32))
    assert not got["out"].any()


@pytest.mark.parametrize("body", BEGINNINGS)
def test_the_first_look_is_as_late_as_it_may(body):
    program = check(beginning(body)).program
    found = first_trace(program)
    assert type(program.body[found]).__name__ == BEGINNINGS[body]
    assert {type(s) for s in program.body[:found]} <= {Let, Load, Var, Get, Set, If, Else, End, Region}
    # What is computed before has been computed on every way there.
    values = computed_before(program, found)
    assert all(definitions(program)[value.id] < found for value in values)
    emit_text(program, "sm_90", INTERRUPTIBLE)  # LLVM refuses a value that is not there on every way


def test_nothing_to_see_is_nothing_to_look_for():
    program = beginning("let a = global_id.x; if a == 3 { let b = out[a] }")
    assert first_trace(check(program).program) is None
    emit_text(program, "sm_90", INTERRUPTIBLE)


def test_waiting_at_a_grid_barrier_ends():
    """Workgroup 0 never comes to it."""
    program = parse("""program p workgroup(2) grid(2) {
  buffer out: u32[4] write
  if workgroup_id.x == 0 { loop { } }
  grid_barrier
  out[global_id.x] = 2
}""")
    until_cancelled(program, {"out": np.zeros(4, np.uint32)}, INTERRUPTIBLE)


# ---------------------------------------------------------------- persistent kernels

PLACES = """program places workgroup(2, 2) over({x} * 2, {y} * 2, {z}) {{
  buffer out: u32[{z}, {y}, {x}, 6] read_write
  buffer count: u32[1] read_write
  workgroup w: u32[4]
  let x = workgroup_id.x
  let y = workgroup_id.y
  let z = workgroup_id.z
  if w[3 - local_index] != 0 {{ out[z, y, x, 0] = 1 }}
  barrier
  w[local_index] = local_index + x + y + z + 1
  barrier
  if local_index == 0 {{ out[z, y, x, 1] = out[z, y, x, 1] + 1 }}
  out[z, y, x, 2] = num_workgroups.x * 100 + num_workgroups.y * 10 + num_workgroups.z
  if local_index == 1 {{ out[z, y, x, 3] = w[2] }}
  if local_index == 2 {{ atomic_add(count[0], 1); return }}
  if local_index == 0 {{ out[z, y, x, 4] = global_id.x * 100 + global_id.y * 10 + global_id.z }}
}}"""


@pytest.mark.parametrize("size", [(1, 1, 1), (5, 1, 1), (2, 3, 4), (1, 7, 1), (3, 1, 5)], ids=str)
def test_every_workgroup_runs_once(size):
    x, y, z = size
    program = parse(PLACES.format(x=x, y=y, z=z))
    for launched in (1, 2, 3, 7, 60, 100):
        arguments = {"out": np.zeros((z, y, x, 6), np.uint32), "count": np.zeros(1, np.uint32)}
        got = same(program, arguments, {}, BOTH if launched == 3 else PERSISTENT, INDIRECT, launched=launched)
        assert got["count"][0] == x * y * z


@pytest.mark.parametrize("launched", [1, 3])
@pytest.mark.parametrize("grid", [(0, 3, 1), (3, 0, 1), (3, 3, 0), (2**31, 1, 1), (1, 65536, 1), (1, 1, 65536), (2**32 - 1,) * 3, (0, 0, 0)], ids=str)
def test_a_grid_that_no_launch_may_have_is_read_as_none(grid, launched):
    """Of 2^31 workgroups of two invocations along x there are 2^32."""
    program = parse(PLACES.format(x=1, y=1, z=1))
    out, count = np.zeros((1, 1, 1, 6), np.uint32), np.zeros(1, np.uint32)
    simt_host.run(prepare(check(program), TARGET, INDIRECT), {"out": out, "count": count}, {}, options=INDIRECT, launched=launched, grid=grid)
    assert not out.any() and not count.any()


def test_the_largest_grids_are_read_and_walked():
    """The first places that the last workgroup visits, of as many as a launch may have along each axis; of three invocations those along x are below 2^32."""
    most = (2**32 - 1) // 3
    for grid, launched in (((2**31 - 1, 1, 1), 2**31 - 1000), ((5, 65535, 65535), 2**30), ((most, 1, 1), most - 7), ((most + 1, 1, 1), 2)):
        size = 3 if grid[0] >= most and grid[0] < 2**31 - 1 else 1
        program = parse(f"""program p workgroup({size}) grid(1) {{
  buffer out: u32[64] read_write
  if local_index != 0 {{ return }}
  let k = out[0] + 1
  out[0] = k
  out[k * 3] = workgroup_id.x
  out[k * 3 + 1] = workgroup_id.y
  out[k * 3 + 2] = workgroup_id.z
}}""")
        prepared, (x, y, z) = prepare(check(program), TARGET, INDIRECT), grid
        for first in (0, launched - 1):
            out = np.zeros(64, np.uint32)
            simt_host.run(prepared, {"out": out}, {}, options=INDIRECT, launched=launched, grid=grid, only=(0, 0, first))
            visited = range(first, x * y * z, launched) if x <= (2**32 - 1) // size else range(0)
            assert out[0] == len(visited), (grid, first)
            want = [place for n in visited[:20] for place in (n % x, n // x % y, n // x // y)]
            assert out[3 : 3 + len(want)].tolist() == want, (grid, first)


def test_huge_grids_are_walked_without_wrapping():
    """The first places that the first and the last workgroup visit, against division in Python."""
    program = parse("""program p workgroup(1) grid(1) {
  buffer out: u32[64] read_write
  let k = out[0] + 1
  out[0] = k
  out[k * 3] = workgroup_id.x
  out[k * 3 + 1] = workgroup_id.y
  out[k * 3 + 2] = workgroup_id.z
}""")
    prepared, most = prepare(check(program), TARGET, PERSISTENT), 2**32 - 1
    for grid, launched in (((most, 1, 2), 2**31 - 1), ((3, most, 2), 2**31 - 1), ((65536, 65537, 3), 2**30), ((1, 2, most), 2**31 - 5)):
        for first in (0, launched - 1):
            out = np.zeros(64, np.uint32)
            simt_host.run(prepared, {"out": out}, {}, options=PERSISTENT, launched=launched, grid=grid, only=(0, 0, first))
            x, y, z = grid
            visited = range(first, x * y * z, launched)
            assert out[0] == len(visited)
            want = [place for n in visited[:20] for place in (n % x, n // x % y, n // x // y)]
            assert out[3 : 3 + len(want)].tolist() == want, (grid, first)


# ---------------------------------------------------------------- text

REFUSED = {"sm_80": {"dependent": True}, "wgsl": {"interruptible": True}, "cpu": {"persistent": True}, "reference": {"dependent": True}}


@pytest.mark.parametrize("target", REFUSED)
def test_targets_refuse_what_they_lack_by_name(target):
    program = parse("program p(n) { buffer out: u32[n] write\n out[global_id.x] = 1 }")
    with pytest.raises(Unsupported, match=f"option {next(iter(REFUSED[target]))}=True"):
        emit_text(program, target, CompileOptions(**REFUSED[target]))


def test_grid_barriers_of_persistent_kernels_are_refused():
    program = parse("program p(n) { buffer out: u32[n] read_write\n out[global_id.x] = 1\n grid_barrier\n out[global_id.x] = 2 }")
    with pytest.raises(Unsupported, match="persistent=True with a grid barrier"):
        emit_text(program, "sm_90", PERSISTENT)
    with pytest.raises(Unsupported, match="indirect=True, for a grid that is a buffer, with a grid barrier"):
        emit_text(program, "sm_90", INDIRECT)


def test_options_are_of_their_types():
    for name in ("persistent", "dependent", "interruptible", "indirect"):
        with pytest.raises(Unsupported, match=name):
            CompileOptions(**{name: 1})


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_the_assembler_takes_them(arch):
    texts = []
    bodies = [HEAD.format(group=32, body=body) for body in ENDLESS.values()]
    for number, text in enumerate([NESTED, PLACES.format(x=2, y=3, z=4), *bodies]):
        program = parse(text.replace("program ", f"program p{number}_", 1))
        options = {"interruptible": True, "persistent": number % 2 == 1, "indirect": number % 4 > 1, "dependent": arch != "sm_75" and number % 3 == 1}
        texts.append(emit_text(program, arch, CompileOptions(**options)))
    assemble_together(texts, arch)
