"""Programs as operators of PyTorch: eager code, autograd, `torch.compile`, `torch.export`, and PyTorch's own check of operators."""

from __future__ import annotations

import subprocess
import sys

import pytest
from children import child_environment
from device_kinds import need_package

import vyre_py as vp

try:
    import torch
except ImportError:
    need_package("torch", "torch")

from torch._subclasses.fake_tensor import FakeTensorMode

from vyre_py.interop.torch import op

SCALED_SUM = """
program scaled_sum(n) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read
  buffer z: f32[n] write
  let i = global_id.x
  z[i] = a * x[i] + y[i]
}
"""
ADD_IN_PLACE = """
program add_in_place(n) {
  param by: f32x2
  buffer y: bf16[n] read_write
  let i = global_id.x
  y[i] = cast(cast(y[i], f32) + by.x + by.y, bf16)
}
"""
SPREAD = """
program spread(n, m) over(n) {
  buffer places: i64[n] read
  buffer pairs: f32x2[n] read
  buffer sums: f64[m] write
  buffer seen: bool[n] write
  let i = global_id.x
  if i < n { sums[places[i]] = cast(pairs[i].x + pairs[i].y, f64) }
  seen[i] = places[i] < cast(m, i64)
}
"""
ADD_WIDE = """
program add_wide(n) {
  param a: u64
  param b: u64x2
  buffer x: u64[n] read_write
  x[global_id.x] = x[global_id.x] + a + b.x + b.y
}
"""
ADD_SCALED = """
program add_scaled(n) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  y[global_id.x] = a * x[global_id.x] + y[global_id.x]
}
"""
CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def named(text, name):
    """The Program of a text, as an operator of another name: an operator is registered for good."""
    return op(vp.Program.from_text(text), name)


def test_results_are_made_and_gradients_go_through() -> None:
    scaled = named(SCALED_SUM, "scaled_sum")
    x, y = torch.randn(1000, requires_grad=True), torch.randn(1000, requires_grad=True)
    torch.testing.assert_close(scaled(x, y, 2.0), 2 * x + y, rtol=0, atol=0)
    assert torch.ops.vyre.scaled_sum(x, y, 0.0).shape == (1000,)

    def remember(ctx, inputs, output):
        ctx.a = inputs[2]

    scaled.register_autograd(lambda ctx, grad: (ctx.a * grad, grad, None), setup_context=remember)
    assert dict(torch.library.opcheck(scaled, (x, y, 2.0))) == dict.fromkeys(CHECKS, "SUCCESS")
    scaled(x, y, 3.0).sum().backward()
    assert torch.equal(x.grad, torch.full((1000,), 3.0))
    assert torch.equal(y.grad, torch.ones(1000))


def test_views_are_read_and_what_is_changed_is_contiguous() -> None:
    scaled = named(SCALED_SUM, "scaled_sum_of_views")
    x, y = torch.arange(12.0).view(4, 3).t()[1], torch.arange(8.0)[::2]
    assert torch.equal(scaled(x, y, 1.0), x + y)
    add = named(ADD_IN_PLACE, "add_in_place_views")
    y = torch.zeros(4, 2, dtype=torch.bfloat16)
    add(y[1:3].view(-1), [1.0, 2.0])
    assert y.tolist() == [[0, 0], [3, 3], [3, 3], [0, 0]]
    with pytest.raises(vp.BindingError, match=r"'y': it is not C-contiguous: x.contiguous\(\) is a copy that is") as raised:
        add(y[:, 0], [1.0, 2.0])
    assert "np." not in str(raised.value)


def test_changes_in_place() -> None:
    add = named(ADD_IN_PLACE, "add_in_place")
    y = torch.zeros(5, dtype=torch.bfloat16)
    version = y._version
    assert add(y, [1.0, 2.0]) is None
    assert y.tolist() == [3.0] * 5
    assert y._version > version
    assert dict(torch.library.opcheck(add, (y, [1.0, 2.0]))) == dict.fromkeys(CHECKS, "SUCCESS")


def test_sizes_that_no_argument_tells_and_several_results() -> None:
    spread = named(SPREAD, "spread")
    places, pairs = torch.tensor([4, 0, 9]), torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    sums, seen = spread(places, pairs, 6)
    assert sums.tolist() == [7, 0, 0, 0, 3, 0]
    assert sums.dtype == torch.float64
    assert seen.tolist() == [True, True, False]
    assert dict(torch.library.opcheck(spread, (places, pairs, 6))) == dict.fromkeys(CHECKS, "SUCCESS")


def test_compiled_and_exported() -> None:
    scaled = named(SCALED_SUM, "scaled_sum_compiled")

    def model(x, y):
        return scaled(x.sin(), y, 3.0).cos()

    x, y = torch.randn(100), torch.randn(100)
    wanted = (3 * x.sin() + y).cos()
    torch.testing.assert_close(torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)(x, y), wanted)

    class Module(torch.nn.Module):
        def forward(self, x, y):
            return model(x, y)

    n = torch.export.Dim("n", min=2)
    exported = torch.export.export(Module(), (x, y), dynamic_shapes=({0: n}, {0: n}))
    assert any(node.target is torch.ops.vyre.scaled_sum_compiled.default for node in exported.graph.nodes)
    torch.testing.assert_close(exported.module()(x[:7], y[:7]), wanted[:7])


def test_what_is_refused() -> None:
    scaled = named(SCALED_SUM, "scaled_sum_refusing")
    assert named(SCALED_SUM, "scaled_sum_refusing") is scaled
    with pytest.raises(ValueError, match="another Program already"):
        named(ADD_IN_PLACE, "scaled_sum_refusing")
    with pytest.raises(ValueError, match="cannot be a name"):
        named(SCALED_SUM, "scaled sum")
    with pytest.raises(vp.BindingError, match="'x' has 2 axes; 1 are needed"):
        scaled(torch.ones(2, 2), torch.ones(2), 1.0)
    with pytest.raises(vp.BindingError, match="f32"):
        scaled(torch.ones(2), torch.ones(2, dtype=torch.float64), 1.0)
    with pytest.raises(vp.BindingError):
        scaled(torch.ones(2), torch.ones(3), 1.0)
    with pytest.raises(vp.Unsupported, match="tensors on meta"):
        named(ADD_IN_PLACE, "add_refusing")._init_fn(torch.ones(2, dtype=torch.bfloat16, device="meta"), [1.0, 2.0])


@pytest.mark.parametrize("places", [("cpu", "meta"), ("meta", "cpu")], ids="-".join)
def test_tensors_on_different_devices_are_refused_though_nothing_would_run(places: tuple[str, str]) -> None:
    scaled = named(SCALED_SUM, "scaled_sum_of_devices")
    with pytest.raises(vp.BindingError, match=f"'y' is on {places[1]}, where others are on {places[0]}"):
        scaled(*(torch.ones(4, device=place) for place in places), 1.0)
    assert scaled(*[torch.ones(4, device="meta")] * 2, 1.0).device.type == "meta"


@pytest.mark.parametrize("word", ["class", "None", "def", "lambda", "from"])
def test_words_of_python_are_no_names(word: str) -> None:
    with pytest.raises(ValueError, match=f"'{word}' cannot be a name .* no word of Python's own"):
        named(SCALED_SUM, word)
    with pytest.raises(ValueError, match=f"'{word}' cannot be a name"):
        named(SCALED_SUM.replace("y", word), f"scaled_sum_{word}")


def test_names_that_mean_something_elsewhere() -> None:
    with pytest.raises(ValueError, match="give the operator another name"):
        named(SCALED_SUM, "name")
    scaled = named(SCALED_SUM.replace("y", "self"), "scaled_sum_of_self")
    assert dict(torch.library.opcheck(scaled, (torch.ones(4), torch.ones(4), 2.0))) == dict.fromkeys(CHECKS, "SUCCESS")
    assert scaled(torch.ones(4), torch.ones(4), 2.0).tolist() == [3.0] * 4


def test_params_of_64_bits_without_a_sign() -> None:
    add, x = named(ADD_WIDE, "add_wide"), torch.ones(3, dtype=torch.uint64)
    add(x, 2**63, [2**62, 2**63 - 1])
    assert x.tolist() == [2**62] * 3
    torch.compile(add, backend="aot_eager")(x, 2**63 - 2**62, [2**62, 0])
    assert x.tolist() == [2**63 + 2**62] * 3
    assert dict(torch.library.opcheck(add, (x, 5, [1, 2]))) == dict.fromkeys(CHECKS, "SUCCESS")
    for wrong in (-1, 2**64, 0.5):
        with pytest.raises((vp.BindingError, OverflowError)):
            add(x, wrong, [0, 0])


def test_what_a_program_says_and_asserts_is_heard_of(capfd: pytest.CaptureFixture[str]) -> None:
    text = SCALED_SUM.replace("  z[i]", '  assert x[i] > 0.0, "not above zero"\n  print "at {}", i\n  z[i]')
    scaled = named(text, "scaled_sum_asserting")
    assert scaled(torch.ones(2), torch.ones(2), 1.0).tolist() == [2, 2]
    assert "at 1" in "".join(capfd.readouterr())
    for _ in range(2):
        with pytest.raises(vp.KernelAssertion, match="not above zero"):
            scaled(torch.zeros(2), torch.ones(2), 1.0)
    assert scaled(torch.ones(2), torch.ones(2), 2.0).tolist() == [3, 3]


def odd_tensors() -> dict[str, torch.Tensor]:
    """Tensors whose memory cannot be taken as it is, or not at all, beside a few that can."""
    with FakeTensorMode():
        fake = torch.ones(4)
    freed, ones = torch.ones(4), torch.ones(4)
    freed.untyped_storage().resize_(0)
    return {
        "fake": fake, "freed": freed, "meta": ones.to("meta"), "sparse": ones.to_sparse(), "opaque": ones.to_mkldnn(), "strided": torch.ones(8)[::2],
        "dtype": ones.double(), "rank": ones[None], "short": ones[1:], "empty": ones[:0], "wants grad": torch.ones(4, requires_grad=True),
        "parameter": torch.nn.Parameter(ones), "frozen parameter": torch.nn.Parameter(ones, requires_grad=False), "negated later": torch._neg_view(ones),
        "conjugated later": torch.ones(4, dtype=torch.complex64).conj(), "zero without memory": torch._efficientzerotensor(4), "expanded": ones[:1].expand(4),
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("first", [False, True], ids=["known types", "new types"])
def test_odd_tensors_are_taken_or_refused_by_a_call_as_by_bind(first: bool) -> None:
    """In the same words, and with the same results; nothing is launched over what is refused."""
    pipeline = vp.device("cpu").compile_native(vp.Program.from_text(SCALED_SUM))
    entry, taken = pipeline.callable(), []
    if not first:
        entry(torch.ones(4), torch.ones(4), torch.zeros(4), 1.0)
    for name, odd in odd_tensors().items():
        found = []
        for call in (lambda *given: pipeline.bind(given)(), entry):
            z = torch.zeros(4)
            try:
                call(odd, torch.ones(4), z, 1.0)
            except vp.BindingError as error:
                assert z.tolist() == [0] * 4
                found.append(str(error))
            else:
                found.append(str(z.tolist()))
        assert found[0] == found[1], name
        taken += [name] if found[0] == str([2.0] * 4) else []
    assert taken == ["frozen parameter"]


def test_a_gradient_without_a_rule_is_an_error_of_pytorch() -> None:
    scaled = named(SCALED_SUM, "scaled_sum_without_a_rule")
    with pytest.raises(RuntimeError, match="scaled_sum_without_a_rule"):
        scaled(torch.ones(4, requires_grad=True), torch.ones(4), 1.0).sum().backward()


@pytest.mark.parametrize("wanting", [(True, False), (False, True), (True, True)], ids=["read", "changed", "both"])
@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "computed"])
def test_gradients_that_a_change_in_place_would_lose_are_refused_by_name(wanting: tuple[bool, bool], leaves: bool) -> None:
    add = named(ADD_SCALED, "add_scaled_with_gradients")
    given = [torch.ones(4, requires_grad=wants) for wants in wanting]
    if not leaves:
        given = [tensor * 1 for tensor in given]
    values = [tensor.tolist() for tensor in given]
    names = " and ".join(repr(name) for name, wants in zip("xy", wanting, strict=True) if wants)
    with pytest.raises(vp.Unsupported, match=rf"add_scaled_with_gradients does not support gradients of {names}, since it changes 'y' in place \(.*no_grad"):
        add(*given, 2.0)
    assert [tensor.tolist() for tensor in given] == values
    with torch.no_grad():
        add(*given, 2.0)
    assert given[1].tolist() == [3.0] * 4
    version = given[1]._version
    add(*(tensor.detach() for tensor in given), 2.0)
    assert given[1]._version == version + 1


def test_changes_in_place_with_a_rule_of_ones_own() -> None:
    add = named(ADD_SCALED, "add_scaled_with_a_rule")

    class Added(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            add(x, y, 3.0)
            ctx.mark_dirty(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            return 3 * grad, grad

    x, y = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    Added.apply(x, y * 1).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([3.0] * 4, [1.0] * 4)
    assert dict(torch.library.opcheck(add, (torch.ones(4), torch.ones(4), 2.0))) == dict.fromkeys(CHECKS, "SUCCESS")


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "vyre"])
def test_changes_in_place_in_compiled_code(backend: str) -> None:
    add = named(ADD_SCALED, "add_scaled_compiled")

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            add(x, y, 2.0)
        return x * y

    x, y = torch.ones(4, requires_grad=True), torch.ones(4)
    torch.compile(function, backend=backend, fullgraph=True)(x, y).sum().backward()
    assert x.grad.tolist() == [3.0] * 4
    with pytest.raises(Exception, match="does not support gradients of 'x'"):
        torch.compile(lambda x, y: (add(x, y, 2.0), x * y)[1], backend=backend, fullgraph=True)(x, y)
    assert y.tolist() == [3.0] * 4


def test_what_is_no_tensor_and_no_program_is_refused_by_name() -> None:
    scaled, add = named(SCALED_SUM, "scaled_sum_of_none"), named(ADD_SCALED, "add_scaled_of_none")
    for operator in (scaled, add):
        with pytest.raises(vp.BindingError, match="'x' is None"):
            operator(None, torch.ones(4), 1.0)
        with pytest.raises(vp.BindingError, match="'y' is None"):
            operator(torch.ones(4), None, 1.0)
        with pytest.raises(vp.BindingError, match=r"(?s)'x' is None.*'y' is None"):
            operator(None, None, 1.0)
    with pytest.raises(vp.ValidationError, match="a str is not a Program"):
        op("x")


def test_nothing_is_imported_but_with_its_door() -> None:
    code = (
        "import sys, vyre_py, vyre_py.interop, vyre_py.ops; vyre_py.device('cpu')\n"
        "print(*{'torch', 'jax', 'dask', 'distributed', 'tvm_ffi', 'numba', 'cupy', 'mpi4py'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=child_environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
