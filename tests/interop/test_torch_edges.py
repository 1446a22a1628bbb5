"""Where `torch.compile(..., backend="vyre")` has edges: numbers that a type has not, memory that an op reads and changes, and what is refused."""

from __future__ import annotations

import pytest
from device_kinds import need_package

import vyre_py as vp

try:
    import torch
except ImportError:
    need_package("torch", "torch")

import torch.nn.attention.flex_attention
import torch.utils.checkpoint

from vyre_py.interop.torch import programs
from vyre_py.interop.torch.backend import compile_graph

nan, inf = float("nan"), float("inf")
HALVES = [torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def fresh():
    """Nothing compiled before, and nothing kept behind."""
    torch._dynamo.reset()
    with torch._inductor.config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
        yield
    torch._dynamo.reset()


def compiled(function, **settings):
    return torch.compile(function, backend="vyre", fullgraph=True, **settings)


def compare(function, *arguments):
    """Compiled and eager results are the same."""
    torch.testing.assert_close(compiled(function)(*arguments), function(*arguments), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES, torch.int32], ids=str)
def test_what_floats_of_8_bits_have_not_becomes_what_pytorch_makes_of_it(dtype):
    numbers = [0, 1, 440, 447, 448, 449, 463, 464, 465, 479, 480, 1e4, 57344, 61439, 61440, 65504]
    odd = [0.3, 464.1, 1e9, 1e300 if dtype is torch.float64 else 1e30, inf, nan, 0.0, 448.0000001]
    x = torch.tensor(numbers if dtype is torch.int32 else [*numbers, *odd], dtype=torch.float64)
    x = torch.cat([x, -x]).to(dtype)
    for narrow in (torch.float8_e4m3fn, torch.float8_e5m2):
        torch._dynamo.reset()
        compare(lambda x, narrow=narrow: x.to(narrow).float(), x)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_neighbours_of_half_precision_are_its_own(dtype):
    x = torch.tensor([1, 0, 3, -1, 65504, inf, nan, 2], dtype=torch.float64).to(dtype)
    y = torch.tensor([2, 1, -9, -1, inf, 0, 1, nan], dtype=torch.float64).to(dtype)
    compare(lambda x, y: (torch.nextafter(x, y), torch.nextafter(x + 1, y * 2) + 1), x, y)


PUTS = {
    "added": lambda y, i: y.index_add(0, i, y), "put": lambda y, i: y.index_put((i,), y, accumulate=True),
    "a part": lambda y, i: y.index_add(0, i[:2], y[:2]), "turned": lambda y, i: y.t().index_add(1, i, y.t()),
    "computed": lambda y, i: y.index_add(0, i, y * 2), "used afterwards": lambda y, i: (y.index_add(0, i, y), y.sum()),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("name", PUTS)
def test_a_tensor_is_added_to_itself_by_index(name, dtype):
    compare(lambda x, i: PUTS[name](x + 1, i), torch.arange(12).view(3, 4).to(dtype), torch.tensor([0, 2, 0]))


def test_an_index_error_shows_sizes_that_only_a_call_tells():
    picked, many = compiled(lambda x, i: x[i] + 1, dynamic=True), torch.zeros(1 << 15, dtype=torch.int64)
    for size in (7, 1000):
        for count in (3, 1 << 15):
            far = many[:count].clone()
            picked(torch.ones(size), far)
            far[-1] = size
            with pytest.raises(IndexError, match=f"an axis of {size} elements is indexed beyond its ends"):
                picked(torch.ones(size), far)
    with pytest.raises(IndexError, match="an axis is indexed beyond its ends"):
        compiled(lambda x, i: torch.cat([x, x])[i], dynamic=True)(torch.ones(5), torch.tensor([10, 0, 1]))


def test_negative_indices_are_counted_from_the_end_or_refused():
    x, i = torch.arange(12.0).view(3, 4), torch.tensor([1, 1, -1])
    assert torch.equal(compiled(lambda x, i: x.index_select(0, i))(x, i), x[[1, 1, 2]])
    assert torch.equal(compiled(lambda x, i: x.index_copy(0, i, x * 0))(x, i), x * torch.tensor([[1], [0], [0]]))
    assert torch.equal(compiled(lambda x, i: x.index_add(0, i, x))(x, i)[2], x[2] * 2)
    for beyond in (lambda x, i: x.gather(0, i[:, None]), lambda x, i: x.index_select(0, i)):
        with pytest.raises(IndexError):
            compiled(beyond)(x, i - 3)
    try:  # as PyTorch's own lowering says: that of 2.13 refuses it, and that of 2.11 counts
        counted = compiled(lambda x, i: x.gather(0, i[:, None]))(x, i)
    except IndexError:
        counted = x[[1, 1, 2], :1]
    assert torch.equal(counted, x[[1, 1, 2], :1])


DIVISIONS = {
    "//": lambda x, y: x // y, "%": lambda x, y: x % y, "fmod": torch.fmod, "remainder": torch.remainder, "floor_divide": torch.floor_divide,
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"), "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "of a number": lambda x, y: 5 // y + x, "by a number": lambda x, y: x // 0 + y, "summed": lambda x, y: (x // y).sum(),
    "chosen among": lambda x, y: torch.where(y != 0, x // y, x),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("name", DIVISIONS)
def test_a_whole_number_divided_by_zero_is_refused_as_in_eager_code(name, dtype):
    x, y = torch.arange(70).to(dtype), torch.arange(3, 73).to(dtype)
    if name != "by a number":
        compare(DIVISIONS[name], x, y)
    y[66] = 0
    for function in (DIVISIONS[name], compiled(DIVISIONS[name])):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            function(x, y)


def test_divisors_where_nothing_is_divided_may_be_zero():
    x, y = torch.arange(12).view(3, 4), torch.arange(1, 13).view(3, 4)
    compare(lambda x, y: torch.nn.functional.pad(x // y, (2, 3)), x, y)
    compare(lambda x, y: torch.cat([x % y, y * 0, x // 2]), x, y)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        compare(lambda x, y: (x // y, x % y), x.to(dtype), (y - 1).to(dtype))


def test_a_constant_divisor_is_not_looked_at():
    run, x = compiled(lambda x: (x // 7, x % 7, torch.fmod(x, 7))), torch.arange(70)
    assert [program for program in programs(run, x) if "problem" in str(program)] == []


def test_an_assertion_with_a_message_is_raised():
    def asserting(x):
        torch._assert_async((x > 0).all(), "not above zero")
        return x + 1

    run = compiled(asserting)
    run(torch.ones(3))
    with pytest.raises(RuntimeError, match="not above zero"):
        run(torch.zeros(3))


@pytest.mark.parametrize("name", ["cpp_wrapper", "fx_wrapper", "nan_asserts"])
def test_options_that_are_not_there_are_refused_by_name(name):
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(vp.Unsupported, match=f"the option {name}"):
        compile_graph(graph, [torch.ones(3)], options={name: True})
    with torch._inductor.config.patch({name: True}), pytest.raises(vp.Unsupported, match=f"the option {name}"):
        compile_graph(graph, [torch.ones(3)])


def test_flex_attention_is_refused_by_name():
    attention, query = torch.nn.attention.flex_attention.flex_attention, torch.randn(1, 1, 16, 16)

    def nested(q):
        """Within a graph of its own."""
        return torch.utils.checkpoint.checkpoint(attention, q, q, q, use_reentrant=False) * q

    for function in (lambda q: attention(q, q, q), nested):
        with pytest.raises(Exception, match=r"Unsupported: the backend vyre does not support FlexAttention \(.*scaled_dot_product_attention"):
            compiled(function)(query)
