"""Programs in what JAX compiles: against jnp and the interpreter, under jit, vmap, grad, scan and shard_map."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from axpy import TEXT_64 as AXPY
from children import child_environment
from device_kinds import open_device

import vyre_py as vp
from vyre_py.ir.language.types import TYPES
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.errors import Unsupported

try:
    import jax
except ImportError:  # it is among the packages of the extra `dev`
    if "jax" in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
        raise
    pytest.skip("jax is not installed", allow_module_level=True)

from jax import numpy as jnp
from jax.sharding import AxisType, PartitionSpec
from jax.test_util import check_grads

from vyre_py.interop.jax import vyre_call
from vyre_py.interop.jax.xla_target import _targets

jax.config.update("jax_num_cpu_devices", 2)  # before JAX looks at its devices

MANY = """program many(n, m, k) workgroup(8, 4) over(m, n - 1) {
  param u: u8
  param v: i32x2
  buffer p: f32[n, m] read
  buffer q: i16x2[n - 1, max(m, k)] read_write
  buffer r: u8[ceil_div(min(n, k) * 3, 2) + 1] write
  let i = global_id.y
  let j = global_id.x
  q[i, j] = q[i, j] + vec2(cast(k + cast(p[i, j], u32), i16), cast(v.y, i16))
  r[j] = u + cast(n, u8)
}"""
COPIED = """program copied(n) {
  buffer x: f32[n] read
  buffer z: f32[n] write
  z[global_id.x] = x[global_id.x]
}"""
# The number of a workgroup along z is more than zero, so that nothing may lie side by side there.
DEEP = """program deep(n, m) workgroup(4) over(n, 1, m) {
  buffer x: f32[n] read
  buffer y: f32[m, n] write
  y[global_id.z, global_id.x] = x[global_id.x] + cast(global_id.z, f32)
}"""


def axpy():
    return vyre_call(parse(AXPY))


def arrays(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(count).astype(np.float32), rng.standard_normal(count).astype(np.float32)


def test_one_function_for_all_shapes() -> None:
    function = vyre_call(parse(AXPY.replace("axpy", "shapes")))
    compiled = jax.jit(lambda x, y, a: function(jnp.cos(x), y, a) + function(x, y, 0.5))
    known = len(_targets)
    for count in (0, 1, 63, 64, 1000, 70_000):
        x, y = arrays(count)
        np.testing.assert_allclose(compiled(x, y, 2.0), 2 * jnp.cos(x) + y + 0.5 * x + y, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(function(y=y, x=x, a=np.float32(2)), 2 * x + y)
    assert len(_targets) == known + 2  # a param that is traced, and one that is not


def test_an_argument_that_is_read_and_written_stays_as_it_was() -> None:
    function, (x, _) = axpy(), arrays(100)
    given = jnp.asarray(x)
    np.testing.assert_array_equal(jax.jit(lambda v: function(v, v, 2.0))(given), 2 * x + x)
    np.testing.assert_array_equal(function(given, given, 2.0), 2 * x + x)
    np.testing.assert_array_equal(given, x)


def test_arrays_of_jax_are_never_written() -> None:
    """Several may be one piece of memory."""
    device = vp.device("cpu")
    pipeline, copied = device.compile_native(parse(AXPY)), device.compile_native(parse(COPIED))
    entry, given, x = pipeline.callable(), jnp.arange(8.0), jnp.ones(8)
    same = given.reshape(8)
    launch = pipeline.bind(x=x, y=np.zeros(8, np.float32), a=1.0)
    for write, arguments in (
        (pipeline.bind, {"x": x, "y": same, "a": 1.0}), (entry, {"x": x, "y": same, "a": 1.0}), (launch.set, {"y": same}),
        (copied.callable(), {"x": x, "z": same}),
    ):  # fmt: skip
        with pytest.raises(vp.BindingError, match=r"is written, and its memory may only be read: .*; arrays of JAX never change"):
            write(**arguments)
    with pytest.raises(vp.BindingError, match="arrays of JAX never change"):
        entry(x, same, 1.0)
    assert device.wrap(given).readonly
    np.testing.assert_array_equal(given, np.arange(8))
    np.testing.assert_array_equal(pipeline.dispatch(x=x, y=same, a=1.0)["y"], np.arange(8) + 1)  # into a copy
    made, y = copied.callable()(given), np.ones(8, np.float32)  # what is left out is made
    assert isinstance(made, jax.Array)
    np.testing.assert_array_equal(made, given)
    entry(given, y, 2.0)
    np.testing.assert_array_equal(y, 2 * given + 1)


@pytest.mark.parametrize(
    "name", ["bool", "i8", "i16", "i32", "u8", "u16", "u32", "f16", "bf16", "f32", "f8e4m3", "f8e5m2", "f32x3", "u8x4", "f32x2", "i64", "f64"]
)
def test_every_type(name) -> None:
    """A param that is an operand, one that is not, and buffers."""
    type_ = TYPES[name]
    function = vyre_call(parse(f"""program moved(n) {{
      param p: {name}
      param s: {name}
      buffer x: {name}[n] read
      buffer y: {name}[n] write
      let i = global_id.x
      if i == 0 {{ y[i] = p }} else {{ if i == 1 {{ y[i] = s }} else {{ y[i] = x[i] }} }}
    }}"""))
    lanes = (type_.lanes,) if type_.is_vector else ()
    x = np.random.default_rng(3).integers(0, 2, (9, *lanes)).astype(type_.dtype)
    wanted = x.copy()
    wanted[0], wanted[1] = x[2], x[3]
    static = x[3].tolist() if lanes else x[3].item()
    with jax.enable_x64(name in ("i64", "f64")):
        result = jax.jit(lambda p, v: function(v, p, static))(x[2], x)
    assert result.dtype == type_.dtype
    np.testing.assert_array_equal(np.asarray(result), wanted)


def test_complex_numbers_are_pairs() -> None:
    function = vyre_call(parse("""program halves(n) {
      buffer x: f32x2[n] read
      buffer y: f32x2[n] read_write
      buffer z: f32x2[n] write
      let i = global_id.x
      y[i] = y[i] + x[i]
      if i < 2 { z[i] = x[i] }
    }"""))
    x, y = np.complex64([1 + 2j, 3, 4j]), np.complex64([1, 1j, 1])
    added, some = jax.jit(function)(x, y)
    np.testing.assert_array_equal(added, x + y)
    np.testing.assert_array_equal(some, [[1, 2], [3, 0], [0, 0]])  # what is not written is zero
    added, _ = function(np.ones((3, 2), np.float32), y)
    np.testing.assert_array_equal(added, y + (1 + 1j))


def test_sizes_by_name_and_what_is_not_written() -> None:
    function = vyre_call(parse("program some(n, k) workgroup(1) over(k) {\n buffer y: f32[n] write\n y[global_id.x] = 1.0\n}"))
    np.testing.assert_array_equal(function(n=5, k=3), [1, 1, 1, 0, 0])
    np.testing.assert_array_equal(jax.jit(lambda: function(n=2, k=0))(), [0, 0])


def _fails(call, values):
    try:
        call(values)
    except vp.BindingError as error:
        return set(error.problems)
    return None


def test_random_calls_are_dispatches() -> None:
    """What binding says of the same arguments is what a trace says, and where it says nothing results are those of the interpreter."""
    program = parse(MANY)
    function, reference, pipeline = vyre_call(program), open_device("reference").compile_native(program), open_device("cpu").compile_native(program)
    rng, fine = np.random.default_rng(5), 0
    for _ in range(60):
        n, m, k = (int(rng.choice([0, 1, 2, 3, 7])) for _ in range(3))
        off = [int(rng.integers(8) == 0) for _ in range(2)]
        values = {
            "p": rng.integers(0, 9, (n + off[0], m)).astype(rng.choice([np.float32] * 8 + [np.float16])),
            "q": rng.integers(0, 9, (max(n - 1, 0) + off[1], max(m, k), int(rng.choice([2] * 8 + [3])))).astype(np.int16),
            "u": int(rng.choice([3, 3, 3, 3, 300])), "v": (1, -2), "k": k,
        }  # fmt: skip
        for name in ("p", "k", "u"):
            if rng.integers(20) == 0:
                del values[name]
        if rng.integers(20) == 0:
            values["other"] = 1
        wanted = _fails(pipeline.dispatch, values)
        assert _fails(lambda v: function(**v), values) == wanted
        if wanted is None:
            fine += 1
            results = reference.dispatch(values)
            for name, found in zip("qr", function(**values), strict=True):
                np.testing.assert_array_equal(found, results[name])
    assert 10 < fine < 60


def test_what_does_not_fit_is_said_when_it_is_traced() -> None:
    function, (x, y) = axpy(), arrays(6)
    compiled = jax.jit(function)
    with pytest.raises(vp.BindingError, match="dim 'n' is 6 from axis 0 of 'x', but axis 0 of 'y' has 5"):
        compiled(x, y[:5], 1.0)
    with pytest.raises(vp.BindingError, match=r"'y' needs elements of f32, got dtype int32; x.astype\(np.float32\) converts"):
        compiled(x, jnp.ones(6, np.int32), 1.0)
    with pytest.raises(vp.BindingError, match=r"'x' needs elements of f32, got dtype bfloat16; x.astype\(np.float32\) converts"):
        open_device("cpu").compile_native(parse(AXPY)).dispatch(x=jnp.ones(6, jnp.bfloat16), y=y, a=1.0)
    with pytest.raises(vp.BindingError, match="'x' needs elements of f32, got dtype float64"):
        function(np.ones(6), y, 1.0)
    with pytest.raises(vp.BindingError, match=r"param 'a' \(f32\) is a number, or an array of float32 of shape \[\], got float32\[6\]"):
        compiled(x, y, x)
    with pytest.raises(vp.BindingError, match=r"param 'a' \(f32\) is a number, or an array of float32 of shape \[\], got int32\[\]"):
        compiled(x, y, np.int32(3))
    with pytest.raises(vp.BindingError) as raised:
        function(x, y, 1.0, 2.0, y=y, q=3)
    assert len(raised.value.problems) == 3
    with pytest.raises(vp.BindingError, match="which holds no numbers of the language"):
        function(jax.random.key(0), y, 1.0)
    for other in (None, jax.random.key(0)):  # beside all else, in the name of the Program
        with pytest.raises(vp.BindingError, match="the arguments do not fit 'axpy'") as raised:
            compiled(other, jnp.ones(6, np.int32), x, q=3)
        assert len(raised.value.problems) == 4
    some = vyre_call(parse(MANY))
    with pytest.raises(vp.BindingError, match="'r' is only written: a result, not an argument"):
        some(x, x, r=y)
    with pytest.raises(vp.BindingError, match="'k' is a whole number that is known when JAX traces the call"):
        jax.jit(lambda k: some(np.ones((2, 2), np.float32), np.ones((1, 2, 2), np.int16), 1, (1, 2), k=k))(2)
    with pytest.raises(vp.BindingError, match="which JAX has only under jax_enable_x64"):
        vyre_call(parse(AXPY.replace("f32", "f64")))(x, y, 1.0)
    n = jax.export.symbolic_shape("n")[0]
    with pytest.raises(Unsupported, match="sizes that are not known when JAX traces the call"):
        jax.export.export(compiled)(*[jax.ShapeDtypeStruct((n,), np.float32)] * 2, 1.0)


@pytest.mark.parametrize("lines", ["assert n > 0", 'print "{}", n', "let s = grid_scan(add, n)"])
def test_what_native_calls_do_not_take_is_refused_by_name(lines) -> None:
    with pytest.raises(Unsupported, match=r"callable\(\).c_address of a Program"):
        vyre_call(parse(AXPY.replace("let i", f"{lines}\n  let i")))


def test_a_program_without_results_is_refused() -> None:
    with pytest.raises(Unsupported, match="a Program that writes nothing, as 'idle'"):
        vyre_call(parse("program idle(n) over(n) {\n buffer x: f32[n] read\n let i = global_id.x\n}"))


def test_errors_of_a_running_call_are_errors_of_xla() -> None:
    """As code that was made by hand, or elsewhere, would call a target."""
    function, (x, y) = vyre_call(parse(AXPY.replace("axpy", "broken"))), arrays(6)
    function(x, y, 1.0)
    (name,) = [name for name in _targets if name.startswith("vyre.broken.")]

    def call(*operands, words, aliases):
        shape = jax.ShapeDtypeStruct(operands[1].shape, operands[1].dtype)
        jax.block_until_ready(jax.ffi.ffi_call(name, shape, input_output_aliases=aliases)(*operands, words=words))

    words = np.array([-1, 0], np.int64)
    call(x, y, words=words, aliases={1: 0})
    with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT: broken: an axis has not the size that the others ask for"):
        call(x, y[:5], words=words, aliases={1: 0})
    misfits = [
        (x, y, {"words": words, "aliases": {}}), (x, y[None], {"words": words, "aliases": {1: 0}}), (x, y, {"words": words[:1], "aliases": {1: 0}}),
        (x, y, {"words": words.astype(np.int32), "aliases": {1: 0}}), (x.astype(np.int32), y, {"words": words, "aliases": {1: 0}}),
        (x, y, {"words": np.int64(3), "aliases": {1: 0}}),
    ]  # fmt: skip
    for *operands, rest in misfits:
        with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL: broken: operands, results or attributes are not what the handler was made for"):
            call(*operands, **rest)


@pytest.mark.parametrize("of_y", [None, 0, 1])
@pytest.mark.parametrize("of_x", [None, 0, 1])
@pytest.mark.parametrize("of_a", [None, 0])
def test_vmap(of_a, of_x, of_y) -> None:
    function, rng = axpy(), np.random.default_rng(1)
    wide = {None: (5,), 0: (3, 5), 1: (5, 3)}
    x, y = (rng.standard_normal(wide[of]).astype(np.float32) for of in (of_x, of_y))
    a = np.float32([1, 2, 3]) if of_a == 0 else np.float32(2)
    if (of_a, of_x, of_y) == (None, None, None):
        return
    found = jax.jit(jax.vmap(function, (of_x, of_y, of_a)))(x, y, a)
    np.testing.assert_array_equal(found, jax.vmap(lambda x, y, a: a * x + y, (of_x, of_y, of_a))(x, y, a))


def test_a_name_may_be_self() -> None:
    function, (x, y) = vyre_call(parse(AXPY.replace("buffer x", "buffer self").replace("x[", "self["))), arrays(6)
    np.testing.assert_allclose(function(self=x, y=y, a=2.0), 2 * x + y, rtol=1e-6)


def test_a_traced_number_without_a_type_becomes_one_of_the_param_s() -> None:
    shifted = vyre_call(parse("program shifted(n) {\n param k: u8\n buffer y: u8[n] read_write\n y[global_id.x] = y[global_id.x] + k\n}"))
    ones = np.ones(3, np.uint8)
    assert jax.jit(lambda k: shifted(ones, k))(-1).tolist() == [0] * 3
    with pytest.raises(vp.BindingError, match=r"param 'k' \(u8\)"):
        shifted(ones, -1)


def test_vmap_makes_one_call_where_it_can() -> None:
    """And otherwise one after another; within each other, too."""
    function, (x, _) = axpy(), arrays(4)
    ys = np.random.default_rng(2).standard_normal((2, 3, 4)).astype(np.float32)
    once = jax.jit(jax.vmap(lambda y: function(x, y, 2.0)))
    assert "while" not in once.lower(ys[0]).as_text()
    twice = jax.jit(jax.vmap(jax.vmap(lambda y: function(x, y, 2.0))))
    np.testing.assert_array_equal(twice(ys), 2 * x + ys)
    deep = vyre_call(parse(DEEP))
    each = jax.jit(jax.vmap(lambda x: deep(x, m=2)))
    assert "while" in each.lower(ys[0]).as_text()
    np.testing.assert_array_equal(each(ys[0]), ys[0][:, None] + np.float32([0, 1])[:, None])


def test_vmap_of_a_program_of_tiles() -> None:
    with vp.TileBuilder("product") as b:
        m, n = b.dim("m"), b.dim("n")
        p, q, r = b.read("p", vp.f32, m, 8), b.read("q", vp.f32, 8, n), b.write("r", vp.f32, m, n)
        b.grid(vp.ceil_div(n, 8), vp.ceil_div(m, 8))
        i, j = b.workgroup_id(1) * 8, b.workgroup_id(0) * 8
        r[i, j] = vp.mma(p.tile(i, 0, shape=(8, 8)), q.tile(0, j, shape=(8, 8)), b.fill(0.0, (8, 8), vp.f32))
    rng = np.random.default_rng(4)
    a, c = rng.standard_normal((3, 5, 8)).astype(np.float32), rng.standard_normal((8, 11)).astype(np.float32)
    once = jax.jit(jax.vmap(vyre_call(b.program), (0, None)))
    assert "while" not in once.lower(a, c).as_text()
    np.testing.assert_allclose(once(a, c), a @ c, rtol=1e-5, atol=1e-5)


def test_derivatives() -> None:
    function, (x, y) = axpy(), arrays(7)
    with pytest.raises(Unsupported, match="derivatives of 'axpy', which has none"):
        jax.grad(lambda x: function(x, y, 2.0).sum())(x)
    function.defvjp(lambda x, y, a: (function(x, y, a), (x, a)), lambda saved, g: (saved[1] * g, g, jnp.vdot(saved[0], g)))
    check_grads(function, (x, y, np.float32(2)), order=2, modes=["rev"])
    np.testing.assert_array_equal(jax.grad(lambda x: function(x, y, 3.0).sum())(x), np.full(7, 3, np.float32))
    found = jax.jit(jax.vmap(jax.grad(lambda x, a: function(x, y, a).sum()), (None, 0)))(x, np.float32([1, 2]))
    np.testing.assert_array_equal(found, np.float32([[1] * 7, [2] * 7]))


def test_derivatives_of_several_results_with_sizes_by_name() -> None:
    function = vyre_call(parse("""program both(n, k) over(n) {
      buffer x: f32[n] read
      buffer y: f32[n] write
      buffer z: f32[n] write
      let i = global_id.x
      y[i] = x[i] * x[i]
      z[i] = x[i] * cast(k, f32)
    }"""))

    def forward(x, k):
        return function(x, k=k), (x, k)

    function.defvjp(forward, lambda saved, g: (2 * saved[0] * g[0] + saved[1] * g[1],))
    x, _ = arrays(5)
    check_grads(lambda x: function(x, k=3), (x,), order=1, modes=["rev"])


def test_scan_and_donation() -> None:
    function, (x, y) = axpy(), arrays(50)
    last, _ = jax.jit(lambda y: jax.lax.scan(lambda c, a: (function(x, c, a), None), y, jnp.arange(6.0)))(y)
    np.testing.assert_allclose(last, 15 * x + y, rtol=1e-5, atol=1e-5)
    given = jnp.asarray(y)
    np.testing.assert_array_equal(jax.jit(lambda y: function(x, y, 2.0), donate_argnums=0)(given), 2 * x + y)


def test_shard_map() -> None:
    mesh, function, (x, y) = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,), devices=jax.devices("cpu")[:2]), axpy(), arrays(20)
    over, same = PartitionSpec("i"), PartitionSpec()
    split = jax.jit(jax.shard_map(lambda x, y: function(x, y, 2.0), mesh=mesh, in_specs=(over, over), out_specs=over))
    result = split(x, y)
    assert len(result.sharding.device_set) == 2
    np.testing.assert_array_equal(result, 2 * x + y)
    mixed = jax.shard_map(lambda x, y: function(x, y, 2.0), mesh=mesh, in_specs=(over, same), out_specs=over)
    np.testing.assert_array_equal(mixed(x, y[:10]), 2 * x + np.tile(y[:10], 2))


def test_large_grids() -> None:
    x, y = arrays(1 << 20)
    np.testing.assert_array_equal(jax.jit(axpy())(x, y, 2.0), np.float32(2) * x + y)


def test_names_of_targets_are_the_same_everywhere() -> None:
    """What XLA compiled may be kept and loaded by another process."""
    code = (
        "import sys, vyre_py as vp\n"
        "assert 'jax' not in sys.modules\n"
        "from vyre_py.interop.jax import vyre_call\n"
        "from vyre_py.interop.jax.xla_target import _targets\n"
        f"vyre_call(vp.Program.from_text('''{AXPY}'''))(vp.np.ones(3, 'f'), vp.np.ones(3, 'f'), 1.0)\n"
        "print(*_targets)"
    ).replace("vp.np", "__import__('numpy')")
    done = subprocess.run([sys.executable, "-c", code], env=child_environment(), capture_output=True, text=True, check=True)
    axpy()(*arrays(3), 1.0)
    assert done.stdout.strip() in _targets
