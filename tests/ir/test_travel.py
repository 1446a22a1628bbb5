"""Copies and pickles: what is immutable arrives equal in another process, what belongs to a device is refused with the cure."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
import pickletools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import child_environment
from device_kinds import need_package, open_device
from every_tile import tile_programs

import vyre_py as vp
from vyre_py.drivers.errors import (
    BindingError,
    CacheError,
    DeviceLost,
    DeviceUnavailable,
    DispatchTimeout,
    DriverError,
    KernelAssertion,
    LaunchError,
    OutOfMemory,
)
from vyre_py.drivers.many.rank_watch import RankWatch
from vyre_py.ir.check import check
from vyre_py.ir.language.errors import (
    Diagnostic,
    ParseError,
    Place,
    ProgramError,
    RaceError,
    UnwrittenRead,
    ValidationError,
    VyreError,
    WireError,
)
from vyre_py.ir.language.types import TYPES, Type, f16, f32, tile_of
from vyre_py.ir.text.parser import parse
from vyre_py.ir.travel import Contained
from vyre_py.lowering.errors import ArtifactError, LoweringError, Missing, ToolchainError, Unsupported

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
    VyreError("no"), ProgramError(FOUND), LoweringError("no"), DriverError("no", status="S"),
    KernelAssertion("axpy", "cpu:0", "x is 1", (1, 2.5, (1, 2)), (1, 0, 0), (0, 0, 0), (1, 0, 0), PLACE),
)  # fmt: skip

TRIED = vp.Tried({"tiles": (8, 8, 8)}, 1, None, "Unsupported: no")

WARNS = """program warns(n) workgroup(64) {
  function half(x: f32) -> f32 {
    return x * 0.5
  }
  buffer y: f32[n] read_write
  let i = global_id.x
  if i - 5 < 0 {
    y[i] = half(y[i])
  }
}"""


def _travelling() -> dict[str, Any]:
    """An object of each public class that travels, by the class's name."""
    device = open_device("cpu")
    pipeline = device.compile_native(PROGRAM, vp.CompileOptions(opt=1))
    x, y = np.ones((4, 2), np.float32), np.full((4, 2), 3, np.float32)
    values = [vp.ArenaValue("a", (4, 4), vp.f32), vp.ArenaValue("b", (4, 4), vp.f32, takes="a"), vp.ArenaValue("c", (4,), vp.f32x2, zeroed=True)]
    plan = vp.plan_arena(values, [vp.ArenaStep((), ("a",), "first"), vp.ArenaStep(("a",), ("b",)), vp.ArenaStep(("b",), ("c",))])
    told = {type(error).__name__: error for error in ERRORS}
    return told | {
        "ArenaPlan": plan, "ArenaStep": plan.steps[0], "ArenaValue": values[1], "Artifact": vp.compile_native(PROGRAM, targets=["cpu", "wgsl", "reference"]),
        "CacheWarning": vp.CacheWarning("the cache is off"), "Checked": check(parse(WARNS)), "CompileOptions": vp.CompileOptions(workgroup=(32, 1, 1), opt=1),
        "DeviceInfo": vp.devices()[-1], "Diagnostic": FOUND, "DispatchConfig": vp.DispatchConfig(label="one", grid=(2, 1, 1), timeout=2.5),
        "LayerSnapshot": next(iter(device.cache_layers().values())), "Limits": device.limits, "Missing": Missing("op exp", PLACE, "use another"),
        "Pipeline": pipeline, "Place": PLACE, "Program": PROGRAM, "ProgramWarning": vp.ProgramWarning(FOUND), "Snapshot": device.telemetry.snapshot(),
        "Stages": pipeline.stages, "StoreSnapshot": device.resident.snapshot(), "Target": device.target,
        "Timed": pipeline.dispatch_timed({"x": x, "y": y, "a": 2.0}), "Type": vp.f32x2,
        "Tried": TRIED, "Tuned": vp.Tuned({"tiles": (8, 8, 8)}, PROGRAM, 12.5, 3, (TRIED,)),
    }  # fmt: skip


def _staying() -> dict[str, Any]:
    """An object of each public class that refuses, by the class's name."""
    device = open_device("cpu")
    x, y = device.upload(np.ones((4, 2), np.float32), vp.f32x2), device.upload(np.ones((4, 2), np.float32), vp.f32x2)
    launch = device.compile_native(PROGRAM).bind({"x": x, "y": y, "a": 2.0})
    pending = device.compile_native(PROGRAM).submit({"x": x, "y": y, "a": 2.0})
    pending.result(timeout=60)
    builder = vp.ProgramBuilder("built")
    with builder as b:
        size = b.dim("n")
        z = b.read_write("z", vp.f32, size)
        number = b.var("number", vp.f32, 0.0)
        element = z[b.global_id(0)]
        z[b.global_id(0)] = element + number
    tiles = vp.TileBuilder("tiles")
    plan = vp.plan_arena([vp.ArenaValue("a", (4,), vp.f32)], [vp.ArenaStep((), ("a",))])
    filled = vp.ProgramBuilder("filled")
    with filled as b:
        b.write("out", vp.f32, 4)[b.global_id(0)] = 1.0
    part = vp.compile_native(PROGRAM, targets=["wgsl"]).parts[0]
    traced = vp.function(lambda v: v * 0.5, types=[vp.f32], result=vp.f32)
    return {
        "Arena": device.arena(plan), "ArrayHandle": z, "Buffer": x, "CallEntry": device.compile_native(PROGRAM).callable(),
        "Device": device, "DiskCache": vp.DiskCache(None), "Event": device.record_event(),
        "Chain": device.chain([(filled.program, {"out": "a"})], outputs=["a"]),
        "Entry": part.steps[0].entries[0], "Executor": vp.Executor("reference"), "Expr": element, "Graph": device.capture(launch),
        "Image": part.steps[0].images[0], "Interface": device.compile_native(PROGRAM).artifact.interface, "Launch": launch, "Part": part, "Pending": pending,
        "ProgramBuilder": builder, "RankWatch": RankWatch(device, 1.0),
        "ResidentStore": device.resident, "Sequence": device.sequence(launch), "SequenceStep": vp.copy_step(x, y), "Size": size,
        "Sobol": vp.Sobol.__new__(vp.Sobol), "Sort": vp.Sort.__new__(vp.Sort), "Step": part.steps[0], "Telemetry": device.telemetry,
        "TileArrayHandle": tiles.write("t", vp.f32, 4), "TileBuilder": tiles, "Trace": vp.trace(), "Traced": traced, "VariableHandle": number,
        "Weights": device.weights({"w": np.ones(4, np.float32)}),
    }  # fmt: skip


PUBLIC = [name for name in vp.__all__ if isinstance(getattr(vp, name), type)]

# Reads pickles by name from standard input, says what Dask would know each by, and sends all back.
FRESH = """
import pickle, sys
objects = pickle.load(sys.stdin.buffer)
tokens = {name: token() for name, thing in objects.items() if (token := getattr(thing, "__dask_tokenize__", None))}
import vyre_py as vp
pipeline, checked = objects["Pipeline"], objects["Checked"]
assert pipeline.device is vp.device("cpu")
import numpy as np
x, y = np.ones((4, 2), np.float32), np.full((4, 2), 3, np.float32)
for pipe in (pipeline, vp.device("cpu").load(objects["Artifact"]), vp.device("reference").compile_native(objects["Program"], vp.CompileOptions(opt=1))):
    assert (pipe.dispatch({"x": x, "y": y, "a": 2.0})["y"] == 5).all()
vp.device("cpu").compile_native(checked, objects["CompileOptions"])
sys.stdout.buffer.write(pickle.dumps((tokens, objects)))
"""


@pytest.fixture(scope="module")
def travelling() -> dict[str, Any]:
    return _travelling()


@pytest.fixture(scope="module")
def staying() -> dict[str, Any]:
    return _staying()


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_class_travels_or_refuses(name: str, travelling: dict[str, Any], staying: dict[str, Any]) -> None:
    assert (name in travelling) != (name in staying), "decide: in _travelling, or in _staying"
    assert isinstance((travelling | staying)[name], getattr(vp, name))


def _shown(thing: Any) -> Any:
    """What tells an object of another process from others: itself, or text and fields where equality is identity."""
    if isinstance(thing, (Warning, vp.Timed)):
        return type(thing), str(thing), repr(vars(thing)) if isinstance(thing, Warning) else ""
    return thing


def test_what_travels_is_equal_after_a_fresh_process(travelling: dict[str, Any]) -> None:
    data = pickle.dumps(travelling)
    done = subprocess.run([sys.executable, "-c", FRESH], input=data, capture_output=True, env=child_environment(), check=False)
    assert done.returncode == 0, done.stderr.decode()
    tokens, again = pickle.loads(done.stdout)
    for name, thing in travelling.items():
        assert _shown(again[name]) == _shown(thing), name
        assert type(again[name]) is type(thing), name
        if (token := getattr(thing, "__dask_tokenize__", None)) is not None:
            assert tokens[name] == token() == again[name].__dask_tokenize__(), name
        assert _hash(again[name]) == _hash(thing) or isinstance(thing, (Warning, vp.Timed)), name
    assert len(set(tokens.values())) == len(tokens) > 15  # other objects, other tokens


def _hash(thing: Any) -> int | None:
    try:
        return hash(thing)
    except TypeError:  # with mappings in it
        return None


def test_cloudpickle_carries_it(travelling: dict[str, Any]) -> None:
    """It takes functions apart that it does not find under their name; what it makes is read without it."""
    need_package("cloudpickle", "dask")  # which brings it
    import cloudpickle

    tiles = {str(number): program for number, program in enumerate(tile_programs())}
    for name, thing in (travelling | tiles).items():
        data = cloudpickle.dumps(thing)
        assert b"cloudpickle" not in data, name
        assert _shown(pickle.loads(data)) == _shown(thing), name
    data = cloudpickle.dumps(travelling)
    done = subprocess.run([sys.executable, "-c", FRESH], input=data, capture_output=True, env=child_environment(), check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_every_protocol_carries_it(travelling: dict[str, Any]) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(travelling, protocol))
        assert {name: _shown(thing) for name, thing in again.items()} == {name: _shown(thing) for name, thing in travelling.items()}


def _pickled_as_classes_say(thing: Any) -> bytes:
    """Without what other packages register for the whole process: `distributed` has exceptions pickled by functions of another package."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 3)
    pickler.dispatch_table = {}
    pickler.dump(thing)
    return file.getvalue()


def test_pickles_name_public_classes_alone(travelling: dict[str, Any]) -> None:
    for name, thing in travelling.items():
        named = {arg.split(" ", 1)[0] for op, arg, _ in pickletools.genops(_pickled_as_classes_say(thing)) if op.name == "GLOBAL"}
        assert named <= {"builtins", "operator", "vyre_py"} | ({"numpy", "numpy._core.multiarray"} if name == "Timed" else set()), name


def test_an_error_of_a_module_of_ours_arrives_as_the_public_kind() -> None:
    with pytest.raises(vp.ValidationError) as caught, vp.ProgramBuilder("odd") as b:
        _ = b.param("v", vp.f32x2).nothing
    assert isinstance(caught.value, AttributeError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is vp.ValidationError and str(again) == str(caught.value) and again.diagnostics == caught.value.diagnostics


def test_what_a_compiler_left_behind_is_named_on_the_other_side() -> None:
    error = ToolchainError("llvm", "ended")
    error.report, error.program_bytes = Path("reports") / "one", b"abc"
    again = pickle.loads(pickle.dumps(error))
    assert again.report == error.report and again.program_bytes == b"abc"


def test_a_proof_is_made_again_where_it_arrives() -> None:
    broken = parse("program odd(n) workgroup(64) {\n  buffer x: f32[n] read\n  buffer y: f32[n] read_write\n  y[global_id.x] = x[global_id.x]\n}")
    checked = check(broken)
    claims = dataclasses.replace(checked, program=dataclasses.replace(broken, workgroup=(1 << 20, 1, 1)), capabilities=frozenset({"f64"}))
    with pytest.raises(ValidationError, match="workgroup"):
        pickle.loads(pickle.dumps(claims))
    assert pickle.loads(pickle.dumps(dataclasses.replace(checked, capabilities=frozenset({"f64"})))) == checked


def test_a_pipeline_whose_code_does_not_fit_is_compiled_again() -> None:
    device, elsewhere = open_device("cpu"), vp.compile_native(PROGRAM, targets=["wgsl"])
    options = vp.CompileOptions(opt=1)
    pipeline = device.compile_native(PROGRAM, options)
    made, (kind,) = pipeline.__reduce__()
    assert kind is vp.Pipeline and made.__reduce__()[1] == ("_opened", "cpu", pipeline.artifact, (PROGRAM, options))
    assert vp.Pipeline._opened("cpu", elsewhere, (PROGRAM, options)) is pipeline  # the same Program and options, from memory
    loaded = device.load(pipeline.artifact)
    assert loaded == pipeline and hash(loaded) == hash(pipeline) and loaded.__dask_tokenize__() == pipeline.__dask_tokenize__()
    assert pipeline != open_device("reference").compile_native(PROGRAM, options) and pipeline != device.compile_native(PROGRAM)
    with pytest.raises(Unsupported, match="wgsl"):
        vp.Pipeline._opened("cpu", elsewhere, None)


def test_a_pipeline_that_arrives_keeps_what_it_was_compiled_from() -> None:
    device, options = open_device("cpu"), vp.CompileOptions(opt=1)
    pipeline = device.compile_native(PROGRAM, options)
    data = pickle.dumps(pipeline)
    once = pickle.loads(data)
    assert once is not pipeline and once.__reduce__()[0].__reduce__() == pipeline.__reduce__()[0].__reduce__()
    assert pickle.dumps(once) == data  # so that any number of processes may hand it on
    made, kinds = once.__reduce__()
    _, kind, _, source = made.__reduce__()[1]
    elsewhere = vp.compile_native(PROGRAM, targets=["wgsl"])  # what another kind of machine would not load
    assert kinds == (vp.Pipeline,) and vp.Pipeline._opened(kind, elsewhere, source) is pipeline
    lone = pickle.loads(pickle.dumps(device.load(pipeline.artifact)))
    assert lone == pipeline and lone.__reduce__()[0].__reduce__()[1][-1] is None


# Reads a function of JAX's from standard input, calls it, and sends the result and the function itself.
FRESH_CALL = """
import pickle, sys
import numpy as np
function = pickle.load(sys.stdin.buffer)
sent = pickle.dumps(function)
x, y = np.ones((4, 2), np.float32), np.full((4, 2), 3, np.float32)
sys.stdout.buffer.write(pickle.dumps((np.asarray(function(x, y, 2.0)), sent)))
"""


def test_a_function_of_jax_runs_where_it_arrives_and_goes_on() -> None:
    """JAX's GPUs need the Program itself, which the pipeline has."""
    need_package("jax", "jax")
    from vyre_py.interop.jax import vyre_call

    sent = pickle.dumps(vyre_call(PROGRAM))
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", FRESH_CALL], input=sent, capture_output=True, env=child_environment(), check=False)
        assert done.returncode == 0, done.stderr.decode()
        result, sent = pickle.loads(done.stdout)
        assert result.tolist() == [[5, 5]] * 4


def test_equal_things_have_equal_tokens() -> None:
    places = parse("\n\n" + str(PROGRAM))
    assert places == PROGRAM and places.__dask_tokenize__() == PROGRAM.__dask_tokenize__()
    assert vp.DispatchConfig(timeout=1).__dask_tokenize__() == vp.DispatchConfig(timeout=1.0).__dask_tokenize__()
    assert vp.CompileOptions(opt=1).__dask_tokenize__() != vp.CompileOptions(opt=2).__dask_tokenize__() != vp.CompileOptions().__dask_tokenize__()
    tokens = {type_.__dask_tokenize__() for type_ in TYPES.values()}
    assert len(tokens) == len(TYPES)
    with pytest.raises(TypeError, match="belongs to this process"):
        vp.DispatchConfig(on_print=print).__dask_tokenize__()


def test_a_program_keeps_its_names_and_places() -> None:
    again = pickle.loads(pickle.dumps(PROGRAM))
    assert again == PROGRAM and str(again) == str(PROGRAM) and list(map(str, again.places)) == list(map(str, PROGRAM.places))


@pytest.mark.parametrize("type_", TYPES.values(), ids=str)
def test_there_is_one_object_for_each_type(type_: Type) -> None:
    assert pickle.loads(pickle.dumps(type_)) is type_ and copy.copy(type_) is type_ and copy.deepcopy(type_) is type_


# As FRESH, of a list. One object stands for each type there, too.
FRESH_TILES = """
import pickle, sys
objects = pickle.load(sys.stdin.buffer)
tokens = [thing.__dask_tokenize__() for thing in objects]
for thing in objects:
    assert pickle.loads(pickle.dumps(thing)) == thing
    if hasattr(thing, "body"):
        assert thing.of_tiles and pickle.loads(pickle.dumps(thing)).body[0].result.type is thing.body[0].result.type
sys.stdout.buffer.write(pickle.dumps((tokens, objects)))
"""


def test_tiles_are_equal_after_a_fresh_process() -> None:
    things = [*tile_programs(), *[tile_of(type_, shape) for type_ in (f32, f16) for shape in ((4,), (4, 6), (4, 6, 1))]]
    done = subprocess.run([sys.executable, "-c", FRESH_TILES], input=pickle.dumps(things), capture_output=True, env=child_environment(), check=False)
    assert done.returncode == 0, done.stderr.decode()
    tokens, again = pickle.loads(done.stdout)
    assert again == things
    assert tokens == [thing.__dask_tokenize__() for thing in things] and len(set(tokens)) == len(things)
    for program, other in zip(tile_programs(), again, strict=False):
        check(other)
        assert [s.result and s.result.type for s in other.body] == [s.result and s.result.type for s in program.body]
        assert list(map(str, other.places)) == list(map(str, program.places)) and other.value_names == program.value_names


@pytest.mark.parametrize("shape", [(1,), (4, 6), (1, 1, 131072), (0,), (1 << 40,) * 5], ids=str)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_there_is_one_object_for_each_type_of_tiles(shape: tuple[int, ...], protocol: int) -> None:
    type_ = tile_of(f32, shape)
    assert pickle.loads(pickle.dumps(type_, protocol)) is type_ and copy.copy(type_) is type_ and copy.deepcopy(type_) is type_
    named = {arg.split(" ", 1)[0] for op, arg, _ in pickletools.genops(pickle.dumps(type_, 3)) if op.name == "GLOBAL"}
    assert named <= {"builtins", "operator", "vyre_py"}


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


def _renewed(error: VyreError) -> tuple[VyreError, ...]:
    return pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)


def test_each_public_class_of_errors_is_tried() -> None:
    classes = {thing for name in vp.__all__ if isinstance(thing := getattr(vp, name), type) and issubclass(thing, VyreError)}
    assert classes == {type(error) for error in ERRORS}


@pytest.mark.parametrize("number", range(len(ERRORS)), ids=[type(error).__name__ for error in ERRORS])
def test_an_error_is_equal_where_it_arrives(number: int) -> None:
    error = copy.deepcopy(ERRORS[number])  # a shallow copy has the same list of notes
    for again in _renewed(error):
        assert again is not error and again == error and hash(again) == hash(error) and len({again, error}) == 1
    others = [other for place, other in enumerate(ERRORS) if place != number]
    assert error not in others and error != str(error)
    noted, changed = copy.deepcopy(error), copy.deepcopy(error)
    before = hash(noted)
    noted.add_note("one more")
    changed.field = 1  # type: ignore[attr-defined]  # any field
    assert error not in (noted, changed) and hash(noted) == hash(changed) == before


def test_errors_with_a_nan_or_of_a_module_of_ours_are_equal_too() -> None:
    failed = KernelAssertion("axpy", "cpu:0", "x is nan", (float("nan"), (1.0, float("nan"))), (1, 0, 0), (0, 0, 0), (1, 0, 0), None)
    with pytest.raises(vp.ValidationError) as caught, vp.ProgramBuilder("odd") as b:
        _ = b.param("v", vp.f32x2).nothing
    assert type(caught.value) is not vp.ValidationError
    for error in (failed, caught.value):
        for again in _renewed(error):
            assert again == error == again and hash(again) == hash(error)
    assert LaunchError("no") == LaunchError("no") != LaunchError("yes") and LaunchError("no") != DriverError("no")


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_stays_is_refused_with_the_cure(how: Callable[[Any], Any], staying: dict[str, Any]) -> None:
    for name, thing in staying.items():
        if isinstance(thing, Contained) and how is not pickle.dumps:
            assert how(thing) is thing
            continue
        with pytest.raises(TypeError, match=r"(belongs to .*|is a piece of .*): (send|make|record) ") as caught:
            how(thing)
        assert "\n" not in str(caught.value) and str(caught.value).startswith(("a ", "an ")), name
