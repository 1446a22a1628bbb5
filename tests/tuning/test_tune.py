"""Tuning: candidates that run are right, those that do not are told and are no trouble, and winners are kept. Which is the fastest is no test's affair."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_kinds import KINDS, open_device

import vyre_py as vp
from vyre_py.drivers.cache.disk import DiskCache
from vyre_py.drivers.errors import BindingError, LaunchError
from vyre_py.ir.language.types import Type
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.target import parse_target
from vyre_py.ops.spaces import space_of
from vyre_py.tuning import tune as tuning
from vyre_py.tuning.defaults import DEFAULTS, default_for
from vyre_py.tuning.estimate import estimate
from vyre_py.tuning.results import Expected, is_exact

SQUARE = np.random.default_rng(7).normal(size=(48, 48)).astype(np.float32)
PRODUCT = {"a": SQUARE, "b": SQUARE}
TILES = {"tiles": [(16, 16, 16), (32, 16, 16), (16, 32, 8)]}
matmul = partial(vp.ops.matmul, vp.f32)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskCache:
    """Winners go to a cache of the test's own."""
    made = DiskCache(tmp_path / "cache")
    monkeypatch.setattr(tuning, "disk_cache", lambda: made)
    return made


def doubled(way: str, workgroup: int = 64) -> vp.Program:
    """y = 2 x; or a Program that never ends, is wrong, or breaks a rule."""
    with vp.ProgramBuilder("doubled", workgroup=1 << 20 if way == "too large" else workgroup) as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n), b.write("y", vp.f32, n)
        i = b.global_id(0)
        if way == "endless":
            turns = b.var("turns", vp.u32)
            with b.loop():
                turns += 1
                b.break_if(x[turns & 1] == 12345.0)
        y[i] = x[i] * (3 if way == "wrong" else 2)
    return b.program


def errors_of(found: vp.Tuned) -> dict[str, str]:
    return {trial.parameters["way"]: trial.error for trial in found.tried}


@pytest.mark.parametrize("kind", KINDS)
def test_the_winner_is_the_fastest_tried_and_its_program_is_right(kind: str) -> None:
    device = open_device(kind)
    found = vp.tune(matmul, TILES, PRODUCT, device=kind, tries=None)
    times = [trial.launch_ns for trial in found.tried]
    assert len(times) == found.candidates == 3 and found.launch_ns == min(ns for ns in times if ns is not None)
    assert [trial.rank for trial in found.tried] == [0, 1, 2] and not any(trial.error for trial in found.tried)
    assert found.program.code_digest == matmul(**found.parameters).code_digest
    product = device.compile_native(found.program).dispatch(PRODUCT)["c"]
    np.testing.assert_allclose(product, SQUARE.astype(np.float64) @ SQUARE, rtol=1e-4, atol=1e-4)


def test_what_was_found_is_kept_for_sizes_of_the_same_class() -> None:
    first = vp.tune(matmul, TILES, PRODUCT, device="cpu", tries=2)
    assert len(first.tried) == 2
    for size, tries, tried in ((48, 2, 0), (33, 1, 0), (64, 0, 0), (65, 2, 2), (48, 3, 3), (48, None, 0)):
        square = np.ones((size, size), np.float32)
        assert len(vp.tune(matmul, TILES, {"a": square, "b": square}, device="cpu", tries=tries).tried) == tried, (size, tries)
    assert len(vp.tune(matmul, TILES, PRODUCT, device="cpu", tries=1, again=True).tried) == 1
    other = {"tiles": TILES["tiles"][:2]}
    assert len(vp.tune(matmul, other, PRODUCT, device="cpu", tries=1).tried) == 1, "other candidates are another choice"


def test_a_winner_goes_along_in_bundles(kept: DiskCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = vp.tune(matmul, TILES, PRODUCT, device="cpu")
    kept.export(tmp_path / "bundle")
    other = DiskCache(tmp_path / "other")
    assert other.import_(tmp_path / "bundle").entries == 1
    monkeypatch.setattr(tuning, "disk_cache", lambda: other)
    again = vp.tune(matmul, TILES, PRODUCT, device="cpu", tries=0)
    assert (again.parameters, again.launch_ns, again.tried) == (found.parameters, found.launch_ns, ())


def test_an_entry_that_makes_no_sense_is_passed_over(kept: DiskCache) -> None:
    vp.tune(matmul, TILES, PRODUCT, device="cpu", tries=1)
    (listed,) = kept.entries()
    assert listed.key.kind == "tuned"
    for data in (b"", b"[]", b"{}", b'{"candidate": 9, "launch_ns": 1.0, "tried": 9}', b'{"candidate": true, "launch_ns": 1.0, "tried": 9}', b"\xff"):
        kept.put(listed.key, data)
        assert vp.tune(matmul, TILES, PRODUCT, device="cpu", tries=0).launch_ns is None


def test_without_tries_nothing_runs() -> None:
    found = vp.tune(matmul, TILES, PRODUCT, device="cpu", tries=0)
    assert found.tried == () and found.launch_ns is None and found.parameters["tiles"] in TILES["tiles"]


def test_candidates_that_fail_are_told_and_do_no_harm() -> None:
    ways = ["endless", "right", "too large"]
    found = vp.tune(doubled, {"way": ways}, {"x": np.arange(1000, dtype=np.float32)}, device="cpu", tries=None, timeout=3.0)
    told = errors_of(found)
    assert found.parameters == {"way": "right"} and told["right"] == ""
    assert told["endless"].startswith("DispatchTimeout") and told["too large"].startswith("ValidationError")
    assert found.candidates == 3


def test_a_candidate_that_the_device_cannot_run_is_counted() -> None:
    factors = {name: np.ones((16, 16), vp.bf16.dtype) for name in "ab"}
    found = vp.tune(partial(vp.ops.matmul, vp.bf16, tiles=(64, 64, 64)), {"tensor": ["sm_90", False]}, factors, device="cpu")
    (failed,) = [trial for trial in found.tried if trial.launch_ns is None]
    assert found.parameters == {"tensor": False} and failed.error.startswith("Unsupported") and "1 of them failed" in repr(found)


def test_results_have_to_be_those_of_the_first_combination_or_what_check_takes() -> None:
    x = np.arange(100, dtype=np.float32)
    space: dict[str, list[Any]] = {"way": ["right", "wrong"]}
    found = vp.tune(doubled, space, {"x": x}, device="cpu")
    assert found.parameters == {"way": "right"} and found.checked == "reference:0"
    assert "'y' is not what reference:0 gives: 99 of 100 elements differ, the first is [1]" in errors_of(found)["wrong"]

    found = vp.tune(doubled, space, {"x": x}, device="cpu", again=True, check=lambda results: np.testing.assert_array_equal(results["y"], 2 * x))
    assert found.parameters == {"way": "right"} and errors_of(found)["wrong"].startswith("AssertionError") and found.checked == "check"
    with pytest.raises(LaunchError, match="none of 1 candidates ran on cpu:0"):
        vp.tune(doubled, {"way": ["wrong"]}, {"x": x}, device="cpu", check=lambda results: np.testing.assert_array_equal(results["y"], 2 * x))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fast_candidate_whose_code_is_wrong_never_wins(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is tried first: each element that a device gives for it is off, in the launch before those that are timed or in that behind them."""

    class Wrong(tuning.Executor):
        def measure(self, program: Any, *given: Any, **named: Any) -> Any:
            results, taken = super().measure(program, *given, **named)
            bad = program.workgroup[0] == 32
            return ({"y": results["y"] + 1}, [1.0]) if bad and when == "before" else (results, [1.0] if bad else taken)

        def dispatch(self, program: Any, *given: Any, **named: Any) -> Any:
            results = super().dispatch(program, *given, **named)
            return {"y": results["y"] + 1} if program.workgroup[0] == 32 and when == "after" else results

    monkeypatch.setattr(tuning, "Executor", Wrong)
    monkeypatch.setattr(tuning, "estimate", lambda program, *rest: program.workgroup[0])
    x = np.arange(100, dtype=np.float32)
    found = vp.tune(partial(doubled, "right"), {"workgroup": [32, 64]}, {"x": x}, device="cpu")
    first, second = found.tried
    assert found.parameters == {"workgroup": 64} and second.error == ""
    assert first.parameters == {"workgroup": 32} and first.launch_ns is None
    assert first.error.startswith("LaunchError: 'y' is not what reference:0 gives: 100 of 100 elements differ")
    assert "1 failed" in found._repr_html_() and "reference:0" in found._repr_html_()


def test_the_fastest_are_timed_again_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was fast by chance does not win; one that fails then has failed; what is far from the fastest is timed once."""
    times = {32: [100.0, 130.0, 130.0], 64: [105.0], 128: [200.0], 256: [101.0]}  # by workgroup; the last goes on
    asked: list[int] = []

    class Timed(tuning.Executor):
        def measure(self, program: Any, *given: Any, **named: Any) -> Any:
            results, _ = super().measure(program, *given, **named)
            width = program.workgroup[0]
            asked.append(width)
            if width == 256 and asked.count(width) == 2:
                raise LaunchError("it is gone")
            turn = min(asked.count(width), len(times[width])) - 1
            return results, [times[width][turn]]

    monkeypatch.setattr(tuning, "Executor", Timed)
    monkeypatch.setattr(tuning, "estimate", lambda program, *rest: program.workgroup[0])
    found = vp.tune(partial(doubled, "right"), {"workgroup": [32, 64, 128, 256]}, {"x": np.arange(1000, dtype=np.float32)}, device="cpu")
    assert asked == [32, 64, 128, 256, 32, 256, 64, 32, 64]
    assert (found.parameters, found.launch_ns) == ({"workgroup": 64}, 105.0)
    assert [trial.launch_ns for trial in found.tried] == [130.0, 105.0, 200.0, None] and "it is gone" in found.tried[3].error


def test_where_no_other_device_gives_what_is_right_the_first_that_ran_does() -> None:
    """On the interpreter itself, and where that would take too long."""
    x = np.arange(100, dtype=np.float32)
    assert vp.tune(doubled, {"way": ["right", "wrong"]}, {"x": x}, device="reference").checked == "first"
    found = vp.tune(doubled, {"way": ["endless", "right"]}, {"x": x}, device="cpu", timeout=2.0)
    assert (found.parameters, found.checked) == ({"way": "right"}, "first")


def summed(how: str) -> vp.Program:
    """One sum of all elements, by atomics of the type, by tiles, or over the grid."""
    with (vp.TileBuilder if how == "tiles" else vp.ProgramBuilder)("summed") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, 1)
        if how == "tiles":
            b.grid(vp.ceil_div(n, 32))
            y.atomic_add((0,), x.tile(b.workgroup_id(0) * 32, shape=(32,)).reduce("add", 0).reshape((1,)))
        else:
            b.over(n)
            y.atomic_add(0, x[b.global_id(0)])
    return b.program


def test_which_results_have_the_same_bits_however_they_are_computed() -> None:
    def exact(program: vp.Program, target: str, **options: Any) -> bool:
        return is_exact(program, vp.compile_native(program, [target], vp.CompileOptions(**options)))

    assert exact(doubled("right"), "cpu") and exact(vp.ops.prefix_sum(vp.u32), "cpu") and exact(matmul(), "cpu")
    assert not exact(doubled("right"), "sm_80", numerics="fast") and not exact(vp.ops.matmul(vp.bf16), "cpu")
    assert not any(exact(program, "cpu") for program in (summed("atomics"), summed("tiles"), vp.ops.prefix_sum(vp.f32)))
    assert exact(vp.ops.scatter_add(vp.i32), "cpu") and not exact(vp.ops.scatter_add(vp.f32), "cpu")


def test_sums_in_another_order_are_near_enough_where_a_space_says_that_there_are_such() -> None:
    program, device = doubled("right"), vp.device("reference")
    artifact = vp.compile_native(program, ["cpu"])
    right = {"y": np.float32([1.0, np.nan, 2.0])}
    for reorders, by, fits in ((False, 0.0, True), (False, 1e-6, False), (True, 1e-6, True), (True, 0.1, False)):
        judge = tuning._Judge(None, Expected(program, {}, device, vp.CompileOptions(), 1.0), reorders)
        judge(program, artifact, right)
        with contextlib.nullcontext() if fits else pytest.raises(LaunchError, match=r"1 of 3 elements differ, the first is \[0\]"):
            judge(program, artifact, {"y": right["y"] + np.float32([by, 0, 0])})


def test_ready_programs_declare_what_may_be_tried() -> None:
    """Each combination is a Program, and the shapes that there are names for are among them."""
    for make in (vp.ops.matmul, partial(vp.ops.attention, vp.bf16, 64)):
        space = space_of(make)
        assert space is not None
        assert len({make(**point).code_digest for point in tuning._points(space.values, None)}) == math.prod(map(len, space.values.values()))
    products = space_of(partial(vp.ops.matmul, vp.bf16))
    assert products is not None and set(vp.ops.TILES.values()) <= set(products.values["tiles"])
    assert vp.tune(matmul, None, PRODUCT, device="cpu", tries=0).candidates == len(products.values["tiles"]) > 10
    attention = space_of(vp.ops.attention)
    assert attention is not None and attention.reorders and not products.reorders
    with pytest.raises(Unsupported, match="declares none"):
        vp.tune(doubled, None, PRODUCT, device="cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_hints_for_cuda_are_tried_there_alone(kind: str) -> None:
    products = space_of(vp.ops.matmul)
    assert products is not None and products.hints == ("stages",)
    stages = products.values["stages"]
    assert products.values_on(kind) == {"tiles": products.values["tiles"], "stages": stages if kind == "cuda" else stages[:1]}


@pytest.mark.parametrize("target", ["cpu", "wgsl"])
def test_hints_for_cuda_change_no_code_elsewhere(target: str) -> None:
    made = [vp.compile_native(vp.ops.matmul(vp.bf16, tiles=(64, 64, 32), stages=stages), [target]).parts[0].steps[0].images for stages in (0, 3)]
    assert made[0] == made[1]


def test_combinations_that_are_not_allowed_are_left_out() -> None:
    space = {"way": ["right"], "workgroup": [32, 64, 128]}
    found = vp.tune(doubled, space, {"x": np.ones(8, np.float32)}, device="cpu", allowed=lambda way, workgroup: workgroup != 64, tries=None)
    assert {trial.parameters["workgroup"] for trial in found.tried} == {32, 128}


def test_progress_hears_of_every_candidate() -> None:
    heard: list[tuple[int, int]] = []
    vp.tune(matmul, TILES, PRODUCT, device="cpu", progress=lambda done, total, name: heard.append((done, total)))
    assert heard.count((3, 3)) == 2, "compiled, and timed"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tries": -1}, "tries=-1"), ({"tries": True}, "tries=True"), ({"timeout": 0}, "timeout=0"), ({"space": ["tiles"]}, "space"),
        ({"space": {"tiles": []}}, "'tiles'"), ({"space": {"tiles": [object()]}}, "'tiles'"), ({"space": {"tiles": list(range(5000))}}, "5000 candidates"),
        ({"allowed": lambda tiles: False}, "without a candidate"), ({"make": lambda tiles: None}, "make gave None"),
        ({"space": {"tiles": 3}}, "values 3 of 'tiles'"), ({"space": {"tiles": "small"}}, "values 'small' of 'tiles'"),
        ({"make": 3}, "make that is 3"), ({"make": matmul()}, "make that is <Program"), ({"make": [], "space": None}, "declares none"),
        ({"space": {"tilse": ["small"]}}, "parameters tilse for make: got an unexpected keyword argument 'tilse'"),
        ({"allowed": lambda x: True}, "parameters tiles for allowed: missing a required argument: 'x'"), ({"allowed": 3}, "allowed that is 3"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(changed: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"make": matmul, "space": TILES, "arguments": PRODUCT, "device": "cpu"}
    with pytest.raises(Unsupported, match=message):
        vp.tune(**{**given, **changed})


def test_a_wrong_value_is_placed_where_the_tuning_was_asked_for() -> None:
    with pytest.raises(LaunchError, match=Path(__file__).name):
        vp.tune(matmul, {"tiles": ["huge"]}, PRODUCT, device="cpu")


def test_arrays_that_do_not_fit_are_refused_before_anything_runs() -> None:
    with pytest.raises(BindingError):
        vp.tune(matmul, TILES, {"a": SQUARE, "b": SQUARE[:40]}, device="cpu")


def test_an_executor_times_launches_of_a_program() -> None:
    x = np.arange(100, dtype=np.float32)
    with vp.Executor("cpu") as executor:
        results, taken = executor.measure(doubled("right"), {"x": x}, rounds=3)
        np.testing.assert_array_equal(results["y"], 2 * x)
        assert len(taken) == 3 and all(ns > 0 for ns in taken)
        with pytest.raises(Unsupported, match="rounds=0"):
            executor.measure(doubled("right"), {"x": x}, rounds=0)


# A target, elements, sizes of all dims, and what was measured there.
MEASURED = [
    ("sm_90", vp.bf16, True, 4096, (128, 256, 64)), ("sm_90", vp.bf16, True, 1024, None), ("sm_90", vp.bf16, False, 4096, None),
    ("sm_80", vp.bf16, True, 4096, None), ("sm_90", vp.i8, True, 8192, (128, 256, 128)), ("sm_90", vp.f32, True, 8192, (128, 256, 32)),
    ("sm_90", vp.f64, False, 4096, (128, 128, 16)), ("x86-64-v3", vp.f32, False, 512, (128, 128, 64)), ("x86-64-v3", vp.f32, False, 511, None),
    ("wgsl", vp.f32, False, 4096, None),
]  # fmt: skip


@pytest.mark.parametrize(("target", "type_", "tensor", "size", "tiles"), MEASURED, ids=str)
def test_what_was_measured_is_found_by_device_type_and_size(target: str, type_: Type, tensor: bool, size: int, tiles: tuple[int, ...] | None) -> None:
    program, sizes = vp.ops.matmul(type_, tensor=tensor, tiles="small"), dict.fromkeys("mnk", size)
    found = default_for(program, parse_target(f"cpu:{target}" if "x86" in target else target), sizes)
    assert found == ({} if tiles is None else {"tiles": tiles})


def test_what_was_measured_comes_first() -> None:
    """Before what the model would take, and by its name, too; other Programs with such parameters are not meant."""
    space = {"tiles": [(8, 8, 8), "medium", "small"]}
    large, small = (dict.fromkeys("ab", np.ones((size, size), np.float32)) for size in (512, 48))
    assert vp.tune(matmul, space, large, device="cpu", tries=0).parameters == {"tiles": "medium"}
    device = vp.device("cpu")
    likely = min(space["tiles"], key=lambda tiles: estimate(matmul(tiles=tiles), device, dict.fromkeys("mnk", 48)))
    assert vp.tune(matmul, space, small, device="cpu", tries=0).parameters == {"tiles": likely}
    assert default_for(replace(matmul(), name="product"), device.target, dict.fromkeys("mnk", 512)) == {}
    assert all(row.source for row in DEFAULTS)
