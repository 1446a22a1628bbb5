"""`torch.compile(..., backend="vyre")` on a GPU: streams, CUDA graphs, Triton's random numbers, problems that are told later, and what is refused.
`VYRE_TORCH_DEVICE=cuda pytest tests/interop/test_torch_backend.py` has what kernels compute."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from device_kinds import open_device
from test_gpu_doors import package

import vyre_py as vp

# Inductor's advice, and what its first graph is, which are errors here.
pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in ("TensorFloat32 tensor cores", "The CUDA Graph is empty")]

@pytest.fixture(scope="module", autouse=True)
def gpu() -> None:
    open_device("cuda")
    if not package("torch").cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")


@pytest.fixture
def torch() -> Any:
    library = package("torch")
    library._dynamo.reset()
    library.manual_seed(3)
    with library._inductor.config.patch(fx_graph_cache=False), library._functorch.config.patch(enable_autograd_cache=False), library.device("cuda"):
        yield library


def smooth(torch: Any, x: Any, w: Any) -> Any:
    return torch.nn.functional.layer_norm(x * 2 + w, (x.shape[-1],)).sin() @ w


def test_calls_follow_the_stream_that_pytorch_works_on(torch: Any) -> None:
    compiled = torch.compile(lambda x: (x + 1) * 2, backend="vyre")
    x, results, streams = torch.zeros(1 << 24), [], [torch.cuda.Stream() for _ in range(3)]
    compiled(x)
    torch.cuda.synchronize()
    for number, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            y = torch.full((1 << 24,), float(number))
            for _ in range(20):
                y = y.sqrt().square()  # work that the kernel has to come after
            results.append(compiled(y))
    torch.cuda.synchronize()
    for number, result in enumerate(results):
        torch.testing.assert_close(result, torch.full_like(result, 2.0 * (number + 1)))


def test_graphs_of_cuda_replay_kernels(torch: Any) -> None:
    compiled = torch.compile(smooth, backend="vyre", mode="reduce-overhead")
    w = torch.randn(64, 64)
    for seed in range(6):
        torch.manual_seed(seed)
        x = torch.randn(64, 64)
        found = compiled(torch, x, w).clone()
        torch.testing.assert_close(found, smooth(torch, x, w), rtol=1e-4, atol=1e-4)


def test_a_user_captures_calls(torch: Any) -> None:
    compiled = torch.compile(lambda x: x.softmax(-1) + 1, backend="vyre")
    x = torch.randn(50, 300)
    compiled(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = compiled(x)
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(y, x.softmax(-1) + 1)


def test_random_numbers_are_those_of_triton(torch: Any) -> None:
    package("triton")

    def draw(x: Any) -> Any:
        return torch.rand_like(x), torch.randn_like(x) + 1, torch.randint_like(x, -5, 100), torch.nn.functional.dropout(x, 0.3)

    def drawn(name: str) -> Any:
        torch._dynamo.reset()
        torch.manual_seed(5)
        return [torch.compile(draw, backend=name)(torch.ones(50, 40)) for _ in range(2)]

    torch.testing.assert_close(drawn("vyre"), drawn("inductor"), rtol=1e-5, atol=1e-6)


def test_a_problem_is_raised_once_and_later(torch: Any) -> None:
    from vyre_py.interop.torch.gpu_kernels import raise_problems

    compiled = torch.compile(lambda x, i: x[i] * 2, backend="vyre")
    x, right = torch.randn(20), torch.tensor([3, -1])
    found = compiled(x, torch.tensor([25, 1]))
    assert found.tolist() == [0.0, pytest.approx(2 * x[1].item())]  # what lies beyond is zero
    with pytest.raises(IndexError, match="20 elements"):
        compiled(x, right)
    torch.testing.assert_close(compiled(x, right), x[right] * 2)
    compiled(x, torch.tensor([-21, 1]))
    with pytest.raises(IndexError, match="20 elements"):
        raise_problems()
    raise_problems()


def test_sizes_that_change_are_not_compiled_again(torch: Any) -> None:
    compiled, shapes = torch.compile(lambda x: (x.exp().sum(-1), x.t().contiguous()), backend="vyre", dynamic=True), [(3, 40), (50, 7), (129, 257), (50, 7)]
    for shape in shapes:
        x = torch.randn(*shape)
        torch.testing.assert_close(compiled(x), (x.exp().sum(-1), x.t().contiguous()), rtol=1e-5, atol=1e-5)


ADD = "program kernel(n) workgroup(64) over(n) {\n buffer a: f32[n] read\n buffer b: f32[n] write\n b[global_id.x] = a[global_id.x] + 1.0f32\n}"


def test_threads_share_kernels(torch: Any) -> None:
    from vyre_py.interop.torch.gpu_kernels import gpu_kernel

    add, wrong = gpu_kernel(ADD, 2, [], 0), list[int]()

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for size in range(1, 300):
                a = torch.full((size + number,), float(number), device="cuda")
                b = torch.zeros_like(a)
                add(a, b, size + number, stream.cuda_stream)
                if not torch.equal(b, a + 1):
                    wrong.append(size)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_tensors_that_do_not_fit_are_refused(torch: Any) -> None:
    from vyre_py.interop.torch.gpu_kernels import gpu_kernel

    add, stream = gpu_kernel(ADD, 2, [], 0), torch.cuda.current_stream().cuda_stream
    a, b = torch.arange(100.0), torch.zeros(100)
    add(a, b, 100, stream)
    assert torch.equal(b, a + 1)
    with pytest.raises(vp.BindingError, match="'a' spans 396 bytes; 400 are needed"):
        add(a[:99], b, 100, stream)
    with pytest.raises(vp.BindingError, match="'b' is a tensor on cpu"):
        add(a, b.cpu(), 100, stream)
    c = torch.zeros(101)[1:]  # not aligned as wide accesses need it
    add(a, c, 100, stream)
    assert torch.equal(c, a + 1)


def test_an_operator_runs_where_its_tensors_are(torch: Any) -> None:
    from vyre_py.interop.torch import op

    program = vp.Program.from_text("""program scaled_on_gpu(n, m) workgroup(64) over(m, n) {
      param a: f32
      buffer x: f32[n, m] read
      buffer y: f32[n, m] read_write
      buffer z: f32x2[n, m] write
      let i = global_id.y
      let j = global_id.x
      y[i, j] = y[i, j] + a * x[i, j]
      z[i, j] = vec2(x[i, j], a)
    }""")
    scaled, x, y = op(program), torch.randn(30, 70), torch.randn(30, 70)
    wanted = y + 2 * x
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        z = scaled(x, y, 2.0)
    stream.synchronize()
    torch.testing.assert_close(y, wanted)
    torch.testing.assert_close(z, torch.stack([x, torch.full_like(x, 2.0)], dim=-1))
    z = torch.compile(lambda x, y: scaled(x.sin(), y, 2.0) + 1, backend="vyre")(x.t().contiguous().t(), y)
    torch.testing.assert_close(z[..., 0], x.sin() + 1)
    with pytest.raises(vp.BindingError, match="'y' is on cpu, where others are on cuda:0"):
        scaled(x, y.cpu(), 2.0)
