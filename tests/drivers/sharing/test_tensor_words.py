"""Tensors that mean the negated numbers of their memory, or of which gradients are wanted: no way in takes them for what lies there, and no more."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from axpy import TEXT_64 as AXPY
from device_kinds import need_package, open_device

import vyre_py as vp
from vyre_py.drivers.sharing import exchange
from vyre_py.drivers.sharing import tensor_words as module
from vyre_py.drivers.sharing.exchange_table import exchange_functions
from vyre_py.drivers.sharing.tensor_words import TensorWords, tensor_words
from vyre_py.ir.text.parser import parse

try:
    import torch
except ImportError:
    need_package("torch", "torch")

REFUSED = r"'{}': it cannot be handed over: it has its negative bit set; x\.resolve_neg\(\) is a copy that has not"


@pytest.fixture(scope="module")
def pipeline() -> Any:
    return open_device("cpu").compile_native(parse(AXPY))


def negated(count: int = 4) -> Any:
    return torch._neg_view(torch.arange(float(count)))


@pytest.mark.parametrize("worth", [0, 1 << 62])
def test_bind_and_set_refuse_it(pipeline: Any, worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_WORTH", worth)
    x, y = torch.arange(4.0), torch.ones(4)
    launch = pipeline.bind(x=x, y=y, a=2.0)
    pipeline.bind(x=x, y=y, a=2.0)  # such shapes are known from now on
    for name in ("x", "y"):
        given = {"x": x, "y": y, "a": 2.0, name: negated()}
        with pytest.raises(vp.BindingError, match=REFUSED.format(name)):
            pipeline.bind(given)
        with pytest.raises(vp.BindingError, match=REFUSED.format(name)):
            launch.set({name: negated()})
    with pytest.raises(vp.BindingError, match="negative bit"):
        pipeline.dispatch(x=negated(), y=y, a=2.0)
    with pytest.raises(vp.BindingError, match="negative bit"):
        pipeline.device.wrap(negated())
    launch()
    assert y.tolist() == [1, 3, 5, 7]


def test_functions_refuse_it_and_take_other_views(pipeline: Any) -> None:
    entry, y = pipeline.callable(), torch.ones(4)
    entry(torch.arange(4.0), y, 2.0)
    assert entry.explain(torch.arange(4.0), y, 2.0) == []
    for given in ((negated(), y, 2.0), (torch.arange(4.0), negated(), 2.0)):
        with pytest.raises(vp.BindingError, match=r"negative bit set; x\.resolve_neg"):
            entry(*given)
        assert "negative bit" in entry.explain(*given)[0]
    one = torch.complex(torch.ones(1), torch.ones(1)).conj().imag  # contiguous, since it is alone
    assert one.is_neg() and one.is_contiguous()
    with pytest.raises(vp.BindingError, match="negative bit"):
        entry(one, torch.ones(1), 2.0)
    entry(negated().resolve_neg(), y, 1.0)
    entry(torch.nn.Parameter(torch.ones(4), requires_grad=False), y, 1.0)
    assert y.tolist() == [2, 3, 4, 5]


def test_native_code_knows_where_to_look() -> None:
    words = tensor_words(torch.Tensor)
    assert words is not None and words.negative.bit_count() == 1 and words.grad_at and tensor_words(torch.nn.Parameter) == words
    assert tensor_words(np.ndarray) == TensorWords()
    assert tensor_words(type("Other", (), {"is_neg": None})) is None


@pytest.mark.parametrize("known", [True, False])
def test_functions_refuse_what_gradients_are_wanted_of(pipeline: Any, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    words = tensor_words(torch.Tensor)
    assert words is not None
    kind = torch.Tensor
    if not known:  # a type that nobody has seen yet
        kind = type("Kind", (torch.Tensor,), {"__dlpack_c_exchange_api__": torch.Tensor.__dlpack_c_exchange_api__})
        monkeypatch.setattr(module, "_found", lambda _: words._replace(grad_at=0))
    entry, y = pipeline.callable(), torch.ones(4)
    leaf, plain = torch.ones(4, requires_grad=True), torch.ones(4)
    once = torch.ones(4, requires_grad=True).requires_grad_(False)
    entry(plain.as_subclass(kind), y, 1.0)
    assert entry.explain(plain.as_subclass(kind), y, 1.0) == []
    for fine in (once, leaf.detach(), leaf.data, plain[:], torch.ones(4).requires_grad_(False)):
        given = fine if known else fine.as_subclass(kind).detach()  # as it is: of `once` autograd knows something, and yet no gradients are wanted
        entry(given, y, 0.0)
        assert entry.explain(given, y, 0.0) == []
    for wanted in (leaf, leaf * 1, (leaf * 1)[:], torch.nn.Parameter(torch.ones(4))):
        with pytest.raises(vp.BindingError, match="require gradient"):
            entry(wanted.as_subclass(kind), y, 1.0)
    assert y.tolist() == [2] * 4


def test_the_look_is_no_op_for_those_who_watch() -> None:
    """As export does, and as compilers that make fake tensors do."""
    dispatch = torch.utils._python_dispatch

    class Watch(dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]  # PyTorch has no types for this checker
        seen: list[Any] = []  # noqa: RUF012 - of this one class

        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            self.seen.append(function)
            return function(*arguments, **(named or {}))

    known = tensor_words(torch.Tensor)
    module._found.cache_clear()
    with Watch() as watch:
        assert tensor_words(torch.Tensor) == known
        assert watch.seen == []
        torch.ones(1)
        assert watch.seen


def test_where_it_does_not_know_python_takes_tensors(pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module._found(ModuleType("of_other_names")) is None
    kind = type("Kind", (torch.Tensor,), {"__dlpack_c_exchange_api__": torch.Tensor.__dlpack_c_exchange_api__})
    assert exchange_functions(torch.Tensor).words is not None  # and stays known, whichever test came first
    monkeypatch.setattr(module, "_found", lambda _: None)
    entry, y = pipeline.callable(), torch.ones(4)
    x = torch.ones(4).as_subclass(kind)
    for _ in range(2):
        entry(x, y, 1.0)
        pipeline.bind(x=x, y=y, a=1.0)()
    assert y.tolist() == [5] * 4 and entry.explain(x, y, 1.0) == ["'x' is a Kind, which is no array that native code knows"]
    with pytest.raises(vp.BindingError, match="negative bit"):
        entry(negated().as_subclass(kind), y, 1.0)
