"""What `vyre_py` gives: names, the module that each says it is of, and what is closed."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import vyre_py as vp
from vyre_py._names import LAZY
from vyre_py.ir.builder.functions import FUNCTIONS

KINDS = sorted(name for name in (*LAZY, *FUNCTIONS) if inspect.isclass(getattr(vp, name)) or inspect.isfunction(getattr(vp, name)))


@pytest.mark.parametrize("name", KINDS)
def test_what_is_public_says_so(name: str) -> None:
    thing = getattr(vp, name)
    assert thing.__module__ == "vyre_py" and thing.__name__ == name


@pytest.mark.parametrize("name", ["Type", "Expr", "Pending", "Timed", "Diagnostic", "Limits", "Event", "Target", "Place", "Stages"])
def test_types_that_users_meet_are_there(name: str) -> None:
    assert name in vp.__all__ and name in dir(vp)


def test_functions_are_as_their_rows_say() -> None:
    assert str(inspect.signature(vp.insert_bits)) == "(x: 'Operand', y: 'Operand', offset: 'Operand', count: 'Operand') -> 'Expr'"
    assert vp.rotl.__module__ == "vyre_py" and (vp.rotl.__doc__ or "").endswith("rotl(x, count): (T, T) -> T, T: integers.")
    with pytest.raises(TypeError, match=r"fma\(\) missing 1 required positional argument: 'c'"):
        vp.fma(1, 2)
    with pytest.raises(AttributeError, match="has no attribute 'devise'"):
        _ = vp.devise
    with pytest.raises(AttributeError, match=r"no attribute 'abs'; abs\(x\) without vp\."):
        _ = vp.abs


def test_what_holds_something_closes() -> None:
    device = vp.device("cpu")
    with device.upload(np.arange(4, dtype=np.float32)) as x, device.weights({"w": np.ones(4)}) as weights:
        assert weights["w"].shape == (4,)
    assert weights.freed
    with pytest.raises(vp.BindingError, match="freed"):
        x.read()
    with vp.ProgramBuilder("double") as b:
        n = b.dim("n")
        first, second = b.read("source", vp.f32, n), b.write("target", vp.f32, n)
        second[b.global_id(0)] = first[b.global_id(0)] * 2.0
    with device.chain([(b.program, {"source": "x", "target": "y"})], inputs={"x": np.ones(3, np.float32)}, outputs=("y",)) as chain:
        chain()
        assert chain["y"].read().tolist() == [2.0] * 3
    assert chain.arena.freed
    source, target = (device.upload(np.ones(3, np.float32)) for _ in range(2))
    launch = device.compile_native(b.program).bind(source=source, target=target)
    with device.capture(launch) as graph:
        graph()
    with pytest.raises(vp.LaunchError):
        graph()
