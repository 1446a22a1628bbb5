"""`torch.compile(..., backend="vyre")` beside eager PyTorch: what kernels compute, which ops are left to PyTorch, and what is refused.

With VYRE_TORCH_DEVICE=cuda all of it is about tensors on a GPU, but for what says that it is about the CPU.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from device_kinds import need_package

import vyre_py as vp

try:
    import torch
except ImportError:
    need_package("torch", "torch")

from torch.nn import functional

from vyre_py.interop.torch import ahead, backend, fallbacks, programs, runtime
from vyre_py.interop.torch.backend import compile_graph
from vyre_py.interop.torch.gpu_kernels import raise_problems
from vyre_py.interop.torch.scheduling import backend_name, register
from vyre_py.interop.torch.splitting import parts_of

nan, inf = float("nan"), float("inf")
DEVICE = os.environ.get("VYRE_TORCH_DEVICE", "cpu")
# Older ones take two conversions for one, of whatever between them.
ROUNDS_BETWEEN = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
# Inductor's advice, which is an error here.
pytestmark = pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
on_the_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="it is about calls on the CPU")


@pytest.fixture(autouse=True)
def fresh():
    """Nothing compiled before, and nothing kept behind."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    with torch._inductor.config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False), torch.device(DEVICE):
        yield
    torch._dynamo.reset()


def copied(arguments):
    return [a.detach().to(DEVICE, copy=True).requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in arguments]


def compare(function, *arguments, kernels=1, tolerance=1e-5, **settings):
    """Compiled and eager results, changes of arguments and gradients are close, and at least so many kernels ran."""
    ours, theirs = copied(arguments), copied(arguments)
    launched = []
    with runtime.watching(launched.append):
        found = torch.compile(function, backend="vyre", fullgraph=True, **settings)(*ours)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TF32 acceleration on top of oneDNN")  # which is not asked for
        with torch.backends.mkldnn.flags(enabled=False):  # whose gelu of infinity is NaN on CPUs with AVX-512, unlike PyTorch's own
            wanted = function(*theirs)
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)
    leaves = [(a, b) for a, b in zip(ours, theirs, strict=True) if isinstance(a, torch.Tensor) and a.requires_grad]
    if leaves:
        with runtime.watching(launched.append):
            found.sum().backward()
        wanted.sum().backward()
        for mine, other in leaves:
            torch.testing.assert_close(mine.grad, other.grad, rtol=10 * tolerance, atol=10 * tolerance)
    assert len(launched) >= kernels, "PyTorch's own ops ran in place of kernels"
    return launched


def rows(*shape, **kwargs):
    return torch.randn(*shape, **kwargs)


ODD = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.5, -2.5, 0.5, 3e38, 1e-40], device=DEVICE)
WHOLE = torch.tensor([-128, -7, -1, 0, 1, 7, 100, 127], device=DEVICE)
# Functions of one tensor over ordinary and odd numbers: all in one kernel, so that they take the time of one.
FLOATS = [
    torch.sin, torch.cos, torch.tan, torch.tanh, torch.exp, torch.expm1, torch.log1p, torch.erf, torch.erfc, torch.sigmoid, torch.floor, torch.ceil,
    torch.trunc, torch.round, torch.sign, torch.abs, torch.neg, torch.isnan, torch.isinf, torch.isfinite, torch.signbit, torch.atan, torch.asinh,
    torch.relu, functional.gelu, functional.silu, functional.softplus, torch.square, torch.sgn, torch.frac, torch.special.expit,
]  # fmt: skip
POSITIVE = [torch.sqrt, torch.rsqrt, torch.log, torch.log2, torch.log10, torch.lgamma, torch.reciprocal, torch.acosh, torch.special.erfcx]
PAIRS = [
    torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, torch.fmax, torch.fmin, torch.fmod, torch.remainder, torch.atan2, torch.hypot,
    torch.copysign, torch.nextafter, torch.eq, torch.lt, torch.ge, torch.pow, lambda a, b: torch.div(a, b, rounding_mode="trunc"), torch.logaddexp, torch.xlogy,
]  # fmt: skip
WHOLES = [
    torch.add, torch.mul, torch.sub, torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor, torch.maximum, torch.minimum, torch.lt, torch.ne, torch.div,
    lambda a, b: torch.div(a, b, rounding_mode="floor"), lambda a, b: torch.div(a, b, rounding_mode="trunc"), torch.remainder, torch.fmod,
    lambda a, b: a << (b & 3), lambda a, b: a >> (b & 3), lambda a, b: (a // b, a % b),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_functions_of_one_float(dtype):
    compare(lambda x: [f(x) for f in FLOATS], torch.cat([rows(40, dtype=torch.float64), ODD.double()]).to(dtype), tolerance=1e-6)
    compare(lambda x: [f(x) for f in POSITIVE], torch.rand(50, dtype=dtype) + 1, tolerance=1e-6)


def test_functions_of_two_floats():
    x, y = torch.cartesian_prod(torch.cat([ODD[:8], rows(4)]), torch.cat([ODD[:8], rows(4)])).unbind(1)
    compare(lambda a, b: [f(a, b) for f in PAIRS], x.clone(), y.clone(), tolerance=1e-6)
    compare(lambda a, b: torch.div(a, b, rounding_mode="floor"), rows(50), rows(50))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64], ids=str)
def test_whole_numbers(dtype):
    x, y = torch.cartesian_prod(WHOLE.to(dtype), WHOLE[WHOLE != 0].to(dtype)).unbind(1)
    compare(lambda a, b: [f(a, b) for f in WHOLES], x.clone(), y.clone())
    compare(lambda a, b: (~a, -a, a.sign(), (a > 0) & (b > 0), (a > 0) ^ (b > 1), a.bool() | b.bool()), x.clone(), y.clone())


def test_conversions():
    dtypes = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]
    compare(lambda x: [x.to(dtype) for dtype in dtypes], torch.tensor([-3.7, -1.0, 0.0, 0.3, 1.0, 2.5, 100.9]))
    compare(lambda x: [x.to(dtype) for dtype in dtypes], torch.tensor([-3, 0, 1, 200, 300, -40000]))
    compare(lambda x: (x.view(torch.int32) + 1, x.view(torch.int32).view(torch.float32) * 2), rows(10))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_rounded_where_pytorch_rounds(dtype):
    x, y = rows(100, 70).to(dtype), rows(70).to(dtype)
    compare(lambda x, y: x * y + 1, x, y, tolerance=2e-2)
    compare(lambda x: x.to(torch.float32).mul(1.001).to(dtype).to(torch.float32), x, tolerance=0 if ROUNDS_BETWEEN else 1e-2)
    compare(lambda x: x.softmax(-1), x, tolerance=1e-2)
    compare(lambda x: (x.sum(-1), x.sum(0), x.amax(), x.mean()), x, tolerance=2e-2)
    compare(lambda x: functional.layer_norm(x, (70,)), x.requires_grad_(), tolerance=2e-2)


REDUCTIONS = {
    "sum": torch.sum, "mean": torch.mean, "prod": lambda x, *a: (1 + x / 1000).prod(*a), "amax": torch.amax, "amin": torch.amin, "var": torch.var,
    "any": lambda x, *a: (x > 3).any(*a), "all": lambda x, *a: (x > -9).all(*a), "argmax": torch.argmax, "argmin": torch.argmin,
}  # fmt: skip


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_reductions(axis):
    x = rows(3, 130, 37)
    compare(lambda x: [f(x, *([] if axis is None else [axis])) for f in REDUCTIONS.values()], x, tolerance=1e-4)


def test_reductions_of_what_is_not_a_number_and_of_equal_ones():
    x = rows(40, 50)
    x[3, 7], x[5, 40], x[6] = nan, inf, 2.0
    compare(lambda x: (x.amax(1), x.amin(1), x.argmax(1), x.argmin(1), x.sum(1), x.argmax(), x.amax(0)), x)
    compare(lambda x: (x.sum(1), x.amax(1), x.argmax(1), x.prod(1)), torch.arange(6000).view(2, 3000) % 7)
    compare(lambda x: x.permute(2, 0, 1).argmax(), rows(4, 5, 60))


def test_large_and_split_reductions():
    compare(lambda x: (x.sum(), x.amax(), (x * x).mean()), rows(300_000), tolerance=1e-3)
    compare(lambda x: x.sum(0), rows(5000, 3), tolerance=1e-3)
    launched = compare(lambda x: (x.var(), x.mean(), x.prod(1), (x > 3).any(), x.argmax()), 1 + rows(3, 100_003) / 1e4, tolerance=1e-3, kernels=2)
    assert any("grid(" in kernel.text and "grid(1)" not in kernel.text for kernel in launched)  # many workgroups


@on_the_cpu
def test_parts_of_a_reduction_do_not_depend_on_threads():
    x, threads = rows(300_007), torch.get_num_threads()
    function = torch.compile(lambda x: (x.sum(), x.softmax(0)), backend="vyre", dynamic=True)
    found = []
    for count in (1, 2):
        torch.set_num_threads(count)
        found.append(function(x))
    torch.set_num_threads(threads)
    torch.testing.assert_close(*found, rtol=0, atol=0)
    torch.testing.assert_close(found[0][0], x.double().sum().float(), rtol=1e-5, atol=1e-3)
    shorter = function(x[:9])
    torch.testing.assert_close(shorter, (x[:9].sum(), x[:9].softmax(0)))


def test_parts_are_whole_turns_of_all_lanes_where_that_can_be():
    assert [parts_of(*sizes) for sizes in ((1 << 22, 1), (10_000_000, 1), (100, 1), (1 << 20, 64), (1 << 20, 63))] == [256, 625, 1, 1, 1024]
    for elements, results in ((10_000_019, 1), (999_983, 3), (32_768, 1), (70_000, 2), (3, 60_000)):
        parts = parts_of(elements, results)
        assert 1 <= parts <= 2048
        assert parts == 1 or -(-elements // parts) % 32 == 0 or elements % parts == 0


MODELS = {
    "softmax": lambda x: (x.softmax(-1), x.softmax(0), x.log_softmax(1)),
    "norms": lambda x: (functional.layer_norm(x, x.shape[-1:]), functional.normalize(x), functional.rms_norm(x, x.shape[-1:])),
    "views": lambda x: (x.t() + 1, x[:, ::2] * 2, x.flip(0) + x, x.view(-1)[3:] + 1, x.unfold(0, 3, 2) * 2, x.expand(2, *x.shape) + 1),
    "cat": lambda x: (torch.cat([x.sin(), x.cos(), x[:, :3]], 1), torch.stack([x, x + 1]), torch.cat([x, x * 2])),
    "pad": lambda x: (functional.pad(x, (1, 2, 3, 4)) + 1, torch.roll(x, 3, 0) + 1, x.tril() + 1, x.triu(2) + 1),
    "pooling": lambda x: (functional.max_pool2d(x[None], 3), functional.avg_pool2d(x[None], 2), functional.interpolate(x[None, None], scale_factor=2)),
    "logit": lambda x: (torch.logit(x.sigmoid(), eps=0.2), x * 3.4e38 * 10, x + 1e-50),
    "where": lambda x: (torch.where(x > 0, x, -1), x.clamp(-1, 1), x.masked_fill(x > 1, 0), x.nan_to_num()),
    "broadcast": lambda x: (x + x[0] + x[:, :1], torch.arange(x.shape[1], device=x.device) * x, torch.full_like(x, 3) * x),
    "scans": lambda x: (x.cumsum(0), x.cumsum(1), x.cummax(1), x.logcumsumexp(0)),
    "losses": lambda x: (functional.mse_loss(x, x + 1), functional.huber_loss(x, x * 3), functional.binary_cross_entropy_with_logits(x, (x > 0).float())),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_functions(name):
    compare(MODELS[name], rows(33, 50), tolerance=1e-4)


def test_indexing_and_what_it_refuses():
    x, i, j = rows(20, 30), torch.tensor([0, -1, 7, 3]), torch.tensor([1, 2, -30, 29])
    compare(lambda x, i, j: (x[i], x[i, j], x[:, j] + 1, x.gather(1, j.remainder(30)[None].expand(20, 4))), x, i, j)
    compare(lambda x, i: functional.embedding(i.remainder(20), x), x.requires_grad_(), i)
    compare(lambda x, i, y: x.index_put((i,), y, accumulate=True), x.detach(), torch.tensor([1, 1, 2]), rows(3, 30))
    compare(lambda x, i, y: x.scatter_add(0, i, y), x.detach(), torch.randint(0, 20, (5, 30)), rows(5, 30))
    compiled = torch.compile(lambda x, i: x[i] * 2, backend="vyre")
    for wrong in (torch.tensor([20]), torch.tensor([3, -21])):
        with pytest.raises(IndexError, match="20 elements"):
            raise_problems(compiled(x.detach(), wrong))
    raise_problems()  # there is none any more
    torch.testing.assert_close(compiled(x.detach(), i), x.detach()[i] * 2)


@on_the_cpu
def test_additions_by_index_in_columns_of_their_own_need_no_atomics():
    def texts(function, *arguments, **settings):
        return " ".join(kernel.text for kernel in compare(function, *arguments, **settings))

    x, y, i = rows(20, 40), rows(50, 40), torch.randint(-20, 20, (50,))
    assert "atomic" not in texts(lambda x, i, y: x.index_add(0, i % 20, y.sin()), x, i, y)
    assert "atomic" not in texts(lambda x, i, y: x.view(20, 4, 10).index_put((i,), y.view(50, 4, 10), accumulate=True), x, i, y)
    assert "atomic" not in texts(lambda w, i: functional.embedding(i % 20, w, padding_idx=3).sin(), x.clone().requires_grad_(), i, kernels=2)
    assert "atomic" not in texts(lambda x, i, y: x.scatter_add(0, i[:, None].expand(50, 40) % 20, y), x, i, y)
    assert "atomic" in texts(lambda x, i, y: x[:, :7].index_put((i,), y[:, :7], accumulate=True), x, i, y)
    assert "atomic" in texts(lambda x, i, y: x.t().index_put((i,), y, accumulate=True), rows(20, 20), i, y[:, :20])
    assert "atomic" in texts(lambda x, i, y: x.index_add(1, i % 40, y.t()[:20]), x, i, y)

    def added(x, i, y):
        return x.index_put((i,), y, accumulate=True)

    compiled, launched = torch.compile(added, backend="vyre"), []
    with runtime.watching(launched.append):
        for count in (50, 33, 21):  # from the second on the number of rows is not known to kernels
            torch.testing.assert_close(compiled(x, i[:count], y[:count]), added(x, i[:count], y[:count]))
    assert any("ynumel" in kernel.text for kernel in launched)
    assert not any("atomic" in kernel.text for kernel in launched)
    with pytest.raises(IndexError, match="20 elements"):
        compiled(x, i - 20, y)


def test_changes_in_place():
    def change(x, y):
        x.add_(1)
        y[2:5].mul_(x[2:5])
        x.t().copy_(x.t() * 2)
        return x.sum() + y.sum()

    compare(change, rows(8, 8), rows(8, 8), tolerance=1e-4)


def test_gradients():
    def network(x, w, b, g):
        return functional.layer_norm(functional.gelu(x @ w + b), (40,), g).softmax(-1).pow(2).sum(-1)

    compare(network, *(rows(*shape, requires_grad=True) for shape in ((20, 30), (30, 40), (40,), (40,))), tolerance=1e-4, kernels=2)

    def convolution(x, w):
        return functional.batch_norm(functional.conv2d(x, w), None, None, training=True).relu()

    compare(convolution, rows(2, 3, 9, 9), rows(4, 3, 3, 3, requires_grad=True), tolerance=1e-3)


def test_dynamic_shapes():
    def function(x, y, n):
        return x.softmax(-1) + y[:, None] * n, x.sum(0), x.t() * 2, x[1:, ::2] + 1

    compiled, launched = torch.compile(function, backend="vyre", dynamic=True, fullgraph=True), []
    for count, n in ((7, 2), (50, -3), (33, 11)):
        x, y = rows(count, count + 40), rows(count)
        with runtime.watching(launched.append):
            found = compiled(x, y, n)
        torch.testing.assert_close(found, function(x, y, n), rtol=1e-5, atol=1e-5)
    assert len(set(launched)) < len(launched)


def test_dynamic_shapes_of_which_a_part_is_empty():
    def function(x, n):
        return torch.cat([x[n:, ::2] + 1, x[:, ::2] * 2]), x[n:].t() * 3

    compiled = torch.compile(function, backend="vyre", dynamic=True)
    for n in (3, 7, 9):
        x = rows(9, 21)
        torch.testing.assert_close(compiled(x, n), function(x, n), rtol=1e-5, atol=1e-5)


def test_what_we_lack_is_left_to_pytorch_and_named_once(caplog):
    with caplog.at_level(logging.WARNING, "vyre_py.interop.torch"):
        fallbacks._named.clear()
        compare(lambda x: torch.special.bessel_j0(x * 2) + torch.special.bessel_j0(x) + 1, rows(50))
        half, places = rows(9, 5).bfloat16(), torch.randint(0, 9, (4, 5))
        compare(lambda x, i: (x.scatter_add(0, i, x[:4]) * 2, x.index_put((i[:, 0],), x[:4], accumulate=True) * 2), half, places, tolerance=2e-2)
    assert sum("bessel_j0" in record.message for record in caplog.records) == 1
    assert sum("atomic addition of torch.bfloat16" in record.message for record in caplog.records) == 1


@pytest.mark.skipif(shutil.which("g++") is None, reason="the oracle is Inductor's C++")
def test_random_numbers_are_those_of_inductor():
    def draw(x):
        return torch.rand_like(x), torch.randn_like(x) + 1, torch.randint_like(x, -5, 100), functional.dropout(x, 0.3), torch.rand(7, dtype=torch.float64)

    def drawn(name):
        torch._dynamo.reset()
        torch.manual_seed(5)
        return [torch.compile(draw, backend=name)(torch.ones(50, 40)) for _ in range(2)]

    launched = []
    with runtime.watching(launched.append):
        found = drawn("vyre")
    assert launched
    torch.testing.assert_close(found, drawn("inductor"), rtol=1e-5, atol=1e-6)
    assert not torch.equal(found[0][0], found[1][0])
    assert abs(found[0][1].mean().item() - 1) < 0.1


def test_the_programs_of_a_model_are_shown():
    compiled = torch.compile(lambda x: (x.sin().sum(0), (x + 1).softmax(-1)), backend="vyre")
    found = programs(compiled, rows(40, 50))
    assert 1 <= len(found) <= 3
    assert any("sin(" in str(program) for program in found)
    assert programs(compiled, rows(40, 50)) == found


def test_programs_of_what_is_not_compiled_or_not_called_are_refused():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.sin() + x

    x, model = rows(4, 4), Model()
    for eager in (torch.sin, model, lambda x: x + 1):
        with pytest.raises(ValueError, match=r"not compiled: programs\(torch.compile\(function, backend=\"vyre\"\)"):
            programs(eager, x)
    compiled = torch.compile(model, backend="vyre")
    assert len(programs(compiled, x)) == 1
    with pytest.raises(TypeError) as caught:
        programs(compiled)
    assert "was given no arguments" in caught.value.__notes__[0]
    for product in (torch.nn.Linear(4, 4, bias=False), lambda x: x @ x):  # of PyTorch's own kernels only
        assert programs(torch.compile(product, backend="vyre"), x) == []
    model.compile(backend="vyre")
    assert len(programs(model, x)) == 1


@on_the_cpu
def test_programs_are_compiled_by_other_threads_before_they_are_called(monkeypatch):
    monkeypatch.setattr(ahead, "core_count", lambda: 2)
    monkeypatch.setattr(ahead, "_begun", {})
    device, begun, compiled = runtime.host_device(), [], ahead.compiled
    monkeypatch.setattr(ahead, "compiled", lambda *given: begun.append(threading.current_thread().name) or compiled(*given))
    launched = compare(lambda x: (x.sin().sum(0), x.cos().softmax(1)), rows(20, 37), kernels=2)
    assert len(begun) == len({kernel.text for kernel in launched}) and all("vyre-torch" in name for name in begun)
    assert not ahead._begun  # every text was asked for as it was begun
    ahead.begin_compiling("program wrong", device)
    with pytest.raises(vp.VyreError):
        ahead.program_of("program wrong", device)
    text = "program one() workgroup(1) over(1) {\n buffer y: f32[1] write\n y[0] = 1.0f32\n}"
    ahead.begin_compiling(text, device)
    ahead._forked()  # as in a child, where no thread goes on
    assert ahead.program_of(text, device).name == "one"


def test_others_keep_their_backend():
    register()
    before = torch._inductor.config.cpu_backend
    assert before == "cpp"
    compare(lambda x: x + 1, rows(5))
    assert torch._inductor.config.cpu_backend == before
    scheduling = torch._inductor.codegen.common.get_scheduling_for_device("cpu")
    assert type(scheduling(None)).__name__ == "CppScheduling"
    with torch._inductor.config.patch(cpu_backend=backend_name()):
        assert type(scheduling(None)).__name__ == "VyreScheduling"


@on_the_cpu
def test_other_devices_are_refused():
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(vp.Unsupported, match="tensors on meta"):
        compile_graph(graph, [torch.ones(2, device="meta")])


ADD = """program kernel(n_b, xnumel) workgroup(256) over(xnumel) {
  param k: i64
  buffer a: f32[40] read
  buffer b: f32[n_b] read_write
  if global_id.x < xnumel { b[global_id.x] = a[global_id.x] + cast(k, f32) }
}
"""


@on_the_cpu
def test_kernels_refuse_tensors_that_do_not_reach_far_enough():
    add, a, b = runtime.kernel(ADD, 2), torch.arange(40.0), torch.zeros(50)
    for _ in range(3):  # the first call plans, the others are native code where tensors tell their memory to it
        add(a, b, 50, 30, 7)
        assert torch.equal(b[:30], a[:30] + 7)
        assert not b[30:].any()
        for wrong in ((a[1:], b), (a, b[::2]), (a[::2], b), (a, b[:0]), (a.half(), b)):
            with pytest.raises(vp.BindingError, match=r"spans [0-9]* bytes; [12][06]0 are needed"):
                add(*wrong, 50, 30, 7)
        with pytest.raises(vp.BindingError, match="'k'"):
            add(a, b, 50, 30, 0.5)
        with pytest.raises(vp.Unsupported, match="tensors on meta"):
            add(a, b.to("meta"), 50, 30, 7)
        with pytest.raises(ValueError, match="is shorter"):
            add(a, b, 50)
    wide = torch.zeros(5, 10, 2)[:, :, 0]
    add(a[None].expand(3, 40), torch.nn.Parameter(b), 50, 40, -2)
    add(torch.zeros(40, 3)[:, 1], wide, 50, 40, 3)
    assert torch.equal(b[:40], a - 2)
    assert (torch.as_strided(wide, (99,), (1,)) == 3).sum() == 40
    add(a[:0], b[:0], 50, 0, 7)  # nothing runs


@on_the_cpu
def test_threads_may_share_a_kernel():
    add, a = runtime.kernel(ADD, 2), torch.arange(40.0)

    def run(k):
        b, count = torch.zeros(50), 20 + k
        for number in range(200):  # more numbers than plans are kept for
            add(a, b, 50, count, k + number // 2)
        return torch.equal(b[:count], a[:count] + k + 99) and not b[count:].any()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(8)))


@pytest.mark.skipif(not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this PyTorch has no table of functions for DLPack")
@on_the_cpu
def test_calls_with_known_sizes_are_native_code(monkeypatch):
    add, a, b = runtime.kernel(ADD, 2), torch.arange(40.0), torch.zeros(50)
    slow, called = runtime.TensorKernel._slow, []
    monkeypatch.setattr(runtime.TensorKernel, "_slow", lambda *arguments: (called.append(arguments), slow(*arguments))[1])
    for arguments, known in (((50, 30, 7), False), ((50, 30, 7), True), ((50, 20, 7), False), ((50, 30, 7), False), ((50, 30, 7), True)):
        called.clear()
        add(a, b, *arguments)
        assert len(called) == (not known)
    with runtime.watching(called.append):
        add(a, b, 50, 30, 7)
    assert called[-1] is add


def test_caches_of_compiled_graphs_hold_our_version(monkeypatch):
    x = rows(9)

    def run():
        """Hits and misses of the cache."""
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.testing.assert_close(torch.compile(lambda x: x.sin() * 2, backend="vyre")(x), x.sin() * 2)
        counters = torch._dynamo.utils.counters["inductor"]
        return counters["fxgraph_cache_hit"], counters["fxgraph_cache_miss"]

    with torch._inductor.utils.fresh_cache(), torch._inductor.config.patch(fx_graph_cache=True):
        assert run() == (0, 1)
        assert run() == (1, 0)
        monkeypatch.setattr(backend, "backend_name", lambda: "vyre of another version")
        assert run() == (0, 1)


@on_the_cpu
def test_no_compiler_of_cpp_is_needed():
    def function(x, w):
        return functional.layer_norm(x @ w, (24,)).softmax(-1)

    arguments = rows(7, 20), rows(20, 24, requires_grad=True)
    with torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",)}):
        with pytest.raises(Exception, match="No working C\\+\\+ compiler"):  # of Inductor's own code
            torch.compile(function, backend="inductor")(*copied(arguments))
        torch._dynamo.reset()
        compare(function, *arguments, tolerance=1e-4, kernels=2)
