"""Copies and pickles: what is immutable arrives equal in another process, what belongs to a device is refused with the cure."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from children import child_environment
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.errors import (
    BindingError,
    CacheError,
    DeviceLost,
    DeviceUnavailable,
    DispatchTimeout,
    LaunchError,
    OutOfMemory,
)
from vyre_py.ir.check import check
from vyre_py.ir.language.errors import (
    Diagnostic,
    ParseError,
    Place,
    RaceError,
    UnwrittenRead,
    ValidationError,
    VyreError,
    WireError,
)
from vyre_py.ir.language.types import TYPES, Type
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.errors import ArtifactError, Missing, ToolchainError, Unsupported

PROGRAM = parse("""program axpy(n) workgroup(64) {
  param a: f32
  buffer x: f32x2[n] read
  buffer y: f32x2[n] read_write
  let i = global_id.x
  y[i] = x[i] * vec2(a, a) + y[i]
}""")

PLACE = Place("a.vir", 3, 4, 2, "  x = y", ("a", "b"))
FOUND = Diagnostic("V201", "f32 + u32", PLACE, "convert one side")
ERRORS: tuple[VyreError, ...] = (
    ParseError(FOUND), ValidationError([FOUND, FOUND]), RaceError([FOUND, FOUND]), UnwrittenRead([FOUND, FOUND]),
    WireError(FOUND, "/body/3"),
    Unsupported("wgsl", [Missing("op exp", PLACE, "use another"), "type f64"]), ToolchainError("llvm", "no", "text"),
    ArtifactError("header", "short", "a.vyre"),
    DeviceUnavailable("no", status="S", meaning="m", cause="c", remedy="r"), OutOfMemory("no", asked=7, free=3), BindingError("axpy", ["one", "two"]),
    LaunchError("no"), DispatchTimeout("late"), DeviceLost("gone", cause="first"), CacheError("no"),
)  # fmt: skip

# Reads a pickle from standard input, and says what it has, in terms that do not depend on this process.
FRESH = """
import pickle, sys
import numpy as np
program, checked, artifact, types, options, pipeline = pickle.load(sys.stdin.buffer)
import vyre_py as vp
from vyre_py.ir.language.types import TYPES, Type
assert all(TYPES[t.name] is t for t in types), types
assert checked.program == program and program.memories[0].type is vp.f32x2
assert options == vp.CompileOptions(opt=1) and pipeline.device is vp.device("cpu")
x, y = np.ones((4, 2), np.float32), np.full((4, 2), 3, np.float32)
for pipe in (pipeline, vp.device("cpu").load(artifact), vp.device("cpu").compile_native(checked, options)):
    assert (pipe.dispatch({"x": x, "y": y, "a": 2.0})["y"] == 5).all()
print(program.code_digest.hex(), program.interface_digest.hex(), artifact.to_bytes().hex()[-64:])
"""


def test_what_is_immutable_arrives_in_a_fresh_process() -> None:
    artifact = vp.compile_native(PROGRAM, targets=["cpu", "wgsl"])
    pipeline = open_device("cpu").compile_native(PROGRAM)
    sent = (PROGRAM, check(PROGRAM), artifact, tuple(TYPES.values()), vp.CompileOptions(opt=1), pipeline)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        data = pickle.dumps(sent, protocol)
    done = subprocess.run([sys.executable, "-c", FRESH], input=data, capture_output=True, env=child_environment(), check=False)
    assert done.returncode == 0, done.stderr.decode()
    digests = (PROGRAM.code_digest.hex(), PROGRAM.interface_digest.hex(), artifact.to_bytes().hex()[-64:])
    assert tuple(done.stdout.decode().split()) == digests


def test_a_program_keeps_its_names_and_places() -> None:
    again = pickle.loads(pickle.dumps(PROGRAM))
    assert again == PROGRAM and str(again) == str(PROGRAM) and list(map(str, again.places)) == list(map(str, PROGRAM.places))


@pytest.mark.parametrize("type_", TYPES.values(), ids=str)
def test_there_is_one_object_for_each_type(type_: Type) -> None:
    assert pickle.loads(pickle.dumps(type_)) is type_ and copy.copy(type_) is type_ and copy.deepcopy(type_) is type_


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_a_copy_of_what_is_immutable_is_itself(how: Callable[[Any], Any]) -> None:
    pipeline = open_device("cpu").compile_native(PROGRAM)
    for what in (PROGRAM, check(PROGRAM), vp.compile_native(PROGRAM, targets=["cpu"]), vp.CompileOptions(opt=2), pipeline):
        assert how(what) is what
        assert how([what])[0] is what


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_keep_class_text_and_fields(error: VyreError) -> None:
    error.add_note("seen twice")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


def _owned() -> list[Any]:
    device = open_device("cpu")
    x, y = device.upload(np.ones((4, 2), np.float32), vp.f32x2), device.upload(np.ones((4, 2), np.float32), vp.f32x2)
    launch = device.compile_native(PROGRAM).bind({"x": x, "y": y, "a": 2.0})
    graph = device.capture(launch)
    pending = device.compile_native(PROGRAM).submit({"x": x, "y": y, "a": 2.0})
    pending.result(timeout=60)
    return [device, x, launch, graph, device.sequence(launch), device.resident, pending]


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_belongs_to_a_device_is_refused_with_the_cure(how: Callable[[Any], Any]) -> None:
    for what in _owned():
        with pytest.raises(TypeError, match=r"belongs to a device in this process .*: (send|make)"):
            how(what)
