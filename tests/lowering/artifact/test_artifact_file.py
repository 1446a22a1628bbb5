"""Artifact files: nothing is lost in them, loaded ones run, parts serve other Programs of the same code, older files are read, and files are whole."""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifacts import AXPY, FOLDER, FOUND_ANEW, compiled, full, offsets, plain, section_of
from children import child_environment
from device_kinds import KINDS, open_device
from filetest import Array, Case, devices_of, files, read_cases, run_program
from tree import ROOT

import vyre_py as vp
from vyre_py.ir.language.dims import Dim, DimExpr, DimOp
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import Optimised
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.artifact import file, form
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.file import decode_part, encode, encode_part
from vyre_py.lowering.artifact.parts import Aligned, Divisible, Entry, Image, Interface, Part, Step
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.errors import ArtifactError, Unsupported
from vyre_py.lowering.layout import Layout, Slot
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.reports import Form

_MIXED = """\
program {p}({n}, {m}) workgroup(32) {{
  param {v}: f32x3
  param {k}: u64
  buffer {x}: f32x2[{n}, {m}] read
  buffer {y}: i64[{m}] read_write
  table t: i32[2] = [3, 4]
  let i = global_id.x
  {y}[i] = {y}[i] + cast(t[i], i64) + cast({v}.x + {x}[0u32, i].y, i64) + bitcast({k}, i64)
}}
"""
MIXED = _MIXED.format(p="mixed", n="n", m="m", v="v", k="k", x="x", y="y")
# The same code, with other names: one of them is what the first component of the vector would be called.
OTHER = _MIXED.format(p="other", n="rows", m="n", v="w", k='"w.x"', x="z", y="y")


# ---------------------------------------------------------------- nothing is lost


def records(thing: Any) -> Iterator[Any]:
    """Every record in something."""
    if is_dataclass(thing) and not isinstance(thing, (type, Program)):
        yield thing
        for field in fields(thing):
            yield from records(getattr(thing, field.name))
    elif isinstance(thing, (list, tuple)):
        for item in thing:
            yield from records(item)


def test_every_field_survives() -> None:
    # A field that is added to a record and not to the file stays at its default in `full`, or is lost: either fails here.
    artifact = full()
    reference = compiled(MIXED, "reference", opt=2)
    said: dict[type, set[str]] = {}
    for record in [*records(artifact), *records(reference)]:
        for field in fields(record):
            value = getattr(record, field.name)
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            if default is MISSING or value != default:
                said.setdefault(type(record), set()).add(field.name)
    for kind in (Artifact, Interface, Form, Part, Step, Image, Entry, Aligned, Divisible, Layout, Slot, Optimised):
        silent = {field.name for field in fields(kind)} - said[kind] - {"stages", *FOUND_ANEW}
        assert not silent, f"no {kind.__name__} of the sample says anything of {silent}, so nothing shows that files keep it"
    for made in (artifact, reference):
        assert plain(Artifact.from_bytes(made.to_bytes())) == plain(made)


def sample(kind: str, every: int) -> list[Case]:
    return [case for path in files("run")[::every] if kind in devices_of(path, KINDS) for case in read_cases(path)[:2]]


@pytest.mark.parametrize(("target", "every"), [("reference", 6), ("wgsl", 6), ("compute_90", 15), ("sm_90", 30), ("cpu", 30)])
def test_artifacts_of_real_programs_survive(target: str, every: int) -> None:
    kind = {"compute_90": "cuda", "sm_90": "cuda", "wgsl": "wgpu"}.get(target, target)
    seen = 0
    for case in sample(kind, every):
        try:
            artifact = compiled(case.parse(), target)
        except Unsupported as error:
            if "nvJitLink" in str(error):
                pytest.skip(str(error))
            continue
        data = artifact.to_bytes()
        again = Artifact.from_bytes(data)
        assert plain(again) == plain(artifact), f"{case.path.name}:{case.line}"
        assert again.to_bytes() == data
        seen += 1
    assert seen > 3


def test_artifacts_are_equal_by_content() -> None:
    artifact = compiled(AXPY, "wgsl", "cpu")
    again = Artifact.from_bytes(artifact.to_bytes())
    assert again == artifact and hash(again) == hash(artifact) and len({again, artifact}) == 1
    other = replace(artifact, parts=artifact.parts[:1])
    assert other != artifact and artifact != artifact.to_bytes()
    unwritten = replace(artifact, code_digest=b"short")  # no file has a place for it
    assert unwritten == unwritten and unwritten != replace(artifact, code_digest=b"short") and hash(unwritten) == hash(unwritten)  # noqa: PLR0124 - the law


def test_options_survive() -> None:
    persistent = compiled(AXPY, "compute_90", persistent=True, interruptible=True)
    assert persistent.parts[0].steps[0].persistent and persistent.parts[0].steps[0].interruptible
    dependent = compiled(AXPY, "compute_90", dependent=True, numerics="fast")
    called = "program p(n) over(n) { param grid: f32x2\n buffer y: f32[n] write\n y[global_id.x] = grid.y }"
    indirect = compiled(called, "compute_90", indirect=True)
    assert indirect.parts[0].steps[0].indirect and indirect.parts[0].steps[0].layout.slots[-1].name == "grid'"
    for artifact in (persistent, indirect, dependent, compiled(AXPY, "reference", opt=0), compiled(AXPY, "reference", opt=1)):
        assert plain(Artifact.from_bytes(artifact.to_bytes())) == plain(artifact)


def test_many_targets_and_none_share_a_file() -> None:
    artifact = compiled(MIXED, "compute_75", "compute_90", "wgsl", "cpu", "reference")
    again = Artifact.from_bytes(artifact.to_bytes())
    assert again.targets == artifact.targets == ("compute_75", "compute_90", "wgsl", "cpu", "reference")
    assert plain(again) == plain(artifact)
    nothing = replace(artifact, parts=())
    assert Artifact.from_bytes(nothing.to_bytes()).parts == ()


def test_the_same_artifact_has_the_same_bytes() -> None:
    assert compiled(MIXED, "wgsl", "reference").to_bytes() == compiled(MIXED, "wgsl", "reference").to_bytes()


@pytest.mark.parametrize("name", ["日本語", "a b", 'q"uo\\te', "\x00\x1b[31m\n", "\U0001f600", "e\u0301", "\u202eabc", "x" * 256])
def test_any_name_survives(name: str) -> None:
    with vp.ProgramBuilder(name) as b:
        n, a = b.dim(f"{name[:-1]}n"), b.param(f"{name[:-1]}p", vp.f32x2)
        x, y = b.read(f"{name[:-1]}x", vp.f32, n), b.read_write(f"{name[:-1]}y", vp.f32, n)
        i = b.global_id(0)
        y[i] = a.x * x[i] + a.y
    artifact = compiled(b.program, "reference", "wgsl")
    again = Artifact.from_bytes(artifact.to_bytes())
    assert plain(again) == plain(artifact)
    assert again.describe().isprintable() or all(line.isprintable() for line in again.describe().split("\n"))


def test_surrogates_survive_but_not_in_regions_of_reference_parts() -> None:
    with vp.ProgramBuilder("\ud800") as b:
        y = b.write("\udfff", vp.f32, b.dim("n"))
        y[b.global_id(0)] = 1.0
    artifact = compiled(b.program, "wgsl", "reference")
    assert plain(Artifact.from_bytes(artifact.to_bytes())) == plain(artifact)
    with vp.ProgramBuilder("p") as b:
        y = b.write("y", vp.f32, b.dim("n"))
        with b.region("\ud800"):
            y[b.global_id(0)] = 1.0
    artifact = compiled(b.program, "wgsl")
    assert plain(Artifact.from_bytes(artifact.to_bytes())) == plain(artifact)
    with pytest.raises(ArtifactError, match="W108") as caught:
        compiled(b.program, "reference").to_bytes()
    assert caught.value.part == "part reference"


def test_names_of_values_are_rows_only_where_the_wire_form_has_no_place() -> None:
    with vp.ProgramBuilder("p") as b:
        y = b.write("y", vp.f32x2, b.dim("n"))
        v = vp.vec2(b.global_id(0), 1)
        y[b.global_id(0)] = vp.cast(v, vp.f32x2)
    (part,) = (artifact := compiled(b.program, "reference", opt=0)).parts
    program = part.steps[0].images[0].program
    few = replace(program, program=replace(program.program, value_names={0: "short", 1: "long" * 100, 2: "\ud800"}))
    step = replace(part.steps[0], images=(replace(part.steps[0].images[0], program=few),))
    artifact = replace(artifact, parts=(replace(part, steps=(step,)),))
    data = artifact.to_bytes()
    inside = section_of(data, "reference")[1]
    assert struct.unpack_from("<I", inside, offsets(form.PART, inside)["count names"]) == (2,)
    assert plain(Artifact.from_bytes(data)) == plain(artifact)


# ---------------------------------------------------------------- loaded ones run


def through_a_file(folder: Path) -> Callable[..., dict[str, Array]]:
    """Runs a Program on a device of a kind, by way of a file."""
    def run(
        kind: str, program: Program, arguments: Mapping[str, Any], opt: int = 3, config: vp.DispatchConfig | None = None, out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        device = open_device(kind)
        artifact = compile_for(program, [device.target], CompileOptions(opt=opt))
        artifact.save(folder / "program.vyre")
        result: dict[str, Array] = device.load(Artifact.load(folder / "program.vyre")).dispatch(arguments, out=out, config=config)
        return result

    return run


@pytest.mark.parametrize(("kind", "every"), [("reference", 9), ("cpu", 20), ("wgpu", 12), ("cuda", 5)])
def test_loaded_artifacts_run_right(kind: str, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_device(kind)
    monkeypatch.setattr("filetest.run_on", through_a_file(tmp_path))
    cases = sample(kind, every)
    assert len(cases) > 3
    for case in cases:
        run_program(case, kind)


def test_each_device_finds_its_part(tmp_path: Path) -> None:
    compiled(AXPY, "compute_90", "wgsl", "cpu", "reference").save(tmp_path / "axpy.vyre")
    artifact = vp.Artifact.load(str(tmp_path / "axpy.vyre"))
    x = np.arange(1000, dtype=np.float32)
    for kind in ("reference", "cpu"):
        out = open_device(kind).load(artifact).dispatch(x=x, y=np.ones_like(x), a=2.0)
        np.testing.assert_array_equal(out["y"], 2 * x + 1)


# ---------------------------------------------------------------- a part for another Program


@pytest.mark.parametrize("target", ["reference", "wgsl", "compute_90", "cpu:x86-64-v3"])
def test_a_part_serves_every_program_of_the_same_code(target: str) -> None:
    first, second = parse(MIXED), parse(OTHER)
    assert first.code_digest == second.code_digest and first.interface_digest != second.interface_digest
    mine, others = compiled(first, target), compiled(second, target)
    moved = decode_part(encode_part(mine.parts[0], mine.interface), others.interface)
    for slot, memory in zip(moved.steps[0].layout.buffers, others.interface.buffers, strict=True):
        assert slot.memory is memory or slot.type is not memory.type, "whole buffers are the interface's own"

    def bare(part: Part) -> Any:
        # Code may have the Program's name in it, and so may symbols.
        data = plain(part)
        for step in data["steps"]:
            step["images"] = [{**image, "code": ""} for image in step["images"]]
            step["entries"] = [{**entry, "symbol": ""} for entry in step["entries"]]
        return data

    assert bare(moved) == bare(others.parts[0])


@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_a_part_of_another_program_runs(kind: str) -> None:
    device = open_device(kind)
    mine = compile_for(parse(MIXED), [device.target])
    others = compile_for(parse(OTHER), [device.target])
    moved = replace(others, parts=(decode_part(encode_part(mine.parts[0], mine.interface), others.interface),))
    arguments = {"z": np.ones((2, 2, 2), np.float32), "y": np.array([1, 2], np.int64), "w": [5.0, 6.0, 7.0], "w.x": 1 << 40}
    out = device.load(Artifact.from_bytes(moved.to_bytes())).dispatch(arguments)
    np.testing.assert_array_equal(out["y"], np.array([1 + 3 + 6, 2 + 4 + 6]) + (1 << 40))


def test_own_arrays_make_room_for_names_of_another_program() -> None:
    text = """program p(n) workgroup(4) {{
      buffer {0}: u32[n] write
      workgroup {1}: u32[4]
      {1}[local_id.x] = 7
      barrier
      {0}[global_id.x] = {1}[local_id.x]
    }}"""
    mine, others = compiled(text.format("a", "b"), "reference"), compiled(text.format("b", "a"), "reference")
    moved = decode_part(encode_part(mine.parts[0], mine.interface), others.interface)
    program = moved.steps[0].images[0].program.program
    assert [memory.name for memory in program.memories] == ["b", "b'"]
    device = open_device("reference")
    assert device.load(replace(others, parts=(moved,))).dispatch({"b": np.zeros(4, np.uint32)})["b"].tolist() == [7] * 4


# ---------------------------------------------------------------- versions


@pytest.mark.parametrize("version", form.VERSIONS, ids=form.version_text)
@pytest.mark.parametrize("name", ["full", "axpy"])
def test_kept_files_are_read(name: str, version: tuple[int, int]) -> None:
    # Files that were written once and stay as they are: what is in them, every later version has to find there.
    name = f"{name}_{version[0]}_{version[1]}"
    data = (FOLDER / f"{name}.vyre").read_bytes()
    artifact = Artifact.load(data)
    assert plain(artifact) == json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert encode(artifact, version) == data
    assert plain(Artifact.from_bytes(artifact.to_bytes())) == plain(artifact)


def test_older_files_lack_what_came_later_and_nothing_else() -> None:
    oldest, older, newer, newest, last = (plain(Artifact.load(FOLDER / f"full_1_{minor}.vyre")) for minor in (0, 1, 2, 3, 4))
    step = last["parts"][0]["steps"][0]
    assert step["layout"]["slots"].pop()["kind"] == "boxes" and step["entries"][0]["needs"].pop()["most"] == 1 << 20
    step["layout"]["size_bytes"] = 104
    assert newest == last
    newest["capabilities"].remove("grid_scan")
    layout = newest["parts"][0]["steps"][0]["layout"]
    assert layout["slots"].pop()["kind"] == "scans"
    layout["size_bytes"] -= 8
    assert newer == newest
    newer["interface"]["reports"] = []
    (told,) = [slot for part in newer["parts"] for slot in part["steps"][0]["layout"]["slots"] if slot["kind"] == "report"]
    newer["parts"][0]["steps"][0]["layout"]["slots"].remove(told)
    assert older["parts"][0]["steps"][0]["layout"].pop("size_bytes") == newer["parts"][0]["steps"][0]["layout"].pop("size_bytes") - 12
    assert older == newer
    oldest["parts"][0]["steps"][0]["layout"].pop("size_bytes")
    for part in older["parts"]:
        for image in part["steps"][0]["images"]:
            image |= {"log": "", "resources": {}}
    assert oldest == older


def test_an_older_version_is_not_written_where_something_would_be_lost() -> None:
    for version, words in (((1, 0), r"reports, values have no place in format 1\.0"), ((1, 1), r"reports, values have no place in format 1\.1")):
        with pytest.raises(ArtifactError, match=words):
            encode(full(), version)
    with pytest.raises(ArtifactError, match=r"images has no place in format 1\.0"):
        encode(Artifact.load(FOLDER / "full_1_1.vyre"), (1, 0))


# ---------------------------------------------------------------- files


def test_saving_replaces_a_file_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.vyre"
    path.write_bytes(b"what was there")
    held = path.open("rb")
    artifact = compiled(AXPY, "wgsl")
    artifact.save(path)
    assert path.read_bytes() == artifact.to_bytes() and held.read() == b"what was there"
    held.close()
    assert [p.name for p in tmp_path.iterdir()] == ["a.vyre"]


@pytest.mark.skipif(os.name != "posix", reason="rights as POSIX has them")
def test_a_saved_file_has_the_rights_of_new_files(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"")
    compiled(AXPY, "wgsl").save(tmp_path / "a.vyre")
    assert stat.S_IMODE((tmp_path / "a.vyre").stat().st_mode) == stat.S_IMODE((tmp_path / "new").stat().st_mode)


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.vyre"
    path.write_bytes(b"old")

    def full_disk(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full_disk) if fails == "fsync" else monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(ArtifactError, match=r"cannot be written.*No space") as caught:
        compiled(AXPY, "wgsl").save(path)
    assert (caught.value.part, caught.value.path) == ("file", str(path))
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("where", ["missing/a.vyre", ".", "nul\0.vyre", "x" * 300])
def test_places_that_take_no_file(where: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be written") as caught:
        compiled(AXPY, "wgsl").save(tmp_path / where)
    assert caught.value.part == "file" and not list(tmp_path.iterdir())
    with pytest.raises(ArtifactError, match=r"cannot be read|regular") as caught:
        Artifact.load(tmp_path / where)
    assert caught.value.path == str(tmp_path / where)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArtifactError, match="not a regular file"):
        Artifact.load(tmp_path / "pipe")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.vyre"
    with path.open("wb") as file:
        file.truncate(form.MAX_BYTES + 1)
    with pytest.raises(ArtifactError, match=f"at most {form.MAX_BYTES}"):
        Artifact.load(path)


@pytest.mark.parametrize("source", [None, 7, ["a"], 1.5, memoryview(b"VYRE-ART" * 8)[::2], b"", b"VYRE-ART", b"\x7fELF"])
def test_what_is_no_artifact_is_refused(source: Any) -> None:
    with pytest.raises(ArtifactError):
        Artifact.load(source)


def test_bytes_of_every_kind_are_read(tmp_path: Path) -> None:
    artifact = compiled(AXPY, "wgsl")
    data = artifact.to_bytes()
    sources = (data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint32).data if len(data) % 4 == 0 else memoryview(data))
    assert all(plain(Artifact.load(source)) == plain(artifact) for source in sources)
    (tmp_path / "bad.vyre").write_bytes(data[:-1])
    with pytest.raises(ArtifactError, match=r"bad\.vyre") as caught:
        Artifact.load(tmp_path / "bad.vyre")
    assert caught.value.part == "header"


def test_what_the_file_has_no_place_for_is_refused() -> None:
    artifact = full()
    part, step = artifact.parts[0], artifact.parts[0].steps[0]

    def of(**changes: Any) -> Artifact:
        return replace(artifact, parts=(replace(part, steps=(replace(step, **changes),)),))

    def over(x: DimExpr) -> Artifact:
        return of(grid=replace(step.grid, extents=(x, *step.grid.extents[1:])))

    entry, n = step.entries[-1], step.grid.extents[0]
    labels = {f"n{k}": "" for k in range(form.MAX_ROWS + 1)}
    for wrong, words in (
        (replace(artifact, parts=(part, part)), "twice"),
        (replace(artifact, capabilities=frozenset({"telepathy"})), "telepathy"),
        (replace(artifact, code_digest=b""), "digests"),
        (replace(artifact, parts=(replace(part, steps=(step, step)),)), "2 steps"),
        (replace(artifact, parts=(replace(part, numerics="lucky"),)), "lucky"),
        (replace(artifact, parts=(replace(part, report={"n": 1 << 63}),)), "64 bits"),
        (of(images=()), "no image"),
        (of(images=(Image("spirv", b"x"),)), "format 0"),
        (of(entries=()), "any arguments"),
        (of(entries=(replace(entry, symbol="größe"),)), "symbol"),
        (of(entries=(replace(entry, needs=(Aligned("nobody", 4),)), entry)), "nobody"),
        (of(workgroup=(0, 1, 1)), "workgroup of 0"),
        (of(workgroup=(1 << 40, 1, 1)), "32 bits"),
        (of(layout=replace(step.layout, slots=step.layout.slots[1:])), "buffer"),
        (of(layout=replace(step.layout, wide=frozenset({"nobody"}))), "nobody"),
        (of(persistent=False), "persistent"),
        (over(Dim("nobody")), "the interface has no dim 'nobody'"),
        (over(reduce(partial(DimOp, "add"), [n] * 65)), "65 terms"),
        (replace(artifact, parts=(replace(part, made_by=labels),)), "at most 65536 are allowed"),
    ):
        with pytest.raises(ArtifactError, match=words):
            wrong.to_bytes()


def test_describe_says_what_is_inside() -> None:
    text = str(full())
    for words in (
        "for sm_90, wgsl:f64, cpu:x86-64-v3", "What it is\\nfor.", "param v: f32x2", '"y z" on a multiple of 16 bytes',
        "registers 40, spills 0", "made by LLVM 22.1.0, options opt=3", "sm_90: fast", "4 elements an invocation", "cubin: 9 bytes", "ptx: 12 bytes",
        "cooperative, persistent, dependent, streaming", "entry full: any arguments", "grid_barrier, grid_scan, int64",
    ):
        assert words in text, text
    assert all(line.isprintable() for line in text.split("\n"))
    assert "8 statements" not in text and "program:" in str(compiled(AXPY, "reference"))
    assert repr(full()) == "<Artifact 'full \\ud800\\n' for sm_90, wgsl:f64, cpu:x86-64-v3>"


def test_workgroup_memory_that_the_launch_gives_is_counted() -> None:
    artifact = compiled(MIXED, "compute_90")
    (part,) = artifact.parts
    (step,) = part.steps
    image = replace(step.images[0], resources={"vyre_mixed": {"registers": 9, "workgroup_bytes": 16}})
    step = replace(step, workgroup_bytes=60000, images=(image,))
    assert "vyre_mixed takes registers 9, workgroup_bytes 60016\n" in str(replace(artifact, parts=(replace(part, steps=(step,)),)))


# ---------------------------------------------------------------- without a compiler

_ALONE = """
import sys
import numpy as np, vyre_py as vp

x = np.arange(100, dtype=np.float32)
out = vp.device("cpu").load(vp.Artifact.load(sys.argv[1])).dispatch(x=x, y=x, a=3.0)
assert np.array_equal(out["y"], 4 * x)
needless = {"llvmlite", "json", "vyre_py.ir.language.ops", "vyre_py.ir.check.types", "vyre_py.ir.builder.expressions", "vyre_py.drivers.cache.disk"}
print(*needless & sys.modules.keys())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="LLVM loads code elsewhere")
def test_an_artifact_runs_without_what_builds_and_checks_programs(tmp_path: Path) -> None:
    compiled(AXPY, "cpu").save(tmp_path / "axpy.vyre")
    arguments = [sys.executable, "-c", _ALONE, str(tmp_path / "axpy.vyre")]
    assert subprocess.run(arguments, env=child_environment(), capture_output=True, text=True, check=True, timeout=60).stdout.split() == []


_WITHOUT = """
import sys
sys.modules["llvmlite"] = None
import numpy as np, vyre_py as vp
from vyre_py.lowering.artifact import reference_part

def never(*arguments):
    raise AssertionError("only the Program of a reference part is looked at")

checked, reference_part.check = reference_part.check, never
artifact = vp.Artifact.load(sys.argv[1])
assert artifact.targets == ("compute_90", "wgsl", "cpu")
artifact.describe()
artifact.save(sys.argv[1] + ".again")
reference_part.check = checked
artifact = vp.Artifact.load(sys.argv[2])
x = np.arange(100, dtype=np.float32)
out = vp.device("reference").load(artifact).dispatch(x=x, y=x, a=3.0)
assert np.array_equal(out["y"], 4 * x)
if sys.platform == "linux":
    out = vp.device("cpu").load(vp.Artifact.load(sys.argv[1])).dispatch(x=x, y=x, a=3.0)
    assert np.array_equal(out["y"], 4 * x)
assert "vyre_py.lowering.llvm.gpu.nvptx" not in sys.modules and "vyre_py.lowering.llvm.cpu.host" not in sys.modules
"""


def test_artifacts_need_no_compiler(tmp_path: Path) -> None:
    artifact = compiled(AXPY, "compute_90", "wgsl", "cpu")
    artifact.save(tmp_path / "machines.vyre")
    compiled(AXPY, "reference").save(tmp_path / "reference.vyre")
    arguments = [sys.executable, "-c", _WITHOUT, str(tmp_path / "machines.vyre"), str(tmp_path / "reference.vyre")]
    done = subprocess.run(arguments, check=False, cwd=ROOT, env=child_environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "machines.vyre.again").read_bytes() == artifact.to_bytes()


def test_encoding_reads_what_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    decode = file.decode
    monkeypatch.setattr(file, "decode", lambda data: seen.append(len(data)) or decode(data))
    assert seen == [] and len(compiled(AXPY, "wgsl").to_bytes()) in seen


def test_what_could_not_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = full()
    with pytest.raises(ArtifactError, match="65 sections, at most 64 are allowed"):
        encode(replace(artifact, parts=artifact.parts[:1] * 64))
    monkeypatch.setattr(form.FILE, "limit_bytes", 1)
    with pytest.raises(ArtifactError, match="at most 1 are written"):
        encode(artifact)
