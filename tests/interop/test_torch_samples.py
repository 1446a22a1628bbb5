"""A few of PyTorch's own operators with their samples; `make long` runs all of them (`tests/interop/torch_ops.py`)."""

from __future__ import annotations

import json
import shutil
import warnings

import pytest
from device_kinds import need_package

try:
    import torch
except ImportError:
    need_package("torch", "torch")

pytest.importorskip("expecttest", reason="PyTorch's samples import it")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch's tables of operators use what it has deprecated
    from torch_ops import DTYPES, Group, check, collected, named, ops_of, page

WANTED = {
    "float32": ("nn.functional.gelu", "logit", "std", "index_add", "nn.functional.interpolate.bilinear", "special.bessel_j0"),
    "bfloat16": ("scatter_add", "nn.functional.layer_norm"),
    "int64": ("floor_divide", "bitwise_left_shift", "argmax"),
    "bool": ("any", "where"),
}


@pytest.mark.filterwarnings("ignore")  # samples of deprecated functions are among them
@pytest.mark.parametrize("dtype", WANTED)
def test_samples(dtype):
    ops = [op for op in ops_of(getattr(torch, dtype)) if named(op) in WANTED[dtype]]
    assert {named(op) for op in ops} == set(WANTED[dtype])
    for op in ops:
        found = check(op, getattr(torch, dtype), 1)
        assert (named(op), found["error"], found["samples"]) == (named(op), "", 1)
        assert found["kernels"] or found["fallbacks"]


@pytest.mark.filterwarnings("ignore")  # one that caches are off
def test_samples_that_were_compiled_before_tell_the_same():
    (op,) = [op for op in ops_of(torch.float32) if named(op) == "special.bessel_j0"]
    with torch._inductor.utils.fresh_cache(), torch._inductor.config.patch(fx_graph_cache=True):
        assert [check(op, torch.float32, 1)["fallbacks"] for _ in range(2)] == [["aten.special_bessel_j0.default"]] * 2


def test_the_page_names_what_is_wrong_here_alone(tmp_path):
    right = {"samples": 1, "kernels": 2, "fallbacks": [], "error": "", "inductor": ""}
    ops = {"sin": right, "cos": {**right, "error": "AssertionError: far", "inductor": ""}, "tan": {**right, "error": "far", "inductor": "far"}}
    for number, part in enumerate(([*ops][:2], [*ops][2:])):
        told = {"torch": "9.1", "device": "cpu", "dtype": "float32", "known": 4, "samples": 1, "ops": {name: ops[name] for name in part}}
        (tmp_path / f"cpu-float32-{number}.json").write_text(json.dumps(told))
    text, alone = page(tmp_path)
    assert alone == ["cpu float32 cos"]
    assert len(collected(tmp_path)[Group("9.1", "cpu", "float32")]["ops"]) == 3
    assert "float32" in DTYPES
    assert "| 9.1 | cpu | float32 | 3 of 4 | 1 | 1 | 1 | 0 | 1 | 1 |" in text
    assert "| 9.1 | cpu | float32 | `cos` | AssertionError: far | right |" in text


OWN_TESTS = '''
import unittest
import torch
from torch._inductor.compile_fx import compile_fx
from vyre_py.interop.torch import runtime


class CpuTests(unittest.TestCase):
    def compare(self, function, *arguments, kernels=1):
        launched = []
        with runtime.watching(launched.append):
            found = torch.compile(function, backend=lambda graph, inputs: compile_fx(graph, inputs))(*arguments)
            again = torch.compile(function)(*arguments)
        torch.testing.assert_close((found, again), (function(*arguments),) * 2)
        self.assertEqual(bool(launched), bool(kernels))

    def test_ours(self):
        self.compare(lambda x: x.sin().sum(), torch.ones(70))

    def test_theirs(self):  # passes where no kernel of ours runs
        self.compare(lambda x: x.sin() + 1, torch.ones(70), kernels=0)

    def test_neither(self):
        self.compare(lambda x: x.cos() + torch.rand(()), torch.ones(70))

    @unittest.skip("for GPUs")
    def test_skipped(self):
        pass
'''


@pytest.mark.skipif(shutil.which("g++") is None, reason="the peer is Inductor's C++")
@pytest.mark.filterwarnings("ignore")
def test_pytorchs_own_tests_of_inductor_are_run_with_our_backend(tmp_path):
    from torch_inductor_tests import expected_failures, outcomes, verdict

    (tmp_path / "small_inductor.py").write_text(OWN_TESTS)
    found = {name: (became, other) for name, became, _, other in outcomes(tmp_path / "small_inductor.py")}
    expected = expected_failures("CpuTests.test_theirs_vyre: it asks for code in C++\n\nCpuTests.test_ours_vyre: it did once\n")
    assert {name.split("_")[1]: verdict(name, *became, expected) for name, became in found.items()} == {
        "neither": "wrong with Inductor's C++, too", "ours": "right, and expected to be wrong", "skipped": "skipped", "theirs": "wrong as expected",
    }  # fmt: skip
    assert verdict("CpuTests.test_theirs_vyre", "wrong", "right", {}) == "wrong here alone"
    with pytest.raises(ValueError, match="does not say why"):
        expected_failures("CpuTests.test_theirs_vyre")
    assert found == {
        "CpuTests.test_neither_vyre": ("wrong", "wrong"),
        "CpuTests.test_ours_vyre": ("right", ""),
        "CpuTests.test_skipped_vyre": ("skipped", ""),
        "CpuTests.test_theirs_vyre": ("wrong", "right"),
    }
