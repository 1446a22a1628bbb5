"""Programs as functions of TVM FFI: every type, sizes and numbers that do not fit, and PyTorch's tensors."""

from __future__ import annotations

import os

import numpy as np
import pytest
from fake_cuda import FakeDriver
from fake_device import installed

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.ir.language.types import SCALARS
from vyre_py.ir.text.parser import parse

try:
    import tvm_ffi
except ImportError:  # it is among the packages of the extra `dev`
    if "tvm_ffi" in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
        raise
    pytest.skip("apache-tvm-ffi is not installed", allow_module_level=True)

from vyre_py.interop import tvm_ffi as interop
from vyre_py.interop.tvm_ffi import function

AXPY = """program axpy(n) workgroup(64) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  y[global_id.x] = a * x[global_id.x] + y[global_id.x]
}"""
GIVEN = """program given(n, m, k) workgroup(1) over(k) {
  param u: u8
  param v: i64
  param w: bool
  param d: f64
  buffer p: f32x2[n, m] read
  buffer r: f64[n] write
  let i = global_id.x
  if w { r[i] = cast(u, f64) + cast(v, f64) + d + cast(p[i, 1].y, f64) }
}"""


def tensors(*arrays):
    return [tvm_ffi.from_dlpack(array) for array in arrays]


def test_a_function_of_any_sizes() -> None:
    axpy = function(parse(AXPY))
    for size in (0, 1, 64, 1000, 70_000):
        x, y = np.arange(size, dtype=np.float32), np.ones(size, np.float32)
        assert axpy(*tensors(x, y), 2.0) is None
        axpy(*tensors(x, y), 3)
        np.testing.assert_array_equal(y, 5 * x + 1)


def test_numbers_vectors_and_sizes_by_place() -> None:
    given = function(parse(GIVEN))
    p, r = np.arange(12, dtype=np.float32).reshape(3, 2, 2), np.zeros(3)
    given(*tensors(p, r), 200, -(1 << 40), True, 0.5, 2)
    wanted = 200 - (1 << 40) + 0.5 + np.float64([3, 7])
    np.testing.assert_array_equal(r, [*wanted, 0])
    given(*tensors(p, r), 0, 0, False, 1, 3)
    np.testing.assert_array_equal(r, [*wanted, 0])


@pytest.mark.parametrize("name", sorted(SCALARS))
def test_every_type_of_elements(name) -> None:
    copy = function(parse(f"program copied(n) {{\n buffer x: {name}[n] read\n buffer y: {name}[n] write\n y[global_id.x] = x[global_id.x]\n}}"))
    dtype = SCALARS[name].dtype
    x, y = np.arange(100).astype(np.uint8).astype(dtype), np.zeros(100, dtype)
    if dtype.kind in "biu" or dtype.type.__module__ == "numpy":
        given = tensors(x, y)
    else:  # NumPy has no DLPack for ml_dtypes' types
        device = vp.device("cpu")
        given = tensors(*[device.wrap(array) for array in (x, y)])
    copy(*given)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize(("change", "error", "words"), [
    (lambda v: v[:-1], TypeError, "given: 7 arguments are needed: p, r, u, v, w, d, k"),
    (lambda v: [3, *v[1:]], TypeError, "given: 'p' must be a tensor"),
    (lambda v: [*tensors(np.zeros((3, 2, 2))), *v[1:]], TypeError, "given: 'p' needs elements of f32x2, got f64"),
    (lambda v: [v[0], *tensors(np.zeros(3, np.uint8)), *v[2:]], TypeError, "given: 'r' needs elements of f64, got u8"),
    (lambda v: [v[0], *tensors(np.zeros(3, np.complex64)), *v[2:]], TypeError, "given: 'r' needs elements of f64$"),
    (lambda v: [*tensors(np.zeros((3, 2), np.float32)), *v[1:]], ValueError, "given: 'p' needs 3 axes"),
    (lambda v: [*tensors(np.zeros((3, 2, 3), np.float32)), *v[1:]], ValueError, "given: the last axis of 'p' needs 2 components"),
    (lambda v: [*tensors(np.zeros((3, 4, 2), np.float32)[:, ::2]), *v[1:]], ValueError, "given: 'p' must be contiguous"),
    (lambda v: [v[0], *tensors(np.zeros(4)), *v[2:]], ValueError, "given: dim 'n' is another size along axis 0 of 'r' than along axis 0 of 'p'"),
    (lambda v: [*v[:2], 256, *v[3:]], ValueError, r"given: param 'u' \(u8\) is a number from 0 to 255"),
    (lambda v: [*v[:2], -1, *v[3:]], ValueError, r"given: param 'u' \(u8\) is a number from 0 to 255"),
    (lambda v: [*v[:2], 1.0, *v[3:]], TypeError, r"given: param 'u' \(u8\) is a whole number"),
    (lambda v: [*v[:2], True, *v[3:]], TypeError, r"given: param 'u' \(u8\) is a whole number"),
    (lambda v: [*v[:4], 1, *v[5:]], TypeError, r"given: param 'w' \(bool\) is a bool"),
    (lambda v: [*v[:5], "x", *v[6:]], TypeError, r"given: param 'd' \(f64\) is a number"),
    (lambda v: [*v[:6], -1], TypeError, "given: dim 'k' is a whole number from 0"),
    (lambda v: [*v[:6], 2.0], TypeError, "given: dim 'k' is a whole number from 0"),
])  # fmt: skip
def test_what_does_not_fit(change, error, words) -> None:
    r = np.zeros(3)
    values = [*tensors(np.ones((3, 2, 2), np.float32), r), 1, 2, True, 0.5, 3]
    given = function(parse(GIVEN))
    with pytest.raises(error, match=words):
        given(*change(values))
    assert not r.any()
    given(*values)
    assert r.tolist() == [4.5] * 3


def test_overlap_and_axes_of_one_element() -> None:
    axpy, y = function(parse(AXPY)), np.ones(8, np.float32)
    for x in (y, y[4:]):
        with pytest.raises(ValueError, match="axpy: 'y' is written and overlaps 'x'; give separate memory, or copy one of them"):
            axpy(*tensors(x, y[: len(x)] if x is y else y[2:6]), 1.0)
    axpy(*tensors(y[:0], y[:0]), 1.0)
    one = np.ones(8, np.float32)[::8]  # its stride says nothing
    axpy(*tensors(one, y[:1]), 1.0)
    assert y[0] == 2


def test_which_of_several_does_not_fit_or_overlaps() -> None:
    several = function(parse("""program several(n, m) workgroup(1) over(1) {
  buffer x: f32x2[n] read
  buffer y: i16[2, n, m] write
  buffer z: f32[m + 1] read_write
  buffer w: u8[n] read_write
  w[0] = cast(x[0].x, u8)
}"""))
    memory = np.zeros(64, np.uint8)

    def given(x=3, y=(2, 3, 4), z=5, apart=32):  # z has 20 bytes of the memory, w begins so many bytes behind where z does
        return tensors(np.zeros((x, 2), np.float32), np.zeros(y, np.int16), memory[: 4 * z].view(np.float32), memory[apart:][:3])

    several(*given())
    for arrays, words in (
        (given(x=2), "dim 'n' is another size along axis 1 of 'y' than along axis 0 of 'x'"), (given(y=(1, 3, 4)), "axis 0 of 'y' needs 2 elements"),
        (given(z=4), r"axis 0 of 'z' \(m \+ 1\) has not the size that the others ask for"), (given(apart=19), "'z' is written and overlaps 'w'; give separate"),
        ([*given()[:3], *tensors(np.zeros(4, np.uint8))], "dim 'n' is another size along axis 0 of 'w' than along axis 0 of 'x'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"several: {words}"):
            several(*arrays)
    many = np.zeros(48, np.uint8)
    for shared, words in (
        ((many[:24].view(np.float32).reshape(3, 2), many.view(np.int16).reshape(2, 3, 4)), "'y' is written and overlaps 'x'"),
        ((np.zeros((3, 2), np.float32), many.view(np.int16).reshape(2, 3, 4)), "'y' is written and overlaps 'w'"),
    ):
        with pytest.raises(ValueError, match=words):
            several(*tensors(*shared, np.zeros(5, np.float32), many[45:]))


def test_params_that_are_no_numbers_of_tvm_are_refused() -> None:
    for name in ("f16", "bf16", "f32x2"):
        with pytest.raises(vp.Unsupported, match=rf"'a' \({name}\)"):
            function(parse(f"program p(n) {{\n param a: {name}\n buffer y: {name}[n] write\n y[global_id.x] = a\n}}"))
    with pytest.raises(vp.Unsupported, match="asserts"):
        function(parse(AXPY.replace("  y[", "  assert n > 0\n  y[", 1)))


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    axpy, x, y = function(parse(AXPY)), torch.arange(1000.0), torch.ones(1000)
    axpy(x[::1], y, 2.0)
    assert torch.equal(y, 2 * x + 1)
    with pytest.raises(ValueError, match="'x' must be contiguous"):
        axpy(x[::2], y[:500], 2.0)


def test_a_function_for_a_gpu_launches_on_the_stream_of_tvm_ffi(monkeypatch) -> None:
    """Over a stand-in for the driver."""
    driver = FakeDriver(total=1 << 24)
    blocks: list[bytes] = []
    driver.kernel = blocks.append
    installed(monkeypatch, driver)
    device = CudaDevice(0)
    monkeypatch.setattr(interop, "gpu_device", lambda number: device)
    axpy, x, y = function(parse(AXPY), device="cuda"), device.allocate(1000, vp.f32), device.allocate(1000, vp.f32)
    device.compile_native(parse(AXPY)).bind(x=x, y=y, a=2.0)()
    ((*numbers, _),), (block,) = driver.launches, blocks
    left, right = tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y)
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), 77):
        axpy(left, right, 2.0)
    assert driver.launches[-1] == (*numbers, 77) and blocks[-1] == block
    axpy(left, right, 2.0)
    assert driver.launches[-1] == (*numbers, 1)  # the legacy stream
    before = len(driver.launches)
    with pytest.raises(ValueError, match="'x' must be on cuda:0"):
        axpy(*tensors(np.ones(4, np.float32)), right, 2.0)
    with pytest.raises(ValueError, match="dim 'n' is another size along axis 0 of 'y'"):
        axpy(left, tvm_ffi.from_dlpack(y[:10]), 2.0)
    assert len(driver.launches) == before
    device.close()
    with pytest.raises(RuntimeError, match="closed"):
        axpy(left, right, 2.0)


@pytest.mark.parametrize("name", ["wgpu", "cuda:x", "cpu:1", ""])
def test_functions_are_for_two_kinds_of_devices(name) -> None:
    with pytest.raises(vp.Unsupported, match="device"):
        function(parse(AXPY), device=name)
