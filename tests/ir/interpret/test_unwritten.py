"""Reads of what nothing has written, that the interpreter finds: against every access, over many batches, beside races, and as users ask for it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.check.findings import MAX_FINDINGS
from vyre_py.ir.interpret import interpret
from vyre_py.ir.interpret.lanes import _BATCH_LANES
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.passes import unoptimised
from vyre_py.ir.text.parser import parse

WATCHING = vp.DispatchConfig(unwritten=True)
BOTH = vp.DispatchConfig(races=True, unwritten=True)


def watched(text: str, arguments: Mapping[str, Any], sizes: Mapping[str, int], races: bool = False) -> vp.ProgramError | None:
    """What is found when a Program runs as it was written."""
    code = unoptimised(check(parse(text, "t.vir")), expand=EXPANDED_ONLY)
    try:
        interpret(code, arguments, sizes, races=races, unwritten=True)
    except (vp.RaceError, vp.UnwrittenRead) as error:
        return error
    return None


# ---------------------------------------------------------------- against every access

GROUP, GROUPS = 4, 3
SIZES = {"w": 5, "v": 4, "p": 3}
SPELLINGS = {
    "read": "atomic_add(z[0], {})", "write": "{} = 7", "atomic": "atomic_add({}, 1)", "exchange": "atomic_exchange({}, 1)",
    "swap": "let old{line} = atomic_exchange({}, 1); atomic_add(z[0], old{line})",
    "uniform_load": "let seen{line} = uniform_load({})",
}  # fmt: skip
ATOMICS = ("atomic", "exchange", "swap")


class Drawn:
    """A random Program of accesses to two workgroup arrays and a private one, some in loops, and all that it does, by a walk of its own."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines = [
            f"program p workgroup({GROUP}) grid({GROUPS}) {{", "buffer z: u32[1] read_write", "workgroup w: u32[5]", "workgroup v: u32[4]",
            "private p: u32[3]", "let l = local_id.x", "let g = workgroup_id.x",
        ]  # fmt: skip
        self.work: list[tuple[str, int, str, list[tuple[int, int, int]]]] = []
        for _ in range(self.random.randrange(4, 14)):
            self.draw(self.work, 0)
        self.lines.append("}")

    def draw(self, into: list[Any], depth: int) -> None:
        """One access, or a loop of two turns around some."""
        if depth < 2 and self.random.random() < 0.15:
            self.lines.append(f"for turn{len(self.lines)} in 0u32..2 {{")
            inner: list[Any] = []
            for _ in range(self.random.randrange(1, 4)):
                self.draw(inner, depth + 1)
            self.lines.append("}")
            into += [*inner, *inner]
            return
        into.append(self.access())

    def access(self) -> tuple[str, int, str, list[tuple[int, int, int]]]:
        """What is done, on which line, to which array, by which invocations of which workgroups at which index."""
        r, line = self.random, len(self.lines) + 1
        kind = r.choice(["read"] * 3 + ["write"] * 4 + ["atomic", "exchange", "swap", "uniform_load"])
        memory = r.choice("wwp") if kind == "write" else r.choice("wwvp")
        if memory == "p" and kind not in ("read", "write"):
            memory = "v"
        a, b, c = (0, 0, r.randrange(6)) if kind == "uniform_load" else (r.randrange(3), r.randrange(2), r.randrange(4))
        locals_ = [0] if kind == "uniform_load" else sorted(r.sample(range(GROUP), r.randrange(1, GROUP + 1)))
        groups = list(range(GROUPS)) if kind == "uniform_load" or r.random() < 0.6 else [r.randrange(GROUPS)]
        does = SPELLINGS[kind].format(f"{memory}[l * {a} + g * {b} + {c}]" if kind != "uniform_load" else f"{memory}[{c}]", line=line)
        if kind != "uniform_load":
            mask, chosen = sum(1 << local for local in locals_), sum(1 << group for group in groups)
            does = f"if ({mask}u32 >> l & {chosen}u32 >> g & 1) == 1 {{ {does} }}"
        self.lines.append(does)
        return kind, line, memory, [(g, local, local * a + g * b + c) for g in groups for local in locals_]

    def expected(self) -> dict[int, list[str]]:
        """Every read of what nothing has written, by its line: the element and the invocation."""
        looked_at = {memory for kind, _, memory, _ in self.work if kind == "write"}
        looked_at |= {memory for _, _, memory, _ in self.work} - {memory for kind, _, memory, _ in self.work if kind in ATOMICS}
        written: set[tuple[str, int, int, int]] = set()
        found: dict[int, list[str]] = {}
        for kind, line, memory, accesses in self.work:
            for g, local, at in accesses:
                if at >= SIZES[memory] or memory not in looked_at:
                    continue
                element = (memory, g, local if memory == "p" else 0, at)
                if kind not in ("write", "exchange") and element not in written:
                    does = "changes it by an atomic" if kind in ATOMICS else "reads it"
                    found.setdefault(line, []).append(f"{memory}[{at}]: invocation {local} of workgroup {g} {does}, and nothing has written it")
                if kind not in ("read", "uniform_load"):
                    written.add(element)
        return found


@pytest.mark.parametrize("batch", range(4))
def test_what_is_found_is_every_read_of_what_nothing_wrote(batch: int) -> None:
    found = 0
    for seed in range(batch * 100, batch * 100 + 100):
        drawn = Drawn(seed)
        text = "\n".join(drawn.lines)
        expected = [
            (line, said[0] + (f", the first of {len(said)} such accesses here" if len(said) > 1 else "")) for line, said in sorted(drawn.expected().items())
        ]
        error = watched(text, {"z": np.zeros(1, np.uint32)}, {})
        got = [] if error is None else [(d.place.line, d.message) for d in error.diagnostics if d.place is not None]
        assert got == expected, text
        found += error is not None
    assert 40 < found < 98


# ---------------------------------------------------------------- many batches, many findings


def test_the_memory_of_a_workgroup_is_new_in_each_batch() -> None:
    """A workgroup of the last batch alone reads what those at the same place in earlier batches wrote."""
    count = 2 * _BATCH_LANES + 64
    text = f"""program late(n) workgroup(64) over(n) {{
  buffer y: u32[1] read_write
  workgroup w: u32[64]
  if global_id.x < {2 * _BATCH_LANES} {{
    w[local_id.x] = 1
  }}
  barrier
  atomic_add(y[0], w[local_id.x])
}}"""
    y = np.zeros(1, np.uint32)
    error = watched(text, {"y": y}, {"n": count})
    assert error is not None and y[0] == 2 * _BATCH_LANES  # it has run to its end
    (only,) = error.diagnostics
    assert only.message == (
        f"w[0]: invocation 0 of workgroup {2 * _BATCH_LANES // 64} reads it, and nothing has written it, the first of 64 such accesses here"
    )
    assert watched(text, {"y": y}, {"n": 2 * _BATCH_LANES}) is None


def test_findings_past_the_most_that_are_shown_are_counted() -> None:
    loads = "\n".join(f"  atomic_add(y[0], p[{k}])" for k in range(MAX_FINDINGS + 7))
    text = f"program many(n) workgroup(1) over(n) {{\n  buffer y: u32[1] read_write\n  private p: u32[{MAX_FINDINGS + 7}]\n{loads}\n}}"
    error = watched(text, {"y": np.zeros(1, np.uint32)}, {"n": 1})
    assert error is not None
    assert error.codes == ("R102",) * MAX_FINDINGS + ("V599",)
    assert "7 more findings" in error.diagnostics[-1].message
    assert "nothing stores to p" in error.diagnostics[0].help


# ---------------------------------------------------------------- as users ask for it


def difference(whole: bool, barrier: bool = True) -> vp.Program:
    with vp.ProgramBuilder("difference", workgroup=64) as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n), b.write("y", vp.f32, n)
        w, i, t = b.workgroup("w", vp.f32, 65), b.global_id(), b.local_id()
        w[t] = x[i]
        if whole:
            with b.if_(t == 0):
                w[64] = x[i + 64]
        if barrier:
            b.barrier()
        y[i] = w[t + 1] - w[t]
    return b.program


X = np.arange(64, dtype=np.float32)


def test_a_dispatch_finds_it_with_its_line() -> None:
    pipeline = vp.device("reference").compile_native(difference(False))
    with pytest.raises(vp.UnwrittenRead) as caught:
        pipeline.dispatch({"x": X}, config=WATCHING)
    (only,) = caught.value.diagnostics
    assert only.place is not None
    assert (only.code, only.place.file, only.place.source.strip()) == ("R102", __file__, "y[i] = w[t + 1] - w[t]")
    assert only.message == "w[64]: invocation 63 of workgroup 0 reads it, and nothing has written it"
    assert isinstance(caught.value, vp.ProgramError) and not isinstance(caught.value, vp.RaceError)
    vp.device("reference").compile_native(difference(True)).dispatch({"x": X}, config=WATCHING)


@pytest.mark.parametrize("config", [None, vp.DispatchConfig(label="x"), vp.DispatchConfig(races=True)])
def test_nobody_looks_unless_asked(config: vp.DispatchConfig | None) -> None:
    assert vp.device("reference").compile_native(difference(False)).dispatch({"x": X}, config=config)["y"][63] == -63


def test_races_are_not_looked_for_where_they_are_not_asked_for() -> None:
    racing = vp.device("reference").compile_native(difference(True, barrier=False))
    assert (racing.dispatch({"x": X}, config=WATCHING)["y"][:63] == 1).all()
    with pytest.raises(vp.RaceError):
        racing.dispatch({"x": X}, config=vp.DispatchConfig(races=True))


def test_both_are_looked_for_and_a_race_comes_first() -> None:
    device = vp.device("reference")
    for whole, barrier, raised in ((False, False, vp.RaceError), (True, False, vp.RaceError), (False, True, vp.UnwrittenRead)):
        with pytest.raises(raised):
            device.compile_native(difference(whole, barrier)).dispatch({"x": X}, config=BOTH)
    assert (device.compile_native(difference(True)).dispatch({"x": X}, config=BOTH)["y"][:63] == 1).all()


def test_launches_graphs_and_sequences_look_too_and_write_what_they_write() -> None:
    device = vp.device("reference")
    for whole in (True, False):
        y = device.allocate((64,), vp.f32)
        launch = device.compile_native(difference(whole)).bind({"x": device.upload(X), "y": y}, config=WATCHING)
        for run in (launch, device.sequence(launch), device.capture(launch)):
            y.fill(0)
            if whole:
                run()
            else:
                with pytest.raises(vp.UnwrittenRead, match=r"w\[64\]"):
                    run()
            assert (y.read() == [*[1] * 63, -63]).all()


def test_an_executor_gives_the_same_finding() -> None:
    with vp.Executor("reference", timeout=60.0) as executor:
        with pytest.raises(vp.UnwrittenRead) as caught:
            executor.dispatch(difference(False), {"x": X}, config=WATCHING)
        assert caught.value.codes == ("R102",)
        assert executor.dispatch(difference(True), {"x": X}, config=WATCHING)["y"][0] == 1


def test_an_artifact_has_no_places_and_names_the_elements() -> None:
    artifact = vp.Artifact.from_bytes(vp.compile_native(difference(False), targets=["reference"]).to_bytes())
    with pytest.raises(vp.UnwrittenRead, match=r"w\[64\]: invocation 63 of workgroup 0 reads it") as caught:
        vp.device("reference").load(artifact).dispatch({"x": X}, config=WATCHING)
    assert [d.place for d in caught.value.diagnostics] == [None]


def test_a_device_that_cannot_look_says_so() -> None:
    with pytest.raises(vp.Unsupported, match="dispatch option unwritten"):
        vp.device("cpu").compile_native(difference(True)).dispatch({"x": X}, config=WATCHING)
    with pytest.raises(vp.Unsupported, match="dispatch option unwritten=1"):
        vp.DispatchConfig(unwritten=1)  # type: ignore[arg-type]  # what is refused
