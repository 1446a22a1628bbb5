"""Models exported by `vyre_py.interop.torch.export`: beside eager PyTorch, on every device that needs none of it, and what is refused."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import numpy as np
import pytest
from device_kinds import need_package, open_device

import vyre_py as vp

try:
    import torch
except ImportError:
    need_package("torch", "torch")

from torch import nn
from torch.nn import functional

from vyre_py.interop.exported import ExportedModel
from vyre_py.interop.torch import export


class Pictures(nn.Module):
    """Convolutions, normalisation, pooling, an embedding, and two results, one of them a view."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
        self.second, self.table, self.last = nn.Conv2d(8, 8, 3, groups=4, dilation=2), nn.Embedding(7, 8), nn.Linear(8, 5)

    def forward(self, x, i):
        h = functional.max_pool2d(self.norm(self.first(x)).relu(), 2)
        h = torch.cat([self.second(h).flatten(2).mean(-1), self.table(i)])
        return self.last(h).softmax(-1), h.t()


class Words(nn.Module):
    """A block of a transformer."""

    def __init__(self):
        super().__init__()
        self.norm, self.pack, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x, *, scale=1.0):
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.pack(self.norm(x)).chunk(3, -1))
        h = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        rows = h.transpose(1, 2).flatten(2).view(-1, 16)  # as attention gives it, heads side by side
        return {"h": x + scale * functional.gelu(self.out(rows)).view_as(x)}


def arrays(*tensors):
    return [tensor.detach().numpy() for tensor in tensors]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """An exported model in a file, its arguments, and what PyTorch gives."""
    torch.manual_seed(3)
    model, args = Pictures().eval(), (torch.randn(2, 3, 20, 20), torch.tensor([1, 6]))
    path = tmp_path_factory.mktemp("exported") / "pictures.npz"
    export(model, args, targets=["reference", "cpu", "wgsl"]).save(path)
    return path, arrays(*args), arrays(*model(*args))


@pytest.mark.parametrize("kind", ["reference", "cpu", "wgpu"])
def test_a_model_runs_on_every_device(pictures, kind):
    path, (x, i), wanted = pictures
    model = ExportedModel.load(path)
    with open_device(kind) as device, model.on(device) as run:
        for _ in range(2):
            for found, want in zip(run(x, i), wanted, strict=True):
                np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
        with pytest.raises(IndexError, match="7 elements"):
            run(x, i + 7)
        with pytest.raises(vp.BindingError, match=r"input 1 needs int64\[2\], got int32\[2\]"):
            run(x, i.astype(np.int32))
        with pytest.raises(vp.BindingError, match="2 arrays are needed, got 1"):
            run(x)
        np.testing.assert_allclose(run(x, i)[0], wanted[0], rtol=1e-4, atol=1e-5)


def test_a_model_needs_no_pytorch(pictures):
    path, given, wanted = pictures
    np.savez(path.with_name("given.npz"), *given, *wanted)
    code = f"""
import sys, numpy as np, vyre_py as vp
from vyre_py.interop.exported import ExportedModel
x, i, *wanted = np.load({str(path.with_name("given.npz"))!r}).values()
with ExportedModel.load({str(path)!r}).on(vp.device("cpu")) as run:
    for found, want in zip(run(x, i), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
assert "torch" not in sys.modules and "llvmlite.ir" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_attention_half_precision_and_keywords(tmp_path):
    torch.manual_seed(4)
    model, x = Words().eval(), torch.randn(2, 5, 16)
    with torch.no_grad():
        wanted = model(x, scale=0.5)["h"]
    exported = export(model, (x,), {"scale": 0.5})
    with exported.on(vp.device("cpu")) as run:
        np.testing.assert_allclose(run(*arrays(x)), wanted, rtol=1e-4, atol=1e-5)
    parts = nn.Linear(16, 8)
    parts.weight = nn.Parameter(torch.randn(3, 8, 16)[1])  # weights that are a part of a memory
    half = export(nn.Sequential(nn.LayerNorm(16), parts).bfloat16(), (x.bfloat16(),))
    half.save(tmp_path / "half.npz")
    again = ExportedModel.load(tmp_path / "half.npz")
    assert all(np.array_equal(array, again.constants[name]) for name, array in half.constants.items())
    given = x.bfloat16().view(torch.int16).numpy().view(again.constants["c0"].dtype)
    with half.on(vp.device("cpu")) as one, again.on(vp.device("cpu")) as other:
        assert np.array_equal(one(given), other(given))


class Viewing(nn.Module):
    """No kernel at all: a part, an argument as it is, and a constant."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(3.0))

    def forward(self, x):
        return x[:3, 1:].t(), x, self.table


@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_a_model_of_views_runs(tmp_path, kind):
    model, x = Viewing(), torch.randn(6, 5)
    export(model, (x,)).save(tmp_path / "views.npz")
    with open_device(kind) as device, ExportedModel.load(tmp_path / "views.npz").on(device) as run:
        for given in (x, x * 2):
            for found, want in zip(run(given.numpy()), model(given), strict=True):
                assert np.array_equal(found, want.numpy())
        with pytest.raises(vp.BindingError, match="1 arrays are needed, got 0"):
            run()


class Sorting(nn.Module):
    def forward(self, x):
        return x.sort()[0] + 1


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return x * self.count


class Changing(nn.Module):
    def forward(self, x):
        x.mul_(2)
        return x + 1


@pytest.mark.parametrize(("model", "words"), [
    (Sorting(), "aten.sort.* is PyTorch's own op"), (nn.Dropout(0.5).train(), "PyTorch's own op|random"), (nn.ConvTranspose1d(4, 4, 3), "aten.convolution"),
    (Counting(), "changes of count in place"), (Changing(), "changes of .* in place"),
], ids=["sort", "dropout", "transposed", "buffer", "argument"])  # fmt: skip
def test_what_is_not_in_kernels_is_refused_by_name(model, words):
    with pytest.raises(vp.Unsupported, match=words):
        export(model, (torch.randn(3, 4, 5),))


def test_targets_are_looked_at_first():
    with pytest.raises(vp.Unsupported, match="z80"):
        export(Sorting(), (torch.randn(3),), targets=["cpu", "cpu:z80"])


def test_files_that_are_no_models(pictures, tmp_path):
    path = pictures[0]
    with np.load(path) as file:
        good = dict(file)
    plan = json.loads(good["plan"].tobytes())
    step, output = plan["steps"][0], plan["outputs"][0]
    for change in (
        {"version": 2}, {"steps": [{**step, "artifact": -1}]}, {"steps": [{**step, "numbers": {"n": 1.5}}]}, {"steps": [7]}, {"artifacts": 99},
        {"outputs": [{**output, "strides": []}]}, {"outputs": [{**output, "type": "f31"}]}, {"inputs": None},
    ):  # fmt: skip
        changed = np.frombuffer(json.dumps({**plan, **change}).encode(), np.uint8)
        np.savez(tmp_path / "wrong.npz", **{**good, "plan": changed})
        with pytest.raises(vp.ArtifactError, match=r"exported model|version"):
            ExportedModel.load(tmp_path / "wrong.npz")
    (tmp_path / "wrong.npz").write_bytes(b"no zip file")
    with pytest.raises(vp.ArtifactError):
        ExportedModel.load(tmp_path / "wrong.npz")
    whole, rng = bytearray(path.read_bytes()), random.Random(5)
    for _ in range(40):
        bad = bytearray(whole)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        del bad[rng.randrange(len(bad)) :]
        (tmp_path / "wrong.npz").write_bytes(bad)
        with pytest.raises(vp.ArtifactError):
            ExportedModel.load(tmp_path / "wrong.npz")
    far = np.frombuffer(json.dumps({**plan, "outputs": [{**output, "offset": 1 << 20}]}).encode(), np.uint8)
    np.savez(tmp_path / "wrong.npz", **{**good, "plan": far})
    with ExportedModel.load(tmp_path / "wrong.npz").on(vp.device("reference")) as run, pytest.raises(vp.ArtifactError, match="reaches element"):
        run(*pictures[1])
