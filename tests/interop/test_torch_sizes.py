"""Indices and sizes in kernels of `torch.compile(..., backend="vyre")`: sizes that are expressions, numbers beyond 32 bits, floats of sizes, and sizes that
are known only as the graph runs. The loops of GPUs run on the CPU here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from test_gpu_doors import package

from vyre_py.lowering.errors import Unsupported


@pytest.fixture(params=["cpu", "cuda"])
def torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    library = package("torch")
    from vyre_py.interop.torch import scheduling

    library._dynamo.reset()
    library.manual_seed(4)
    monkeypatch.setitem(scheduling.KERNELS, "cpu", scheduling.KERNELS[request.param])
    with (
        library._inductor.config.patch(fx_graph_cache=False), library._functorch.config.patch(enable_autograd_cache=False),
        library._dynamo.config.patch(capture_scalar_outputs=True),
    ):  # fmt: skip
        yield library
    library._dynamo.reset()


def compare(torch: Any, function: Any, *calls: Sequence[Any], **settings: Any) -> None:
    """Compiled and eager results of each call are close."""
    compiled = torch.compile(function, backend="vyre", fullgraph=True, **settings)
    for arguments in calls:
        torch.testing.assert_close(compiled(*arguments), function(*arguments))


def test_a_number_of_elements_may_be_an_expression(torch: Any) -> None:
    compare(torch, lambda x: x[..., :-1].softmax(-1), *[(torch.randn(2, 3, n),) for n in (40, 41, 42, 600)], dynamic=True)


def test_numbers_beyond_32_bits(torch: Any) -> None:
    def function(x: Any, y: Any, s: int) -> Any:
        n = y.shape[0]
        numbers = torch.arange(70_000) * 31_337 + x, torch.arange(50_000) ** 2 + x, torch.arange(2**31, 2**31 + 5) + x
        places = y[(torch.arange(70_000) * 31_337) % 7]
        return *numbers, places, y * n**20, y * (n * 2**33), x < s, torch.where(torch.arange(n) < s, y, 0.0), y + s

    zero = torch.zeros(1, dtype=torch.int64)
    compare(torch, function, (zero, torch.randn(7), 2**40), (zero, torch.randn(8), 3), dynamic=True)


def test_an_index_beyond_32_bits_is_refused(torch: Any) -> None:
    compiled = torch.compile(lambda x, i: x[i] + 1, backend="vyre")
    with pytest.raises(IndexError):
        compiled(torch.randn(7), torch.tensor([2, 2**32 + 2]))


def test_floats_of_sizes(torch: Any) -> None:
    def function(x: Any) -> Any:
        s = x.shape[0]
        whole = int(s * 1.5), math.ceil(s / 2), math.floor(s / 3), round(s / 3), 2**s, s // -3, s % -3, s * (s + 1) // 2, abs(s - 9), s << 3
        floats = s / 3, s**0.5, math.sqrt(s), math.log2(s), math.sin(s), round(s / 3, 2), float(s) * 2.5 + s, max(s / 3, 2), (s * 1.5) // 2, 1 / s, 1.5**s
        return [torch.full((s, 2), number) + x for number in (*whole, *floats)]

    compare(torch, function, (torch.zeros(7, 2),), (torch.zeros(6, 2),), dynamic=True)


WRITES = {
    "a column": lambda y: y[:, 0].copy_(y[:, -1]), "a row": lambda y: y[1].mul_(y[0]), "of any rank": lambda y: y[..., 1].mul_(3),
    "a diagonal": lambda y: y.diagonal().add_(y[1, 0]), "every other": lambda y: y[::2, 1].fill_(5), "turned": lambda y: y.t()[1].sub_(y[:, 0]),
    "by index": lambda y: y[:, 1].index_fill_(0, y[:2, 0].argsort(), 7), "an element": lambda y: y[2, 1].add_(y.shape[0]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:`torch._prims_common.check` is deprecated")  # of PyTorch, in its lowering of diagonals
@pytest.mark.parametrize("name", WRITES)
def test_writes_through_views_of_another_rank(torch: Any, name: str) -> None:
    def function(y: Any) -> Any:
        WRITES[name](y)
        return y.sum(0) * y.shape[0]

    x = torch.randn(9, 5)
    compiled = torch.compile(function, backend="vyre")
    for count in (6, 7, 9):  # the second size has sizes become symbols
        ours, eager = x[:count].clone(), x[:count].clone()
        torch.testing.assert_close(compiled(ours), function(eager))
        torch.testing.assert_close(ours, eager)


def test_sizes_of_which_a_function_has_no_text_are_refused_by_name(torch: Any) -> None:
    with pytest.raises(Exception, match="a power with the exponent") as caught:
        torch.compile(lambda x: x * 3 ** x.shape[0], backend="vyre", dynamic=True)(torch.ones(7))
    assert Unsupported.__name__ in str(caught.value)


def test_statistics_of_batches_of_several_sizes(torch: Any) -> None:
    models = [torch.nn.BatchNorm2d(3) for _ in range(2)]
    compiled = torch.compile(models[0], backend="vyre")
    for count in (6, 7, 8):
        x = torch.randn(count, 3, 4, 4)
        torch.testing.assert_close(compiled(x), models[1](x))
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())


def test_gradients_of_statistics_in_double_precision(torch: Any) -> None:
    x, y = (torch.randn(4, 7, dtype=torch.float64).requires_grad_() for _ in range(2))
    with torch.no_grad():
        y.copy_(x)
    for function, leaf in ((lambda x: x.var(-1, correction=0), x), (torch.compile(lambda x: x.var(-1, correction=0), backend="vyre", dynamic=True), y)):
        function(leaf).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_sizes_that_are_known_only_as_the_graph_runs(torch: Any) -> None:
    def function(i: Any, x: Any) -> Any:
        part = x[: i.item()]
        return torch.zeros(i.item()) + 1, (torch.zeros(i.item()) + 1).sum(), part.softmax(0), part.sum(), part.cumsum(0)

    compare(torch, function, *[(torch.tensor(n), torch.randn(1000)) for n in (40, 3, 700)])
    compare(torch, lambda i: (torch.zeros(i.item()) + 1).sum(), (torch.tensor(0),))


def test_loops_over_more_elements_than_32_bits_count(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vyre_py.interop.torch import kernels

    monkeypatch.setattr(kernels, "_BLOCK", 1 << 11)  # so that few elements are several blocks
    x = torch.randint(-9, 9, (5001, 3)).float()
    compare(torch, lambda i, x: (x[: i.item()].sum(0), x[: i.item()].amax(), x.t()[:, : i.item()].contiguous().sum(1)), (torch.tensor(5000), x))
