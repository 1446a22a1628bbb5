"""Grid barriers: their forms, their meaning over many workgroups, the code for GPUs, and launches that fit or are refused.

What they compute on small grids is in `filetests/run/grid_barriers.vir`, which rule they keep in `filetests/check/V404.vir`.
"""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import ptxas
import pytest
import simt_host
from device_kinds import open_device
from fake_cuda import CUresult, FakeDriver

import vyre_py as vp
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.cuda.launch.cooperative import require_resident, resident_workgroups
from vyre_py.drivers.errors import DispatchTimeout, DriverError, LaunchError
from vyre_py.drivers.registry import device
from vyre_py.ir.check import check
from vyre_py.ir.interpret import InterpretError, interpret
from vyre_py.ir.language.nodes import Barrier, GridBarrier
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import unoptimised
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import compile_for, emit_text, prepare
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.layout import POINTER_BYTES, SlotKind
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target, parse_target

TARGET = Target("ptx", "sm_90")

REVERSE = """program reverse(n) workgroup({workgroup}) {{
  {declared}
  buffer x: u32[n] read_write
  let i = global_id.x
  let v = x[n - 1 - i]
  {barrier}
  x[i] = v
}}"""


def reverse(workgroup: int = 64, declared: str = "", barrier: str = "grid_barrier") -> Program:
    return parse(REVERSE.format(workgroup=workgroup, declared=declared, barrier=barrier))


# Every workgroup reads what another one, further off each turn, has written in the turn before.
MIXED = """program mixed(n) workgroup({workgroup}) over(n) {{
  {declared}
  param turns: u32
  buffer x: u32[n] read_write
  let i = global_id.x
  for k in 0..turns {{
    let v = x[(i + k * 97 + {workgroup}) % n]
    grid_barrier
    x[i] = v * 1664525 + k
    grid_barrier
  }}
}}"""


def mixed(workgroup: int, declared: str = "") -> Program:
    return parse(MIXED.format(workgroup=workgroup, declared=declared))


def mixed_by_numpy(x: np.ndarray, workgroup: int, turns: int) -> np.ndarray:
    for k in range(turns):
        x = np.roll(x, -(k * 97 + workgroup)) * np.uint32(1664525) + np.uint32(k)
    return x


# ---------------------------------------------------------------- forms


def test_the_builder_makes_what_the_text_says() -> None:
    with vp.ProgramBuilder("reverse", workgroup=64) as b:
        n = b.dim("n")
        x = b.read_write("x", vp.u32, n)
        i = b.global_id(0)
        v = x[i + 1]
        b.grid_barrier()
        x[i] = v
    text = "program reverse(n) workgroup(64) {\n  buffer x: u32[n] read_write\n  let i = global_id.x\n  let v = x[i + 1]\n  grid_barrier\n  x[i] = v\n}"
    assert b.program == parse(text)


def test_every_form_gives_it_back() -> None:
    program = reverse()
    assert Program.from_text(str(program)) == Program.from_bytes(program.to_bytes()) == Program.from_json(program.to_json()) == program
    assert [type(s) for s in Program.from_bytes(program.to_bytes()).body if isinstance(s, Barrier)] == [GridBarrier]
    made = Program.from_nodes("p", codes=["grid_barrier"], types=[0], operands=[], offsets=[0, 0], grid=[2, 1, 1])
    assert made == parse("program p grid(2) { grid_barrier }")


def test_it_is_another_statement_than_a_barrier() -> None:
    assert reverse().code_digest != reverse(barrier="barrier").code_digest
    assert parse('program p grid(1) {\n  buffer "grid_barrier": u32[1] write\n  "grid_barrier"[0u32] = 1\n}').buffers[0].name == "grid_barrier"


# ---------------------------------------------------------------- meaning


@pytest.mark.parametrize(
    ("workgroup", "declared", "size"),
    [(1024, "", 1 << 17), (2, "workgroup t: u32[50000]", 5_000), (2, "private p: u32[2048]", 40_000)],
    ids=["invocations", "workgroup memory", "private memory"],
)
def test_a_grid_with_a_barrier_is_never_parted(workgroup: int, declared: str, size: int) -> None:
    """The interpreter runs other Programs batch by batch; these would be parted by their size."""
    for program in (reverse(workgroup, declared), reverse(workgroup, declared, "barrier")):
        x = np.arange(size, dtype=np.uint32)
        interpret(unoptimised(check(program), expand=EXPANDED_ONLY), {"x": x}, {"n": size})
        whole = (x == np.arange(size, dtype=np.uint32)[::-1]).all()
        assert whole == any(isinstance(s, GridBarrier) for s in program.body)


def test_a_grid_that_nothing_holds_is_refused() -> None:
    x = np.zeros(5 << 20, np.uint32)
    with pytest.raises(InterpretError, match="81920 workgroups cannot wait for itself: at most 65536"):
        interpret(unoptimised(check(reverse()), expand=EXPANDED_ONLY), {"x": x}, {"n": x.size})


def phases(seed: int, workgroup: int) -> str:
    """A random Program in phases: each reads what other workgroups wrote in earlier ones, and no two invocations race."""
    r = random.Random(seed)
    numbers = itertools.count()

    def place() -> str:
        return r.choice([f"(i * {r.choice((1, 3, 5, 7))} + {r.randrange(60)}) % n", "n - 1 - i", f"(i ^ {r.randrange(1, 8)}) % n", "i + 3"])

    def phase(depth: int) -> list[str]:
        kind = r.randrange(7 if depth < 2 else 5)
        a, b = r.sample(["a", "b"], 2)
        if kind == 0:
            v = f"v{next(numbers)}"
            return [f"let {v} = {a}[{place()}]", "grid_barrier", f"{a}[i] = {v} * 3 + {r.randrange(9)}", "grid_barrier"]
        if kind == 1:
            return [f"{b}[i] = {a}[{place()}] ^ {r.randrange(99)}", "grid_barrier"]
        if kind == 2:
            return [f"atomic_add(s[i % 5], {a}[i])", "grid_barrier", f"{b}[i] = {b}[i] + s[(i + {r.randrange(5)}) % 5]", "grid_barrier"]
        if kind == 3:
            return [f"t[l] = {a}[{place()}]", "grid_barrier", f"{b}[i] = t[(l + 1) % {workgroup}] + {a}[i]", "grid_barrier"]
        if kind == 4:
            return [f"if i % 3 == {r.randrange(3)} {{", f"  {b}[i] = {a}[{place()}] + 1", "}", "grid_barrier"]
        head = f"for k in 0u32..{r.choice(('turns', '2'))} {{" if kind == 5 else f"if turns > {r.randrange(4)} {{"
        inner = [line for _ in range(r.randrange(1, 3)) for line in phase(depth + 1)]
        return [head, *inner, "}"]

    body = "\n".join(line for _ in range(r.randrange(2, 5)) for line in phase(0))
    return f"""program phases(n) workgroup({workgroup}) over(n) {{
param turns: u32
buffer a: u32[n] read_write
buffer b: u32[n] read_write
buffer s: u32[5] read_write
workgroup t: u32[{workgroup}]
let i = global_id.x
let l = local_index
{body}
}}"""


def phase_arguments(seed: int, size: int) -> dict[str, np.ndarray]:
    r = np.random.default_rng(seed)
    arrays = {name: r.integers(0, 1 << 32, count, np.uint32) for name, count in (("a", size), ("b", size), ("s", 5))}
    return {**arrays, "turns": np.uint32(seed % 4)}


def assert_same(got: dict[str, np.ndarray], want: dict[str, np.ndarray], text: str) -> None:
    for name in ("a", "b", "s"):
        assert (got[name] == want[name]).all(), f"{name} differs at {np.flatnonzero(got[name] != want[name])[:8]}:\n{text}"


@pytest.mark.parametrize("seed", range(16))
def test_random_phases_by_threads_at_once(seed: int) -> None:
    """The interpreter in lockstep, and the code for GPUs with a thread for each invocation, agree."""
    text = phases(seed, 4)
    checked = check(parse(text))
    want = phase_arguments(seed, 15)
    interpret(unoptimised(checked, expand=EXPANDED_ONLY), want, {"n": 15})
    for opt in (0, 3):
        got = phase_arguments(seed, 15)
        simt_host.run(prepare(checked, TARGET, CompileOptions(opt=opt)), got, {"n": 15})
        assert_same(got, want, text)


@pytest.mark.parametrize("seed", range(12))
def test_random_phases_on_the_cpu(seed: int) -> None:
    workgroup = (4, 20, 64)[seed % 3]
    size = workgroup * 7 - 1
    text = phases(1000 + seed, workgroup)
    want = phase_arguments(seed, size)
    interpret(unoptimised(check(parse(text)), expand=EXPANDED_ONLY), want, {"n": size})
    for opt in (0, 3):
        assert_same(device("cpu").compile_native(parse(text), CompileOptions(opt=opt)).dispatch(phase_arguments(seed, size)), want, text)


# ---------------------------------------------------------------- what a launch is given


def test_a_record_for_arrivals_is_laid_out_where_there_is_a_barrier() -> None:
    (step,) = compile_for(mixed(64), [TARGET]).parts[0].steps
    slot = step.layout.find(SlotKind.ARRIVALS)
    assert step.cooperative
    assert slot is not None and slot.size_bytes == POINTER_BYTES and slot.offset_bytes % POINTER_BYTES == 0
    assert slot.offset_bytes >= max(s.offset_bytes + s.size_bytes for s in (*step.layout.buffers, *step.layout.scalars))
    assert step.layout.size_bytes >= slot.offset_bytes + slot.size_bytes
    assert slot not in step.layout.scalars
    (plain,) = compile_for(reverse(barrier="barrier"), [TARGET]).parts[0].steps
    assert not plain.cooperative and plain.layout.find(SlotKind.ARRIVALS) is None
    assert "grid_barrier" in compile_for(mixed(64), [TARGET]).capabilities


def test_a_barrier_that_is_never_reached_asks_for_nothing() -> None:
    text = "program p(n) {\n  buffer x: u32[n] write\n  if false {\n    grid_barrier\n  }\n  x[global_id.x] = 1\n}"
    part = compile_for(parse(text), [TARGET, parse_target("cpu")]).parts
    assert not any(step.cooperative for p in part for step in p.steps)


# ---------------------------------------------------------------- code


def test_a_target_that_lacks_it_names_each_one() -> None:
    with pytest.raises(Unsupported) as caught:
        emit_text(mixed(64), "wgsl")
    assert [(m.what, m.place and m.place.line) for m in caught.value.items] == [("grid_barrier", 8), ("grid_barrier", 10)]
    assert all("launch one after the other" in m.help for m in caught.value.items)


_MEETING = re.compile(
    r"bar\.sync\s+0;.*?fence\.acq_rel\.gpu;\s*atom\.(?:relaxed\.gpu\.)?global\.add\.u32\s[^;]*;.*?"
    r"ld\.relaxed\.gpu\.global\.b32\s[^;]*;.*?fence\.acq_rel\.gpu;",
    re.DOTALL,
)


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_90", "sm_120"])
def test_ptx_has_the_fences(arch: str) -> None:
    for opt in range(4):
        for options in (CompileOptions(opt=opt), CompileOptions(opt=opt, interruptible=True)):
            ptx = emit_text(mixed(64, "workgroup t: u32[64]"), arch, options)
            assert len(_MEETING.findall(ptx)) == 2, ptx
            assert ptx.count("fence.acq_rel.gpu;") == 4 and ptx.count("atom.") == 2
            ptxas.assemble(ptx, arch, 3 if opt else 0)


@pytest.mark.parametrize("line", ["y[i] = a - y[i + 1u32]", "z[i] = a - y[i + 1u32]"])
def test_loads_on_both_sides_stay(line: str) -> None:
    text = f"""program p workgroup(64) over(64) {{
  buffer y: u32[65] read_write
  buffer z: u32[64] write
  let i = local_index
  let a = y[i + 1u32]
  grid_barrier
  {line}
}}"""
    first, second = emit_text(parse(text), "sm_90").split("atom.", 1)
    assert "ld.global.b32" in first and "ld.global.b32" in second


def test_a_store_before_it_stays_before_it() -> None:
    text = "program p(n) workgroup(64) over(n) {\n buffer y: u32[n] write\n y[global_id.x] = 1\n grid_barrier\n y[n - 1 - global_id.x] = 2\n}"
    first, second = emit_text(parse(text), "sm_90").split("atom.", 1)
    assert "st.global" in first and "st.global" in second


@pytest.mark.parametrize("before", [0, 1 << 31])
@pytest.mark.parametrize("turns", [1, 2, 5])
def test_the_word_is_ready_for_the_next_barrier_and_the_next_launch(before: int, turns: int) -> None:
    text = """program odd(n) workgroup(2, 1, 2) over(n, 3, 2) {
  param turns: u32
  buffer x: u32[n] read_write
  let w = (workgroup_id.z * 3 + workgroup_id.y) * num_workgroups.x + workgroup_id.x
  for k in 0..turns {
    let v = x[(w + 1) % n]
    grid_barrier
    if local_index == 0 {
      x[w] = v + 1
    }
  }
}"""
    program = prepare(parse(text), TARGET, CompileOptions())
    arrivals = np.array([before, 0], np.uint32)
    for launch in range(3):
        x = np.arange(6, dtype=np.uint32)
        simt_host.run(program, {"x": x, "turns": 1}, {"n": 6}, arrivals=arrivals)
        assert (x == (np.arange(6) + 1) % 6 + 1).all()
        assert arrivals[0] == (before ^ (launch + 1 & 1) << 31) and arrivals[1] == 0
    simt_host.run(prepare(mixed(4), TARGET, CompileOptions()), {"x": np.zeros(9, np.uint32), "turns": turns}, {"n": 9}, arrivals=arrivals)
    assert arrivals[0] & 0x7FFFFFFF == 0


# ---------------------------------------------------------------- residency, over a stand-in for the driver


def context_of(**attributes: int) -> tuple[FakeDriver, Context]:
    driver = FakeDriver()
    driver.attributes.update(attributes)
    return driver, Context(driver, 0)


def test_a_grid_that_fits_passes() -> None:
    _, context = context_of(MULTIPROCESSOR_COUNT=3)
    assert resident_workgroups(context, 12, (32, 8, 1), 0) == 24
    require_resident(context, 12, (32, 8, 1), 0, (2, 3, 4), "k")
    with pytest.raises(LaunchError) as caught:
        require_resident(context, 12, (32, 8, 1), 0, (5, 5, 1), "vyre_k")
    said = str(caught.value)
    assert "vyre_k" in said and "its 25 workgroups have to run at once, and 24 fit" in said
    assert "at most 24 workgroups" in said and "DispatchConfig.grid" in said and "loop" in said
    assert "each of 3 multiprocessors runs 8 workgroups of 32 x 8 x 1 invocations" in said


def test_workgroup_memory_counts() -> None:
    _, context = context_of(MULTIPROCESSOR_COUNT=3)
    assert resident_workgroups(context, 12, (64, 1, 1), 100 << 10) == 6
    with pytest.raises(LaunchError, match="7 workgroups have to run at once, and 6 fit"):
        require_resident(context, 12, (64, 1, 1), 100 << 10, (7, 1, 1), "k")


def test_a_workgroup_that_never_fits() -> None:
    _, context = context_of()
    with pytest.raises(LaunchError, match=r"CompileOptions\.workgroup"):
        require_resident(context, 12, (64, 1, 1), 230 << 10, (1, 1, 1), "k")


def test_a_device_without_cooperative_launch_refuses() -> None:
    driver, context = context_of(COOPERATIVE_LAUNCH=0)
    with pytest.raises(Unsupported, match="cuda:0 does not support cooperative launch"):
        require_resident(context, 12, (64, 1, 1), 0, (1, 1, 1), "k")
    driver.attributes["COOPERATIVE_LAUNCH"] = 1
    driver.fail["cuOccupancyMaxActiveBlocksPerMultiprocessor"] = [CUresult.CUDA_ERROR_INVALID_VALUE]
    with pytest.raises(DriverError, match="how many workgroups run at once"):
        require_resident(context, 12, (64, 1, 1), 0, (1, 1, 1), "k")


# ---------------------------------------------------------------- on a GPU


def fitting(gpu, program: Program) -> tuple[vp.Pipeline, int]:
    """The Program on a GPU, and how many of its workgroups run at once."""
    pipeline = gpu.compile_native(program)
    module = pipeline._codes[0][-1]
    return pipeline, resident_workgroups(gpu.context, module.function, pipeline.part.steps[0].workgroup, module.workgroup_bytes)


@pytest.mark.parametrize(
    ("workgroup", "declared"),
    [(256, ""), (32, ""), (1024, ""), (1, ""), (96, "workgroup t: u32[20000]")],
    ids=["256", "32", "1024", "1", "80 KB of workgroup memory"],
)
def test_a_thousand_barriers_of_as_many_workgroups_as_fit(workgroup: int, declared: str) -> None:
    pipeline, groups = fitting(open_device("cuda"), mixed(workgroup, declared))
    size = groups * workgroup
    x = np.random.default_rng(workgroup).integers(0, 1 << 32, size, np.uint32)
    assert groups >= 64
    got = pipeline.dispatch({"x": x, "turns": 500})["x"]
    want = mixed_by_numpy(x, workgroup, 500)
    wrong = np.flatnonzero(got != want)
    assert not wrong.size, f"{wrong.size} of {size} elements ({groups} workgroups) are wrong, the first of them {wrong[:5]}"


def test_one_workgroup_more_than_fits_is_refused_before_anything_runs() -> None:
    gpu = open_device("cuda")
    pipeline, groups = fitting(gpu, mixed(256))
    x = gpu.upload(np.arange((groups + 1) * 256, dtype=np.uint32))
    with pytest.raises(LaunchError, match=f"{groups + 1} workgroups have to run at once, and {groups} fit"):
        pipeline.bind({"x": x, "turns": 1})
    assert (x.read() == np.arange((groups + 1) * 256)).all()
    # DispatchConfig.grid makes it fit; what lies past the grid is left alone.
    small = DispatchConfig(grid=(2, 1, 1))
    y = np.arange(512, dtype=np.uint32)
    assert (pipeline.dispatch({"x": y, "turns": 7}, config=small)["x"] == mixed_by_numpy(y, 256, 7)).all()


def test_a_launch_is_run_again_and_again() -> None:
    gpu = open_device("cuda")
    pipeline = gpu.compile_native(mixed(64))
    start = np.random.default_rng(1).integers(0, 1 << 32, 6400, np.uint32)
    x = gpu.upload(start)
    launch = pipeline.bind({"x": x, "turns": 3})
    want = start
    for _ in range(100):
        launch()
        want = mixed_by_numpy(want, 64, 3)
    assert (x.read() == want).all()


class Stream:
    """A stream of the device's pool, as other libraries hand theirs over."""

    def __init__(self, gpu) -> None:
        self.handle = int(gpu.context.streams.take())

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def test_two_launches_at_the_same_time_do_not_count_each_other() -> None:
    gpu = open_device("cuda")
    pipeline = gpu.compile_native(mixed(64))
    starts = [np.random.default_rng(k).integers(0, 1 << 32, 640 * (k + 1), np.uint32) for k in range(2)]
    buffers = [gpu.upload(start) for start in starts]
    launches = [pipeline.bind({"x": x, "turns": 400}).on(Stream(gpu)) for x in buffers]
    for _ in range(3):
        for launch in launches:
            launch()
    for k, (start, x) in enumerate(zip(starts, buffers, strict=True)):
        want = start
        for _ in range(3):
            want = mixed_by_numpy(want, 64, 400)
        assert (x.read() == want).all(), f"launch {k}"


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_phases_on_a_gpu(first: int) -> None:
    gpu, reference = open_device("cuda"), device("reference")
    for seed in range(first, first + 20):
        workgroup = (4, 32, 64, 100)[seed % 4]
        text = phases(seed, workgroup)
        program = parse(text)
        arguments = phase_arguments(seed, workgroup * 37 + 5)
        assert_same(gpu.compile_native(program).dispatch(arguments), reference.compile_native(program).dispatch(arguments), text)


def test_an_endless_barrier_is_ended() -> None:
    """Workgroups that wait for one another leave too; the next run counts from the start."""
    gpu = open_device("cuda")
    text = """program endless(n) workgroup(64) over(n) {
  param stop: bool
  buffer x: u32[n] read_write
  let i = global_id.x
  loop {
    let v = x[(i + 64) % n]
    grid_barrier
    x[i] = v + 1
    if stop {
      break
    }
    grid_barrier
  }
}"""
    pipeline = gpu.compile_native(parse(text), CompileOptions(interruptible=True))
    x = np.arange(64 * 100, dtype=np.uint32)
    for _ in range(3):
        with pytest.raises(DispatchTimeout):
            pipeline.dispatch({"x": x, "stop": False}, config=DispatchConfig(timeout=0.1))
        assert (pipeline.dispatch({"x": x, "stop": True})["x"] == np.roll(x, -64) + 1).all()
