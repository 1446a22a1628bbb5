"""Chains: what comes out is what each step alone would give, whatever shares bytes with what."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from device_kinds import open_device
from hypothesis import given, settings
from hypothesis import strategies as st

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import BindingError
from vyre_py.ir.builder.expressions import Expr
from vyre_py.ir.language.program import Program


def elementwise(name: str, function: Callable[..., Expr], inputs: int = 1, in_place: bool = False) -> Program:
    """out[i] = function(a[i], ...); in place, function(out[i], a[i], ...)."""
    with vp.ProgramBuilder(name) as b:
        n = b.dim("n")
        given_ = [b.read("abc"[k], vp.f32, n) for k in range(inputs)]
        out = (b.read_write if in_place else b.write)("out", vp.f32, n)
        i = b.global_id(0)
        out[i] = function(*([out[i]] if in_place else []), *(array[i] for array in given_))
    return b.program


DOUBLE = elementwise("double", lambda a: a * 2.0)
ADD = elementwise("add", lambda a, b: a + b, 2)
NEGATE = elementwise("negate", lambda a: -a, 0, in_place=True)
SUBTRACT = elementwise("subtract", lambda out, a: out - a, 1, in_place=True)

with vp.ProgramBuilder("matmul") as _b:
    _m, _k, _n = _b.dim("m"), _b.dim("k"), _b.dim("n")
    _left, _right, _product = _b.read("left", vp.f32, _m, _k), _b.read("right", vp.f16, _k, _n), _b.write("product", vp.f32, _m, _n)
    _total = _b.var("total", vp.f32)
    with _b.for_(0, _k, name="j") as _j:
        _total.set(_total + _left[_b.global_id(1), _j] * vp.cast(_right[_j, _b.global_id(0)], vp.f32))
    _product[_b.global_id(1), _b.global_id(0)] = _total
MATMUL = _b.program

with vp.ProgramBuilder("count") as _b:
    _n = _b.dim("n")
    _x, _bins = _b.read("x", vp.f32, _n), _b.read_write("bins", vp.u32, 4)
    _b.over(_n)
    _i = _b.global_id(0)
    with _b.if_(_i < _n):
        _bins.atomic_add(vp.cast(_x[_i], vp.u32) & 3, 1)
COUNT = _b.program

with vp.ProgramBuilder("truncate") as _b:
    _words = _b.read_write("words", vp.u32, _b.dim("n"))
    _i = _b.global_id(0)
    _words[_i] = vp.bitcast(vp.cast(vp.bitcast(_words[_i], vp.f32), vp.i32), vp.u32)
TRUNCATE = _b.program

XS = np.arange(1000, dtype=np.float32)


def test_a_chain_runs_any_number_of_times(device: Device) -> None:
    chain = device.chain(
        [
            (DOUBLE, {"a": "x", "out": "h"}),
            (ADD, {"a": "x", "b": "h", "out": "g"}),
            (NEGATE, {"out": ("g", "k")}),  # g is not needed afterwards
            (NEGATE, {"out": ("k", "l")}),  # k is, by the next step
            (ADD, {"a": "k", "b": "l", "out": "m"}),
            (SUBTRACT, {"out": "m", "a": "l"}),
            (COUNT, {"x": "l", "bins": "bins"}),
        ],
        inputs={"x": XS}, outputs=("m", "bins"), zeroed=("bins",),
    )  # fmt: skip
    plan = chain.plan
    assert plan.offsets["k"] == plan.offsets["g"] != plan.offsets["l"] and plan.copies == ((3, "k", "l"),) and plan.fills == ((6, "bins"),)
    assert plan.floor_bytes == plan.peak_bytes < plan.sum_bytes
    assert len(chain.steps) == 7 and len(chain.sequence) == 9 and "7 steps" in repr(chain) and "copied" in chain.explain()
    for xs in (XS, XS[::-1].copy(), XS + 1):
        chain["x"].write(xs)
        chain()
        chain()
        np.testing.assert_array_equal(chain["m"].read(), -3 * xs)
        np.testing.assert_array_equal(chain["bins"].read(), np.bincount((3 * xs).astype(np.int64) & 3, minlength=4))
        np.testing.assert_array_equal(chain["x"].read(), xs)
    chain.free()
    with pytest.raises(BindingError, match="was freed"):
        chain()


def test_weights_scalars_views_and_dims_by_name(device: Device) -> None:
    rng = np.random.default_rng(3)
    w1, w2 = rng.standard_normal((12, 20)), rng.standard_normal((20, 6))
    weights = device.weights({"w1": w1, "w2": w2}, type=vp.f16)
    with vp.ProgramBuilder("scale") as b:
        factor, x = b.param("factor", vp.f32), b.read_write("x", vp.f32, b.dim("n"))
        x[b.global_id(0)] = x[b.global_id(0)] * factor
    steps = [
        (MATMUL, {"left": "x", "right": weights["w1"], "product": "h"}),
        (b.program, {"x": "flat", "factor": 0.5}),
        (device.compile_native(MATMUL), {"left": "h", "right": weights["w2"], "product": "y"}),
    ]
    chain = device.chain(steps, inputs={"x": (vp.f32, (5, 12))}, outputs=("y",), views={"flat": ("h", vp.f32, (100,))})
    xs = rng.standard_normal((5, 12)).astype(np.float32)
    chain["x"].write(xs)
    for factor in (0.5, 2.0):
        chain.steps[1].set(factor=factor)
        chain()
        expected = (xs @ w1.astype(np.float16).astype(np.float32)) * factor @ w2.astype(np.float16).astype(np.float32)
        np.testing.assert_allclose(chain["y"].read(), expected, rtol=1e-4, atol=1e-4)
    assert chain["flat"].offset_bytes == chain["h"].offset_bytes
    weights.update("w1", np.zeros((12, 20)))
    chain()
    assert not chain["y"].read().any()
    weights.free()
    with pytest.raises(BindingError, match="freed"):
        chain()
    chain.free()


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("viewed", [False, True])
def test_a_step_may_read_what_it_makes_in_place(device: Device, later: bool, viewed: bool) -> None:
    mix = elementwise("mix", lambda out, a: out * 3.0 - a, 1, in_place=True)
    steps = [(DOUBLE, {"a": "x", "out": "h"}), (mix, {"out": ("h", "d"), "a": "v" if viewed else "h"})]
    steps += [(ADD, {"a": "h", "b": "d", "out": "s"})] * later
    xs = np.arange(5, dtype=np.float32)
    views = {"v": ("h", vp.f32, (5,))} if viewed else {}
    chain = device.chain(steps, inputs={"x": xs}, outputs=("d", *["s"] * later), views=views)
    for _ in range(2):
        chain()
        assert np.array_equal(chain["d"].read(), 4 * xs)
    assert not later or np.array_equal(chain["s"].read(), 6 * xs)
    chain.free()


def test_values_shorter_than_planned(device: Device) -> None:
    steps = [(DOUBLE, {"a": "x", "out": "h"}), (NEGATE, {"out": ("h", "k")}), (COUNT, {"x": "k", "bins": "bins"}), (ADD, {"a": "k", "b": "x", "out": "s"})]
    chain = device.chain(steps, inputs={"x": (vp.f32, (9,))}, outputs=("s", "bins"), zeroed=("bins",))
    allocated = device.telemetry.allocations
    for rows in (9, 4, 0, 9, 7):
        chain.set_actual_len({} if rows == 9 else {"x": rows})
        xs = np.arange(rows, dtype=np.float32)
        chain["x"].write(xs)
        chain()
        assert np.array_equal(chain["s"].read(), -xs) and chain["bins"].read().sum() == rows
        assert chain["k"].shape == (rows,) and len(chain.steps) == 4
    assert device.telemetry.allocations == allocated
    for wrong, words in [({"x": 10}, "planned with 9 rows, got 10"), ({"x": -1}, "got -1"), ({"h": 3}, "is neither an input"), (7, "a mapping of names")]:
        with pytest.raises(BindingError, match=words):
            chain.set_actual_len(wrong)  # type: ignore[arg-type]  # the mistake under test
    assert chain["s"].shape == (7,)
    chain()
    chain.free()
    with pytest.raises(BindingError, match="freed"):
        chain.set_actual_len({"x": 3})


def test_what_does_not_fit_together_when_shorter_changes_nothing(device: Device) -> None:
    chain = device.chain([(ADD, {"a": "x", "b": "y", "out": "s"})], inputs={"x": (vp.f32, (5,)), "y": (vp.f32, (5,))}, outputs=("s",))
    with pytest.raises(BindingError, match="dim 'n' is 3 from"):
        chain.set_actual_len({"x": 3})
    assert chain["x"].shape == chain["s"].shape == (5,)
    chain.set_actual_len({"x": 3, "y": 3})
    chain["x"].write(np.ones(3, np.float32))
    chain["y"].write(np.ones(3, np.float32))
    chain()
    assert chain["s"].read().tolist() == [2, 2, 2]
    chain.free()


def test_shapes_that_come_to_nothing(device: Device) -> None:
    with vp.ProgramBuilder("fewer") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n), b.write("y", vp.f32, n - 1)
        y[b.global_id(0)] = x[b.global_id(0)] * 2
    chain = device.chain([(b.program, {"x": "x", "y": "y"})], inputs={"x": np.zeros(0, np.float32)}, outputs=("y",))
    chain()
    assert chain["y"].read().shape == (0,)
    chain.free()


def test_a_cast_in_place_and_its_result_as_another_type(device: Device) -> None:
    with vp.ProgramBuilder("total") as b:
        x, out = b.read("x", vp.i32, b.dim("n")), b.read_write("out", vp.i32, 1)
        b.over(b.dim("count"))
        out.atomic_add(0, x[b.global_id(0)])
    values = np.linspace(-50, 50, 100, dtype=np.float32)
    chain = device.chain(
        [(DOUBLE, {"a": "x", "out": "h"}), (TRUNCATE, {"words": ("h", "words")}), (b.program, {"x": "whole", "out": "sum", "count": 100})],
        inputs={"x": values}, outputs=("sum",), views={"whole": ("words", vp.i32, (100,))}, zeroed=("sum",),
    )  # fmt: skip
    assert chain.plan.offsets["h"] == chain.plan.offsets["words"] == chain.plan.offsets["whole"] and not chain.plan.copies
    for _ in range(2):
        chain()
        np.testing.assert_array_equal(chain["sum"].read(), [np.trunc(2 * values).astype(np.int32).sum()])
    chain.free()


def test_what_memory_held_before_shows_nowhere(device: Device) -> None:
    """The rule for unwritten memory: bytes of an arena are unspecified, and a chain that plans well never shows them."""
    plan = vp.plan_arena([vp.ArenaValue("x", (16384,), vp.u8)], [vp.ArenaStep(("x",), ())], inputs=("x",))
    dirty = device.arena(plan)
    dirty["x"].write(np.full(16384, 0xFF, np.uint8))
    dirty.free()
    chain = device.chain([(DOUBLE, {"a": "x", "out": "h"}), (COUNT, {"x": "h", "bins": "bins"})],
        inputs={"x": XS}, outputs=("bins",), zeroed=("bins",),
    )  # fmt: skip
    chain()
    np.testing.assert_array_equal(chain["bins"].read(), np.bincount((2 * XS).astype(np.int64) & 3, minlength=4))
    chain.free()


def test_values_of_no_elements(device: Device) -> None:
    chain = device.chain([(DOUBLE, {"a": "x", "out": "h"}), (NEGATE, {"out": ("x", "y")}), (SUBTRACT, {"out": "z", "a": "h"})],
        inputs={"x": XS[:0]}, outputs=("y", "z"), zeroed=("z",),
    )  # fmt: skip
    chain()
    assert chain["y"].read().size == chain["z"].read().size == chain.plan.peak_bytes == 0
    chain.free()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_chains_equal_separate_arrays(data: st.DataObject) -> None:
    device = open_device("cpu")
    arrays: dict[str, np.ndarray] = {"x0": XS[:100], "x1": -XS[:100]}
    steps: list[tuple[Program, dict[str, object]]] = []
    inputs = dict(arrays)
    for number in range(data.draw(st.integers(1, 10))):
        names = list(arrays)
        one, two = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
        kind = data.draw(st.sampled_from(["double", "add", "negate", "update"]))
        made = f"v{number}"
        if kind == "double":
            steps.append((DOUBLE, {"a": one, "out": made}))
            arrays[made] = arrays[one] * 2
        elif kind == "add":
            steps.append((ADD, {"a": one, "b": two, "out": made}))
            arrays[made] = arrays[one] + arrays[two]
        elif kind == "negate":
            steps.append((NEGATE, {"out": (one, made)}))
            arrays[made] = -arrays[one]
        elif one != two and one not in inputs:
            steps.append((SUBTRACT, {"out": one, "a": two}))
            arrays[one] = arrays[one] - arrays[two]
    if not steps:
        return
    outputs = tuple(name for name in arrays if name not in inputs and data.draw(st.booleans()))
    chain = device.chain(steps, inputs=inputs, outputs=outputs)
    for _ in range(2):
        chain()
        for name in outputs:
            np.testing.assert_array_equal(chain[name].read(), arrays[name], err_msg=chain.explain())
    chain.free()


def test_chains_are_captured(device: Device) -> None:
    chain = device.chain([(DOUBLE, {"a": "x", "out": "h"}), (NEGATE, {"out": ("h", "y")}), (COUNT, {"x": "x", "bins": "bins"})],
        inputs={"x": XS}, outputs=("y", "bins"), zeroed=("bins",),
    )  # fmt: skip
    graph = device.capture(chain)
    for factor in (1, 3):
        chain["x"].write(XS * factor)
        graph()
        np.testing.assert_array_equal(chain["y"].read(), -2 * factor * XS)
        np.testing.assert_array_equal(chain["bins"].read(), np.bincount((factor * XS).astype(np.int64) & 3, minlength=4))
    graph.close()
    chain.free()


REFUSED = {
    "step 0 is a pipeline and a mapping": ([DOUBLE], {}),
    "step 0 is a pipeline and a mapping of arguments, got": ([(DOUBLE, "x")], {}),
    "'a' reads 'q', which no step before has written": ([(DOUBLE, {"a": "q", "out": "h"})], {}),
    "'out' is write; a value becomes another in place where it is read_write": ([(DOUBLE, {"a": "x", "out": ("x", "h")})], {}),
    "'x' is there already": ([(DOUBLE, {"a": "x", "out": "h"}), (NEGATE, {"out": ("h", "x")})], {}),
    "the shape of 'out' does not follow": ([(DOUBLE, {"out": "h"})], {}),
    "'a' (f32, read) is missing": ([(DOUBLE, {"out": "h", "n": 5})], {}),
    "there is no argument 'z'": ([(DOUBLE, {"a": "x", "out": "h", "z": 1})], {}),
    "step 1, add": ([(DOUBLE, {"a": "x", "out": "h"}), (ADD, {"a": "h", "b": "short", "out": "y"})], {"inputs": {"x": XS, "short": XS[:3]}}),
    "zeroed 'q' is not a value": ([(DOUBLE, {"a": "x", "out": "h"})], {"zeroed": ("q",)}),
    "output 'q' is not a value": ([(DOUBLE, {"a": "x", "out": "h"})], {"outputs": ("q",)}),
    "steps: a tuple or list of them is needed": (DOUBLE, {}),
    "outputs: a tuple or list": ([(DOUBLE, {"a": "x", "out": "h"})], {"outputs": "h"}),
    "zeroed [] is not a value": ([(DOUBLE, {"a": "x", "out": "h"})], {"zeroed": [[]]}),
    "inputs go as a mapping": ([], {"inputs": [XS]}),
    "view 'v' is (value, type, shape)": ([], {"views": {"v": "x"}}),
    "says view_of='q'": ([(DOUBLE, {"a": "v", "out": "h"})], {"views": {"v": ("q", vp.f32, (5,))}}),
    "'x' needs a type of the language and a shape, got 'f32'": ([], {"inputs": {"x": ("f32", 5)}}),
    "got f32 and (-5,)": ([], {"inputs": {"x": (vp.f32, (-5,))}}),
    "'v' needs a type": ([], {"views": {"v": ("x", vp.f32, "ab")}}),
    "holds no numbers of the language": ([], {"inputs": {"x": np.array(["a"])}}),
    "a sequence has one step at least": ([], {}),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_what_does_not_fit_is_refused_and_nothing_is_kept(problem: str) -> None:
    device = open_device("cpu")
    steps, named = REFUSED[problem]
    in_use = device.telemetry.bytes_allocated - device.arenas.kept_bytes
    with pytest.raises(BindingError) as error:
        device.chain(steps, **{"inputs": {"x": XS}, **named})
    assert problem in str(error.value)
    assert device.telemetry.bytes_allocated - device.arenas.kept_bytes == in_use
