"""Races that the interpreter finds: against every pair of accesses, over many batches, and as users ask for it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from kernels import Kernel, u
from test_grid_barrier import phase_arguments, phases

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.interpret.lanes import _BATCH_LANES
from vyre_py.ir.language.nodes import Space
from vyre_py.ir.language.ops import ATOMICS, EXPANDED_ONLY
from vyre_py.ir.language.types import u32
from vyre_py.ir.passes import optimise, unoptimised
from vyre_py.ir.text.parser import parse

WATCHING = vp.DispatchConfig(races=True)


def race(text: str, arguments: Mapping[str, Any], sizes: Mapping[str, int], level: int | None = None) -> vp.RaceError | None:
    """What is found when a Program runs, as it was written or as the passes of a level leave it."""
    checked = check(parse(text, "t.vir"))
    code = unoptimised(checked, expand=EXPANDED_ONLY) if level is None else optimise(checked, expand=EXPANDED_ONLY, level=level)
    try:
        interpret(code, {name: np.array(value) for name, value in arguments.items()}, sizes, races=True)
    except vp.RaceError as error:
        return error
    return None


# ---------------------------------------------------------------- against every pair

GROUP, GROUPS = 4, 3


@dataclass(frozen=True)
class Seen:
    """One access: its line, the element, by whom, how, and how many barriers its workgroup and the grid had passed."""

    line: int
    element: tuple[str, int, int]
    group: int
    local: int
    kind: str
    barriers: int
    grid_barriers: int


class Drawn:
    """A random Program of plain and atomic accesses under conditions, in loops, with barriers, and all that it does, by a walk of its own."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.one_value = bool(seed % 2)  # all writes write the same
        self.kinds = ("read", "write") if self.one_value else ("read", "write", "atomic")
        self.lines = [
            f"program p workgroup({GROUP}) grid({GROUPS}) {{", "buffer y: u32[6] read_write", "buffer z: u32[12] read_write", "workgroup w: u32[4]",
            "let l = local_id.x", "let g = workgroup_id.x",
        ]  # fmt: skip
        self.work: list[tuple[Any, ...]] = []
        for _ in range(self.random.randrange(4, 12)):
            self.draw(self.work, 0)
        self.lines.append("}")

    def draw(self, into: list[tuple[Any, ...]], depth: int) -> None:
        """One statement, or a loop of two turns around some."""
        r = self.random
        what = r.choice(["access"] * 6 + ["barrier"] * 3 + ["grid_barrier", "uniform_load"] + ["loop"] * (2 if depth < 2 else 0))
        if what == "loop":
            self.lines.append(f"for turn{len(self.lines)} in 0u32..2 {{")
            inner: list[tuple[Any, ...]] = []
            for _ in range(r.randrange(1, 4)):
                self.draw(inner, depth + 1)
            self.lines.append("}")
            into += [*inner, *inner]
        elif what in ("barrier", "grid_barrier"):
            only = r.randrange(GROUPS) if what == "barrier" and r.random() < 0.3 else None
            self.lines.append(what if only is None else f"if g == {only} {{ {what} }}")
            into.append((what, only))
        elif what == "uniform_load":
            memory, at = r.choice([("y", 6), ("w", 4)])
            at = r.randrange(at)
            self.lines.append(f"let seen{len(self.lines)} = uniform_load({memory}[{at}])")
            into.append((what, len(self.lines), memory, at))
        else:
            self.access(into)

    def access(self, into: list[tuple[Any, ...]]) -> None:
        """A read, a write or an atomic of some invocations."""
        r = self.random
        kind = r.choice(self.kinds)
        memory = r.choice("yww")
        a, b, c = r.randrange(4), r.randrange(2) if memory == "y" else 0, r.randrange(4)
        locals_ = sorted(r.sample(range(GROUP), r.randrange(1, GROUP + 1))) if r.random() < 0.6 else list(range(GROUP))
        groups = [r.randrange(GROUPS)] if r.random() < 0.4 else list(range(GROUPS))
        number = len(self.lines) + 1
        element = f"{memory}[l * {a} + g * {b} + {c}]"
        value = "7" if self.one_value else f"global_id.x * 100 + {number}"
        mask, chosen = sum(1 << local for local in locals_), sum(1 << group for group in groups)
        does = {"read": f"atomic_add(z[0], {element})", "write": f"{element} = {value}", "atomic": f"atomic_add({element}, 1)"}[kind]
        self.lines.append(f"if ({mask}u32 >> l & {chosen}u32 >> g & 1) == 1 {{ {does} }}")
        into.append(("access", number, kind, memory, (a, b, c), locals_, groups))

    def seen(self) -> list[Seen]:
        """All accesses."""
        barriers, grid_barriers, found = [0] * GROUPS, 0, []
        for what, *rest in self.work:
            if what == "grid_barrier":
                grid_barriers += 1
            elif what == "barrier":
                barriers = [passed + (rest[0] in (None, group)) for group, passed in enumerate(barriers)]
            elif what == "uniform_load":
                line, memory, at = rest
                barriers = [passed + 1 for passed in barriers]
                found += [Seen(line, (memory, g if memory == "w" else 0, at), g, 0, "read", barriers[g], grid_barriers) for g in range(GROUPS)]
                barriers = [passed + 1 for passed in barriers]
            else:
                line, kind, memory, (a, b, c), locals_, groups = rest
                for g, local in itertools.product(groups, locals_):
                    at = local * a + g * b + c
                    if at < (6 if memory == "y" else 4):
                        found.append(Seen(line, (memory, g if memory == "w" else 0, at), g, local, kind, barriers[g], grid_barriers))
        return found

    def races(self) -> list[tuple[Seen, Seen]]:
        """Every pair of which nothing orders the two."""
        return [(a, b) for a, b in itertools.combinations(self.seen(), 2) if self.race(a, b)]

    def race(self, a: Seen, b: Seen) -> bool:
        """By the words of the rule."""
        kinds = {a.kind, b.kind}
        conflict = "write" in kinds and not (kinds == {"write"} and self.one_value)
        unordered = a.group != b.group or (a.local != b.local and a.barriers == b.barriers)
        return a.element == b.element and conflict and unordered and a.grid_barriers == b.grid_barriers


@pytest.mark.parametrize("batch", range(4))
def test_what_is_found_is_a_race_and_no_race_goes_unseen(batch: int) -> None:
    found = 0
    for seed in range(batch * 100, batch * 100 + 100):
        drawn = Drawn(seed)
        text = "\n".join(drawn.lines)
        expected = drawn.races()
        error = race(text, {"y": np.zeros(6, np.uint32), "z": np.zeros(12, np.uint32)}, {})
        assert (error is not None) == bool(expected), f"{expected[:1]}\n{text}\n{error}"
        if error is not None:
            found += 1
            lines = [d.place.line for d in error.diagnostics if d.place is not None]
            pairs = {frozenset((a.line, b.line)) for a, b in expected}
            assert frozenset(lines) in pairs, f"{error}\n{text}"
            element = error.diagnostics[0].message.partition(":")[0]
            assert element in {f"{a.element[0]}[{a.element[2]}]" for a, b in expected if frozenset((a.line, b.line)) == frozenset(lines)}
    assert 20 < found < 95


# ---------------------------------------------------------------- where there are none


@pytest.mark.parametrize("seed", range(24))
def test_phases_between_grid_barriers_are_free_of_races(seed: int) -> None:
    for level in (None, 2):
        assert race(phases(seed, 4), phase_arguments(seed, 15), {"n": 15}, level) is None


# ---------------------------------------------------------------- many batches


@pytest.mark.parametrize("gap", [1, _BATCH_LANES, 2 * _BATCH_LANES])
@pytest.mark.parametrize("reads", [False, True])
def test_workgroups_of_different_batches_race(gap: int, reads: bool) -> None:
    """The last workgroups touch what the first ones wrote, or write what they read."""
    count = 2 * _BATCH_LANES + 256
    text = f"""program far(n) over(n) {{
  buffer y: u32[{count}] read_write
  buffer z: u32[{count}] write
  let i = global_id.x
  {"z[i] = y[i]" if reads else "y[i] = i"}
  if i == {count - 1} {{
    y[i - {gap}] = 3
  }}
}}"""
    error = race(text, {"y": np.zeros(count, np.uint32), "z": np.zeros(count, np.uint32)}, {"n": count})
    assert error is not None
    said = error.diagnostics[0].message
    assert said.startswith(f"y[{count - 1 - gap}]: ") and ("invocation 255 of workgroup" in said)
    assert ("without a barrier" in said) == (gap == 1)


def test_the_memory_of_a_workgroup_is_another_in_each_batch() -> None:
    k = Kernel(over=3 * _BATCH_LANES)
    tile = k.array("tile", Space.WORKGROUP, u32, 8)
    out = k.buffer("out", u32, 1)
    k.store(tile, (k("local_id.x"),), k("global_id.x"))
    k.barrier()
    k.atomic(ATOMICS["max"], out, (u(0),), (k.load(tile, (u(3),)),))
    got = np.zeros(1, np.uint32)
    interpret(unoptimised(check(k.finish()), expand=EXPANDED_ONLY), {"out": got}, {}, races=True)
    assert got[0] == 3 * _BATCH_LANES - 5


# ---------------------------------------------------------------- as users ask for it


def reverse(barrier: bool) -> vp.Program:
    with vp.ProgramBuilder("reverse", workgroup=64) as b:
        n = b.dim("n")
        x, w, t = b.read_write("x", vp.f32, n), b.workgroup("w", vp.f32, 64), b.local_id()
        w[t] = x[b.global_id()]
        if barrier:
            b.barrier()
        x[b.global_id()] = w[63 - t]
    return b.program


X = np.arange(64, dtype=np.float32)


def test_a_dispatch_finds_it_with_both_lines() -> None:
    pipeline = vp.device("reference").compile_native(reverse(False))
    with pytest.raises(vp.RaceError) as caught:
        pipeline.dispatch({"x": X}, config=WATCHING)
    assert caught.value.codes == ("R101", "R101")
    later, earlier = caught.value.diagnostics
    assert later.place is not None and earlier.place is not None
    assert later.place.file == earlier.place.file == __file__
    assert (later.place.source.strip(), earlier.place.source.strip()) == ("x[b.global_id()] = w[63 - t]", "w[t] = x[b.global_id()]")
    assert "b.barrier()" in later.help
    assert isinstance(caught.value, vp.ProgramError)


@pytest.mark.parametrize("config", [None, vp.DispatchConfig(label="x")])
def test_nobody_looks_unless_asked(config: vp.DispatchConfig | None) -> None:
    assert (vp.device("reference").compile_native(reverse(False)).dispatch({"x": X}, config=config)["x"] == X[::-1]).all()


def test_launches_graphs_and_sequences_look_too() -> None:
    device = vp.device("reference")
    for barrier in (True, False):
        buffer = device.upload(X)
        launch = device.compile_native(reverse(barrier)).bind({"x": buffer}, config=WATCHING)
        runs = (launch, device.sequence(launch), device.capture(launch))
        for run in runs:
            if barrier:
                run()
            else:
                with pytest.raises(vp.RaceError, match=r"w\[63\]"):
                    run()
        if barrier:
            assert (buffer.read() == X[::-1]).all()


def test_an_executor_gives_the_same_finding() -> None:
    with vp.Executor("reference", timeout=60.0) as executor:
        with pytest.raises(vp.RaceError) as caught:
            executor.dispatch(reverse(False), {"x": X}, config=WATCHING)
        assert caught.value.diagnostics[0].code == "R101"
        assert (executor.dispatch(reverse(True), {"x": X}, config=WATCHING)["x"] == X[::-1]).all()


def test_an_artifact_has_no_places_and_names_the_elements() -> None:
    artifact = vp.Artifact.from_bytes(vp.compile_native(reverse(False), targets=["reference"]).to_bytes())
    with pytest.raises(vp.RaceError, match=r"w\[63\]: invocation 0 of workgroup 0 reads it") as caught:
        vp.device("reference").load(artifact).dispatch({"x": X}, config=WATCHING)
    assert [d.place for d in caught.value.diagnostics] == [None, None]


def test_a_device_that_cannot_look_says_so() -> None:
    with pytest.raises(vp.Unsupported, match="dispatch option races"):
        vp.device("cpu").compile_native(reverse(True)).dispatch({"x": X}, config=WATCHING)
    with pytest.raises(vp.Unsupported, match="dispatch option races=1"):
        vp.DispatchConfig(races=1)  # type: ignore[arg-type]  # what is refused
