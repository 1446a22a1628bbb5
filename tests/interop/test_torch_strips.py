"""The kernels that `torch.compile(..., backend="vyre")` writes for GPUs, run on the CPU: strips of rows, squares, and what lies past their ends.

Their Programs are those of a GPU, but for random numbers; `VYRE_TORCH_DEVICE=cuda pytest tests/interop/test_torch_backend.py` runs them there.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device
from test_gpu_doors import package

import vyre_py as vp
from vyre_py.ir.language.dims import evaluate_extent


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    library = package("torch")
    from vyre_py.interop.torch import scheduling

    library._dynamo.reset()
    library.manual_seed(4)
    monkeypatch.setitem(scheduling.KERNELS, "cpu", scheduling.KERNELS["cuda"])
    with library._inductor.config.patch(fx_graph_cache=False), library._functorch.config.patch(enable_autograd_cache=False):
        yield library
    library._dynamo.reset()


def compare(torch: Any, function: Any, *arguments: Any, tolerance: float = 2e-5, **settings: Any) -> list[vp.Program]:
    """Compiled and eager results are close; the Programs that ran."""
    from vyre_py.interop.torch import programs

    found, wanted = [], function(*arguments)
    ran = programs(lambda: found.append(torch.compile(function, backend="vyre", fullgraph=True, **settings)(*arguments)))
    torch.testing.assert_close(found[0], wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    return ran


def test_strips_have_every_element_once() -> None:
    package("torch")
    from vyre_py.interop.torch.gpu.strips import columns_of, strips_of

    for elements in [*range(1, 200, 3), 768, 1000, 1024, 2048, 4097, 8191, 8192]:
        for side_by_side in (False, True):
            strips = strips_of(elements, side_by_side=side_by_side)
            lane, copy = np.meshgrid(np.arange(strips.lanes), np.arange(strips.count), indexing="ij")
            places = ((copy // strips.vector) * strips.lanes + lane) * strips.vector + copy % strips.vector
            assert (np.sort(places.ravel()) == np.arange(places.size)).all()
            assert strips.kept and strips.lanes % 32 == 0 and strips.lanes <= 1024 and elements <= strips.lanes * strips.count < 2 * elements + 32 * 8
            assert not side_by_side or (places.ravel() == np.arange(places.size)).all()
    assert not strips_of(8196).kept and not strips_of(None).kept
    for elements in range(1, 400):
        strips = columns_of(elements, 100)
        assert strips.lanes in (1, 2, 4, 8, 16) and (elements <= strips.lanes * strips.count < elements + strips.lanes or not strips.kept)
    assert columns_of(400, 1 << 20).lanes == 1


@pytest.mark.parametrize("columns", [5, 257, 1000])
def test_rows_are_kept_in_strips(torch: Any, columns: int) -> None:
    def function(x: Any, w: Any) -> Any:
        norm = torch.nn.functional.layer_norm(x, x.shape[-1:], w)
        return x.softmax(-1), norm, x.argmax(-1), (x > 2).any(-1), x.var(-1), x.double().sum(-1), x.cumsum(-1)

    x = torch.randn(6, columns)
    x[2, columns // 2], x[3, 1] = float("nan"), float("inf")
    ran = compare(torch, function, x, torch.randn(columns), tolerance=1e-4)
    texts = [str(program) for program in ran]
    assert any("f32[" in text and ", 4]" in text for text in texts) == (columns % 4 == 0)  # neighbours are one access
    assert any("barrier" in text for text in texts) == (columns > 256)


def test_what_a_row_has_is_read_before_it_is_changed(torch: Any) -> None:
    from vyre_py.interop.torch import programs

    def function(x: Any, s: Any) -> Any:
        y = x - s[:, None]
        s.mul_(2).add_(x.amax(1))
        return y.exp().sum(1)

    x, s = torch.randn(5, 300), torch.randn(5)
    mine, other = s.clone(), s.clone()
    found = []
    (program,) = programs(lambda: found.append(torch.compile(function, backend="vyre", fullgraph=True)(x, mine)))
    torch.testing.assert_close(found[0], function(x, other), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mine, other)
    changed = next(memory.name for memory in program.buffers if memory.access.writes and memory.access.reads)
    assert re.search(rf"barrier\s+if lane == 0 \{{\s+{changed}\[", str(program))


def test_half_precision_and_gradients(torch: Any) -> None:
    x, w = torch.randn(9, 64, 40).bfloat16().requires_grad_(), torch.randn(40).bfloat16().requires_grad_()

    def function(x: Any, w: Any) -> Any:
        y = torch.nn.functional.rms_norm(x, (40,), w)
        return torch.autograd.grad((y.float().sin()).sum(), (x, w))

    def double(x: Any, w: Any) -> Any:
        return [part.float() for part in function(x.double(), w.double())]

    compiled = torch.compile(lambda x, w: torch.nn.functional.rms_norm(x, (40,), w), backend="vyre")
    found = torch.autograd.grad((compiled(x, w).float().sin()).sum(), (x, w))
    torch.testing.assert_close([part.float() for part in found], double(x, w), rtol=5e-2, atol=1.5e-1)


def test_columns_and_sizes_that_are_not_known(torch: Any) -> None:
    compare(torch, lambda x: (torch.var_mean(x, 0), x.amax(0), x.cumsum(0), x.flatten()[:9001].softmax(0)), 3 + torch.randn(1003, 20), tolerance=1e-4)
    compare(torch, lambda x: (x.softmax(0), x.argmin(0), x.var(0)), torch.randn(100, 37), tolerance=1e-4)
    function = torch.compile(lambda x: (x.softmax(-1), torch.var_mean(x, 0), x.t() + x.t().contiguous(), x.sum()), backend="vyre", dynamic=True)
    for shape in [(30, 40), (500, 3), (3, 5000), (40, 33)]:
        x = torch.randn(*shape)
        torch.testing.assert_close(function(x), (x.softmax(-1), torch.var_mean(x, 0), x.t() + x.t(), x.sum()), rtol=1e-4, atol=1e-4)


def test_indices_past_an_axis_count_only_within_rows(torch: Any) -> None:
    """A strip goes past the end of its row, where an index may be anything."""
    x, i = torch.randn(50), torch.randint(-50, 50, (7, 33))
    compiled = torch.compile(lambda x, i: x[i].sum(1), backend="vyre")
    torch.testing.assert_close(compiled(x, i[:, :31].contiguous()), x[i[:, :31]].sum(1))
    torch.testing.assert_close(compiled(x, i), x[i].sum(1))
    i[6, 32] = 50
    with pytest.raises(IndexError, match="50 elements"):
        compiled(x, i)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_squares_are_turned_in_workgroup_memory(torch: Any, dtype: str) -> None:
    x, y = (torch.randn(3, 70, 45).to(getattr(torch, dtype)) for _ in range(2))
    ran = compare(torch, lambda x, y: (x.permute(0, 2, 1) * y.reshape(3, 45, 70), y.flatten(0, 1).t().contiguous() + 1), x, y, tolerance=1e-2)
    assert any("turned0" in str(program) and "barrier" in str(program) for program in ran)
    compare(torch, lambda x, i: x.t()[:, i % 40] + x[:, :1].t(), torch.randn(40, 45), torch.arange(40))


def test_no_barrier_is_missing(torch: Any) -> None:
    """The interpreter watches for races, and has the bits of the CPU."""
    reference, cpu = open_device("reference"), open_device("cpu")

    x, names = torch.randn(33, 264), set()
    ran = compare(torch, lambda x: (x.softmax(-1), x.cumsum(-1), torch.var_mean(x, 0)), x, tolerance=1e-4)
    for program in ran + compare(torch, lambda x, y: x.t() + y, x, torch.randn(264, 33)):
        random = np.random.default_rng(2)
        arrays = {memory.name: random.random([evaluate_extent(extent, {}) for extent in memory.shape], np.float32) for memory in program.buffers}
        wanted = cpu.compile_native(program).dispatch(arrays)
        found = reference.compile_native(program, vp.CompileOptions(opt=0)).dispatch(arrays, config=vp.DispatchConfig(races=True))
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value)
        names |= {word for word in ("barrier", "subgroup_shuffle_up", "turned0") if word in str(program)}
    assert names == {"barrier", "subgroup_shuffle_up", "turned0"}


def test_long_scans_are_left_to_pytorch_and_named_once(torch: Any, caplog: Any) -> None:
    """An invocation would go through all of them; sums and the like before and after stay ours."""
    from vyre_py.interop.torch import fallbacks

    fallbacks._named.clear()
    x = torch.randn(2, 8200)
    for _ in range(2):
        ran = compare(torch, lambda x: ((x * 2).cumsum(-1) + 1, x[:, :8192].cumsum(-1), x.logcumsumexp(1), x.cummax(1)), x, tolerance=1e-4)
        torch._dynamo.reset()
    assert len(ran) >= 2
    assert caplog.text.count("scan of more than 8192 elements on a GPU") == 1
    grows = torch.compile(lambda x: x.cumsum(-1) * 2, backend="vyre", dynamic=True)
    for columns in (100, 9000):
        torch.testing.assert_close(grows(x.repeat(1, 2)[:, :columns]), x.repeat(1, 2)[:, :columns].cumsum(-1) * 2, rtol=1e-4, atol=1e-4)
