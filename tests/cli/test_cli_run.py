"""The commands that compile and run: `compile`, `run`, `bench`, and what they read and write."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import ml_dtypes
import numpy as np
import pytest
from axpy import TEXT as AXPY
from children import child_environment
from command_line import said, told
from device_kinds import need_nvdisasm, need_nvjitlink, open_device

import vyre_py as vp
from vyre_py.__main__ import main
from vyre_py.cli import values
from vyre_py.cli.output import CommandError
from vyre_py.drivers.observe import rounds
from vyre_py.ir.language.nodes import Access, Memory, Param, Space
from vyre_py.ir.language.types import TYPES, encode
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.artifact.parts import Interface
from vyre_py.lowering.llvm.gpu.machine_code import nvjitlink
from vyre_py.tuning import roof

COUNT = "program count(n) workgroup(64) {\n  buffer out: u32[n] write\n  let i = global_id.x\n  out[i] = i * i\n}\n"
LOOPS = """program loops(n) workgroup(64) {
  buffer x: f32[n] read_write
  let i = global_id.x
  for k in 0..i {
    x[i] = x[i] * 2.0
  }
}
"""
WRONG = AXPY.replace("a * x[i]", "n * x[i]")
RUN = ("run", "axpy.vir", "--device", "reference")
ODD = 'b\x1b[31m\u202e"\n='  # an escape, a turn of the writing's direction, the end of a line


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with Programs, and a disk cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path / "cache"))
    Path("axpy.vir").write_text(AXPY, encoding="utf-8")
    Path("count.vir").write_text(COUNT, encoding="utf-8")
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a wrong command line is told."""
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    assert stopped.value.code == 2
    return capsys.readouterr().err


# ---------------------------------------------------------------- run


def test_run_shows_results(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, *RUN, "a=2", "x=1,2,3", "y=[10, 20, 30.5]")
    digest = hashlib.sha256(np.array([12, 24, 36.5], np.float32).tobytes()).hexdigest()
    assert (status, out, err) == (0, f"y: f32 [3]  12.0 24.0 36.5  sha256 {digest[:16]}\n", "")


def test_a_program_that_asserts_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    text = 'program tell(n) {\n  buffer x: f32[n] read\n  buffer y: f32[n] write\n  let i = global_id.x\n  print "\\u{1b}at {}", i\n  y[i] = x[i]\n'
    Path("tell.vir").write_text(text + '  assert x[i] < 2.0, "{} is {}", i, vec2(x[i], x[i] / 0.0)\n}\n', encoding="utf-8")
    for device in ("reference", "cpu"):
        given = ("run", "tell.vir", "--device", device, "x=1,2")
        status, out, err = said(capsys, *given)
        assert (status, out) == (1, "\ufffdat 0\n\ufffdat 1\n") and "tell.vir:7:3" in err and "1 is (2.0, inf)" in err
        status, out, err = said(capsys, *given, "--json")
        assert status == 1 and err.startswith("\ufffdat 0\n\ufffdat 1\nvyre-py: an assert of")
        assert json.loads(out)["error"]["assert"] == {
            "message": "1 is (2.0, inf)", "values": [1, [2.0, "inf"]], "global_id": [1, 0, 0], "workgroup_id": [0, 0, 0], "local_id": [1, 0, 0],
            "where": "tell.vir:7:3",
        }  # fmt: skip
        status, out, err = said(capsys, *given, "--no-asserts", "--print-bytes", "0")
        assert (status, err) == (0, "") and out.startswith("y: f32 [2]  1.0 2.0  sha256")
    status, out, err = said(capsys, "bench", "tell.vir", "--device", "cpu", "--repeat", "1", "n=4")
    assert status == 0 and "\ufffdat" not in out


def test_run_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    report = told(capsys, *RUN, "a=inf", "x=1,0,-1", "y=0,0,0", "--time")
    assert {name: report[name] for name in ("program", "device", "numerics")} == {"program": "axpy", "device": "reference:0", "numerics": "strict"}
    (result,) = report["results"]
    digest = result.pop("sha256")
    assert result == {"name": "y", "type": "f32", "dtype": "float32", "shape": [3], "first": ["inf", "nan", "-inf"]} and len(digest) == 64
    assert set(report["time"]) == {"wall_ns", "enqueue_ns", "wait_ns", "device_ns"} and report["stages"]


def test_words_and_options_come_in_any_order(capsys: pytest.CaptureFixture[str]) -> None:
    orders = (
        ("run", "--device", "reference", "axpy.vir", "a=2", "x=1", "y=1"), ("run", "axpy.vir", "a=2", "--device", "reference", "x=1", "y=1"),
        ("run", "axpy.vir", "--device", "reference", "a=2", "--opt", "0", "x=1", "--time", "y=1"),
    )  # fmt: skip
    assert {said(capsys, *order)[1].splitlines()[0].split("sha256")[0] for order in orders} == {"y: f32 [1]  3.0  "}


def test_what_is_only_written_is_made_from_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    (result,) = told(capsys, "run", "count.vir", "n=1000", "--device", "reference")["results"]
    assert result["shape"] == [1000] and result["first"] == [k * k for k in range(8)]
    assert "0 1 4 9 16 25 36 49 ...  sha256" in said(capsys, "run", "count.vir", "n=1000", "--device", "reference")[1]


def test_arrays_come_from_files_and_go_into_files(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = np.linspace(0, 1, 100, dtype=np.float32), np.ones(100, np.float32)
    np.save("x.npy", x)
    np.savez_compressed("all.npz", y=y, a=np.float64(0.1))
    status, out, err = said(capsys, *RUN, "x=@x.npy", "@all.npz", "--out", "y=result.npy", "--out", "results.npz")
    assert (status, err) == (0, "") and "y: f32 [100]" in out
    expected = np.float32(0.1) * x + y
    np.testing.assert_array_equal(np.load("result.npy", allow_pickle=False), expected)
    with np.load("results.npz", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["y"], expected)
    assert said(capsys, *RUN, "x=@x.npy", "a=0.1", "@results.npz")[0] == 0  # results are arguments again


def test_files_hold_the_bits_of_types_that_numpy_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    text = "program p(n) workgroup(64) {{\n  buffer x: {0}[n] read\n  buffer y: {0}[n] write\n  y[global_id.x] = x[global_id.x]\n}}"
    for type_ in (vp.f8e4m3, vp.f8e5m2):
        Path("p.vir").write_text(text.format(type_), encoding="utf-8")
        words = ("run", "p.vir", "--device", "reference")
        assert told(capsys, *words, "x=1.5,-448", "--out", "y=x.npy")["results"][0]["first"] == [1.5, -448]
        assert told(capsys, *words, "x=@x.npy", "--out", "r.npz")["results"][0]["first"] == [1.5, -448]
        assert np.load("r.npz")["y"].view(type_.dtype).tolist() == [1.5, -448]


def test_vectors_bools_sizes_and_small_floats(capsys: pytest.CaptureFixture[str]) -> None:
    text = """program p(n, m) workgroup(64) over(n, m) {
      param v: f32x3
      param on: bool
      buffer x: f32x3[n] read
      buffer w: bf16[m, n] read_write
      buffer out: bool[n] write
      let i = global_id.x
      w[0, i] = cast(x[i].y + v.z, bf16)
      out[i] = on
    }"""
    Path("p.vir").write_text(text, encoding="utf-8")
    np.save("w.npy", np.full((2, 2), 7, ml_dtypes.bfloat16))  # whose type NumPy's files do not know
    np.save("m.npy", np.int64(2))
    words = ("v=1,2,0.5", "on=true", "x=1,2,3,4,5,6", "w=@w.npy", "m=@m.npy", "n=2")
    first, second = told(capsys, "run", "p.vir", "--device", "reference", *words, "--out", "w=w2.npy")["results"]
    assert first["first"] == [2.5, 5.5, 7, 7] and first["shape"] == [2, 2] and second["first"] == [True, True]
    np.testing.assert_array_equal(np.load("w2.npy", allow_pickle=False).view(ml_dtypes.bfloat16), np.array([[2.5, 5.5], [7, 7]], ml_dtypes.bfloat16))


def interface(*params: str) -> Interface:
    return Interface("p", (), tuple(Param(f"p{k}", TYPES[name]) for k, name in enumerate(params)), ())


@pytest.mark.parametrize(
    ("type_", "text", "bits"),
    [
        ("f32", "0.1", 0x3DCCCCCD), ("f32", "1e-45", 1), ("f32", "-0", 1 << 31), ("f32", "7", encode(vp.f32, 7)), ("f32", "-inf", 0xFF800000),
        ("f32", "nan", 0x7FC00000), ("f32", "f32:0x7f800001", 0x7F800001), ("f32", "16777217", 0x4B800000), ("f64", "0.1", 0x3FB999999999999A),
        ("f16", "0.1", 0x2E66), ("bf16", "0.1", 0x3DCD), ("u64", "18446744073709551615", (1 << 64) - 1), ("i8", "-128", 0x80), ("u8", "0xff", 255),
        ("bool", "true", 1), ("i64", "-9223372036854775808", 1 << 63), ("f32", "1.000000059604644775390625", 0x3F800000),
        ("f32", "1.000000059604644775390626", 0x3F800001),
    ],
)  # fmt: skip
def test_scalars_are_exactly_of_their_type(type_: str, text: str, bits: int) -> None:
    found = values.parse_arguments(interface(type_), [values.given(f"p0={text}")])["p0"]
    assert found.dtype == TYPES[type_].dtype
    assert int(np.asarray(found).view(f"u{found.dtype.itemsize}")) == bits


@pytest.mark.parametrize(
    ("type_", "text", "why"),
    [
        ("f32", "1e39", "beyond f32"), ("u8", "256", "does not fit u8"), ("u8", "-1", "does not fit"), ("i32", "1.5", "is a float"),
        ("f32", "", "'' is not a valid f32"), ("f32", "1" * 500, "500 characters"), ("f32", "0x10", "is an integer"), ("f32", "x", "is not a valid f32"),
        ("f32", "f32:0x100000000", "is not a valid f32"), ("f32x2", "1,true", "is not a valid f32"), ("f32", "\x1b[2J", r"\x1b[2J"),
        ("f32", "1_0", "is not a valid f32"),
        ("f32", "\u0661", "is not a valid f32"), ("f32", "f64:0x0", "is not a valid f32"), ("bool", "1", "is not a valid bool"),
    ],
)  # fmt: skip
def test_what_is_no_scalar_is_told(type_: str, text: str, why: str) -> None:
    with pytest.raises(CommandError, match="param p0") as error:
        values.parse_arguments(interface(type_), [values.given(f"p0={text}")])
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("a=1", "a=2"), "'a' is given twice"), (("z=1",), "there is no argument 'z'; there are n, a, x, y"), (("x=@none.npy",), "none.npy: No such"),
        (("x=@axpy.vir",), "axpy.vir: "), (("x=@all.npz",), "give it by itself, as @all.npz"), (("@x.npy",), "x.npy: "),
        (("@x2.npz",), "there is no argument 'b"),
        (("x=@objects.npy",), "objects.npy: "), (("@objects.npz",), "not a whole array"), (("x=@.",), "Is a directory"), (("n=-1",), "is not a whole number"),
        (("n=1.5",), "is not a whole number"), (("x=1,two",), "'two' is not a valid f32"), (("a=1", "x=@text.npy", "y=1"), "holds no numbers"),
        (("a=1", "x=1,2", "y=1"), "dim 'n' is 2"), (("a=1", "x=@wide.npy", "y=1"), "needs elements of f32"), (("x=1", "y=1"), "param 'a' (f32) is missing"),
        (("a=1", "n=5", "x=@huge.npy"), "huge.npy: "), (("@huge.npz",), "not a whole array"), (("a=1", "x=1"), "buffer 'y'"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.ones(3, np.float32))
    np.save("wide.npy", np.ones(1))
    np.save("text.npy", np.array(["one"]))
    np.savez("all.npz", x=np.ones(3, np.float32))
    np.savez("x2.npz", **{ODD: np.ones(3, np.float32)})
    Path("objects.npy").write_bytes(objects())
    with zipfile.ZipFile("objects.npz", "w") as archive:
        archive.writestr("x.npy", objects())
    with zipfile.ZipFile("huge.npz", "w") as archive:
        archive.writestr("x.npy", huge())
    Path("huge.npy").write_bytes(huge())
    status, out, err = said(capsys, *RUN, *words)
    assert (status, out) == (1, "") and err.startswith("vyre-py: ") and why in err and "\x1b" not in err


def objects() -> bytes:
    """An array of Python objects, which only running code could read."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    return file.getvalue() + b"cos\nsystem\n"


def huge() -> bytes:
    """The head of an array of 4 TiB, and four bytes of it."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)})
    return file.getvalue() + b"\0\0\0\0"


def test_words_that_say_nothing_are_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    options = (("--out", "y"), ("--out", "=y.npy"), ("--workgroup", "8,x"), ("--workgroup", "1,2,3,4"), ("--numerics", "loose"), ("--nothing",))
    for words in (("foo",), ("=1",), ("@",), *options):
        assert "usage" in refused(capsys, *RUN, *words)
    assert "'foo' is not name=value" in refused(capsys, *RUN, "--time", "foo")  # behind an option as well
    assert "'z' is not a result; there are y" in said(capsys, *RUN, "a=1", "x=1", "y=1", "--out", "z=z.npy")[2]


def test_results_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    for out in ("y=none/y.npy", "none/y.npz", "y=."):
        status, _, err = said(capsys, *RUN, "a=1", "x=1", "y=1", "--out", out)
        assert status == 1 and err.startswith("vyre-py: ")


def test_names_of_anybody_reach_no_terminal_and_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    names = [ODD, "../../up", "file", ".", "a/b\\c", "100%"]
    program = parse("program p(n) {\nbuffer o: f32[n] write\no[global_id.x] = 1.0\n}")
    memories = [{"name": name, "space": "buffer", "type": "f32", "shape": ["n"], "access": "write"} for name in names]
    stores = len(names)
    odd = vp.Program.from_nodes(
        ODD, dims=["n"], memories=memories, codes=["global_id.x", *["store"] * stores], types=["u32", *[0] * stores], refs=[0, *range(stores)],
        operands=[0, 1] * stores, offsets=[0, *range(0, 2 * stores + 1, 2)], constant_types=["f32"], constant_bits=[0x3F800000],
    )  # fmt: skip
    assert odd != program
    Path("odd.bin").write_bytes(odd.to_bytes())
    for arguments in (
        ("run", "odd.bin", "n=2", "--device", "reference", "--out", "out.npz"), ("run", "odd.bin", "--device", "reference"), ("check", "odd.bin"),
        ("compile", "odd.bin", "--target", "wgsl", "-o", "odd.vyre"), ("bench", "odd.bin", "n=2", "--device", "reference", "--repeat", "1"),
        ("bench", "odd.bin", "--device", "reference"), ("lower", "odd.bin", "--emit", "vir"), ("lower", "odd.bin", "--emit", "ptx"),
        ("run", "odd.bin", "n=2", "--device", "reference", "--json"), ("check", "odd.bin", "--json"), ("run", "odd.bin", "--json", "--device", "reference"),
    ):  # fmt: skip
        _, out, err = said(capsys, *arguments)
        assert all(c.isprintable() or c in "\n\t" for c in out + err), arguments
    with zipfile.ZipFile("out.npz") as archive:
        members = archive.namelist()
    assert len(members) == len(names) and not any(set("/\\\x1b\n") & set(member) for member in members) and all(m.strip(".npy") for m in members)
    interface_ = Interface("p", (), (), tuple(Memory(name, Space.BUFFER, vp.f32, (), Access.WRITE) for name in names))
    assert set(values.parse_arguments(interface_, [values.given("@out.npz")])) == set(names)


def test_names_of_anybody_are_escaped_in_errors() -> None:
    size, scalar = f"{ODD} size", f"{ODD} scalar"
    memory = {"name": ODD, "space": "buffer", "type": "u32", "shape": [size], "access": "read_write"}
    arrays: dict[str, Any] = {
        "name": ODD, "dims": [size], "params": [(scalar, "u32")], "memories": [memory], "codes": ["global_id.x", "load", "add", "store"],
        "types": ["u32", "u32", "u32", 0], "refs": [0] * 4, "operands": [0, 4, 2, 0, 8], "offsets": [0, 0, 1, 3, 5],
    }  # fmt: skip
    program = vp.Program.from_nodes(**arrays)
    pipeline = open_device("reference").compile_native(program)
    texts = [repr(program), str(program), repr(pipeline), str(pipeline.artifact)]
    zeros = np.zeros(3, np.uint32)
    fits: dict[str, Any] = {ODD: zeros, scalar: 1}
    configs = [{"config": vp.DispatchConfig(fixpoint="x")}, {"config": vp.DispatchConfig(max_output_bytes=1)}, {"out": {"\x1b": zeros}}, {"\x1b": 1}]
    calls = [(fits, more) for more in configs] + [(given, {}) for given in ({}, {"\x1b": 1}, {ODD: np.zeros((3, 2)), scalar: -1}, {**fits, size: 4}, [1, 2, 3])]
    for arguments, more in calls:
        with pytest.raises(vp.VyreError) as error:
            pipeline.dispatch(arguments, **more)
        texts.append(str(error.value))
    for broken in ({"memories": [memory | {"access": "read"}]}, {"types": ["u32", "u32", "f32", 0]}):
        with pytest.raises(vp.ValidationError) as error:
            vp.check(vp.Program.from_nodes(**{**arrays, **broken}))
        texts.append(str(error.value))
    assert [text for text in texts if not all(c.isprintable() or c == "\n" for c in text)] == []


# ---------------------------------------------------------------- Programs by content


def test_programs_by_content(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse(AXPY)
    forms = {"p.txt": AXPY.encode(), "p.bin": program.to_bytes(), "p.vir": b" \n" + program.to_json().encode()}
    for name, data in forms.items():
        Path(name).write_bytes(data)
        assert said(capsys, "check", name) == (0, f"{name}: program axpy is valid\n", "")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert told(capsys, "run", "-", "--device", "reference", "a=1", "x=1", "y=1")["results"][0]["first"] == [2.0]
    Path("cut.bin").write_bytes(program.to_bytes()[:-1])
    status, out, _ = said(capsys, "check", "cut.bin")
    assert status == 1 and out.startswith("W1") and "  cut.bin, at byte" in out
    Path("bad.json").write_text('{"vyre": 1, "name": 7}', encoding="utf-8")
    report = json.loads(said(capsys, "check", "--json", "cut.bin", "bad.json", "axpy.vir")[1])
    assert [file["valid"] for file in report["files"]] == [False, False, True]
    assert report["files"][1]["diagnostics"][0]["file"] == "bad.json" and report["files"][1]["diagnostics"][0]["where"] is not None


# ---------------------------------------------------------------- compile


def test_compile_writes_an_artifact_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, "compile", "axpy.vir", "--target", "wgsl", "--target", "cpu", "--target", "compute_90")
    assert (status, err) == (0, "") and out.startswith("axpy.vyre: program axpy, ")
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["wgsl", "cpu", "compute_90"] and "optimise" in out
    assert vp.Artifact.load("axpy.vyre").targets == ("wgsl", "cpu", "compute_90")
    (result,) = told(capsys, "run", "axpy.vyre", "--device", "cpu", "a=2", "x=1,2", "y=1,1")["results"]
    assert result["first"] == [3.0, 5.0]
    assert "compiled already" in said(capsys, "run", "axpy.vyre", "--device", "cpu", "a=2", "--opt", "0")[2]
    err = said(capsys, "run", "axpy.vyre", "--device", "reference", "a=2")[2]
    assert all(target in err for target in ("wgsl", "cpu", "compute_90"))  # what is inside
    assert said(capsys, "check", "axpy.vyre") == (0, "axpy.vyre: compiled code of program axpy for wgsl, cpu, compute_90 is whole\n", "")
    Path("cut.vyre").write_bytes(Path("axpy.vyre").read_bytes()[:-1])
    status, out, err = said(capsys, "check", "cut.vyre", "--json")
    assert status == 1 and "cut.vyre: " in json.loads(out)["files"][0]["error"] and "Traceback" not in err
    assert "ArtifactError" in said(capsys, "run", "cut.vyre", "--device", "cpu", "--json")[1]
    for command in (("lower", "axpy.vyre", "--emit", "ptx"), ("compile", "axpy.vyre", "--target", "cpu")):
        status, _, err = said(capsys, *command)
        assert status == 1 and "axpy.vyre: this is compiled code" in err


def test_compile_reports_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    (report,) = told(capsys, "compile", "axpy.vir", "--target", "wgsl", "--opt", "0", "--workgroup", "64", "-o", "out.vyre")["artifacts"]
    assert (report["file"], report["artifact"], report["program"], report["error"]) == ("axpy.vir", "out.vyre", "axpy", None)
    assert report["size_bytes"] == Path("out.vyre").stat().st_size and report["code_digest"] == parse(AXPY).code_digest.hex()
    (part,) = report["parts"]
    assert part["target"] == "wgsl" and part["images"][0]["format"] == "wgsl" and part["images"][0]["size_bytes"] > 0
    assert {"name", "depth", "elapsed_ns"} == set(part["stages"][0])
    assert vp.Artifact.load("out.vyre").parts[0].steps[0].workgroup == (64, 1, 1)


def test_compile_of_several_files_goes_on_after_one_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    Path("wrong.vir").write_text(WRONG, encoding="utf-8")
    status, out, err = said(capsys, "compile", "axpy.vir", "wrong.vir", "none.vir", "count.vir", "--target", "wgsl", "-o", "made/here")
    assert status == 1 and {path.name for path in Path("made/here").iterdir()} == {"axpy.vyre", "count.vyre"}
    assert [line.split(":")[0] for line in out.splitlines() if line[0] != " "] == ["made/here/axpy.vyre", "made/here/count.vyre"]
    assert "V201" in err and "wrong.vir:6:" in err and "none.vir: No such file" in err
    status, out, _ = said(capsys, "compile", "axpy.vir", "wrong.vir", "--target", "wgsl", "--json")
    good, bad = json.loads(out)["artifacts"]
    (finding,) = bad["error"]["diagnostics"]
    assert status == 1 and good["error"] is None and (finding["code"], finding["file"], finding["line"]) == ("V201", "wrong.vir", 6)


def test_compile_says_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--target" in refused(capsys, "compile", "axpy.vir")
    assert "would both become" in refused(capsys, "compile", "axpy.vir", "./axpy.vir", "--target", "wgsl")
    assert "-o" in refused(capsys, "compile", "-", "--target", "wgsl")
    strict = ("--target", "wgsl", "--numerics", "strict")
    for arguments, why in ((("--target", "sm_12"), "sm_12"), (("--target", "wgsl", "--opt", "9"), "opt=9"), (strict, "strict")):
        status, _, err = said(capsys, "compile", "axpy.vir", *arguments)
        assert status == 1 and why in err
    status, _, err = said(capsys, "compile", "axpy.vir", "--target", "wgsl", "-o", "axpy.vir/x.vyre")
    assert status == 1 and err.startswith("vyre-py: ")


# ---------------------------------------------------------------- lower


def test_a_cubin_is_never_printed_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "a cubin is not text" in refused(capsys, "lower", "axpy.vir", "--emit", "cubin")


def test_lower_emits_machine_code(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    need_nvjitlink()
    assert main(["lower", "axpy.vir", "--emit", "cubin", "--target", "sm_80", "-o", "axpy.cubin"]) == 0
    assert Path("axpy.cubin").read_bytes()[:4] == b"\x7fELF"
    command = [sys.executable, "-m", "vyre_py", "lower", "axpy.vir", "--emit", "cubin", "--target", "sm_80"]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, env=child_environment())
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout == Path("axpy.cubin").read_bytes()
    assert main(["lower", "axpy.vir", "--emit", "cubin", "--target", "compute_80"]) == 1
    assert b"gives no machine code" in capfdbinary.readouterr().err


def test_lower_emits_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    need_nvjitlink()
    need_nvdisasm()
    status, out, err = said(capsys, "lower", "axpy.vir", "--emit", "sass", "--lines")
    assert (status, err) == (0, "") and "EXIT" in out and "FMUL" in out and "axpy.vir" in out


def test_both_ways_to_ptx(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, "lower", "axpy.vir", "--emit", "nvvm", "--target", "compute_80")
    assert (status, err) == (0, "") and "!nvvm.annotations" in out and "!nvvmir.version" in out
    status, out, err = said(capsys, "lower", "axpy.vir", "--emit", "ptx", "--codegen", "nvvm")
    assert "Generated by NVIDIA NVVM" in out or (status == 1 and "pip install '.[cuda]' in a checkout" in err)  # where libNVVM is not here
    assert "LLVM NVPTX" in said(capsys, "lower", "axpy.vir", "--emit", "ptx")[1]
    assert ".loc" in said(capsys, "lower", "axpy.vir", "--emit", "ptx", "--debug")[1]
    assert "codegen='nvvm'" in said(capsys, "lower", "axpy.vir", "--emit", "wgsl", "--codegen", "nvvm")[2]


def test_compile_says_what_the_assembler_says(capsys: pytest.CaptureFixture[str]) -> None:
    need_nvjitlink()
    (report,) = told(capsys, "compile", "axpy.vir", "--target", "sm_90")["artifacts"]
    images = {image["format"]: image for image in report["parts"][0]["images"]}
    assert set(images) == {"cubin", "ptx"} and all(figures["registers"] > 0 for figures in images["cubin"]["resources"].values())
    assert "registers" in said(capsys, "compile", "axpy.vir", "--target", "sm_90")[1]
    text = "program t(n) workgroup(64) { buffer y: u32[n] write\n workgroup t: u32[64]\n"
    text += " t[63u32 - local_index] = 1u32\n barrier\n y[global_id.x] = t[local_index] }"
    Path("tile.vir").write_text(text, encoding="utf-8")
    (report,) = told(capsys, "compile", "tile.vir", "--target", "sm_90")["artifacts"]
    (figures,) = report["parts"][0]["images"][0]["resources"].values()
    assert figures["workgroup_bytes"] == report["parts"][0]["workgroup_bytes"] == 256
    assert "workgroup bytes 256" in said(capsys, "compile", "tile.vir", "--target", "sm_90")[1]


def test_lower_writes_into_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "lower", "axpy.vir", "--emit", "wgsl", "-o", "axpy.wgsl") == (0, "", "")
    assert Path("axpy.wgsl").read_text(encoding="utf-8") == said(capsys, "lower", "axpy.vir", "--emit", "wgsl")[1]
    assert "could not be written" in said(capsys, "lower", "axpy.vir", "--emit", "wgsl", "-o", "none/axpy.wgsl")[2]


# ---------------------------------------------------------------- bench


def test_bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(rounds, "_ROUND_NS", 1)
    report = told(capsys, "bench", "axpy.vir", "--device", "cpu", "a=2", "x=1,2,3", "--repeat", "5")
    assert (report["program"], report["device"], report["rounds"], report["launches_per_round"]) == ("axpy", "cpu:0", 5, 1)
    assert report["launch_ns"]["least"] <= report["launch_ns"]["median"] <= report["launch_ns"]["most"]
    assert [(b["name"], b["given"], b["size_bytes"]) for b in report["buffers"]] == [("x", True, 12), ("y", False, 12)]
    assert report["bytes_per_launch"] == 36 and math.isclose(report["bytes_per_second"], 36e9 / report["launch_ns"]["median"])
    assert {stage["name"] for stage in report["stages"]} >= {"load"}
    status, out, err = said(capsys, "bench", "axpy.vir", "--device", "cpu", "a=2", "n=100")
    assert (status, err) == (0, "") and "x: f32 [100] read, random" in out and "median of 9 rounds" in out


def test_bench_counts_what_a_program_does_and_sets_it_beside_the_roof(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_ROUND_NS", 1)
    monkeypatch.setattr(roof, "_ADDED", 1 << 10)
    monkeypatch.setattr(roof, "_INVOCATIONS", 256)
    monkeypatch.setattr(roof, "_TURNS", 4)
    report = told(capsys, "bench", "axpy.vir", "--device", "cpu", "a=2", "n=1000")
    median, its = report["launch_ns"]["median"], report["roof"]
    assert report["operations"] == {"f32": 2000} and report["operations_per_launch"] == 2000 and not report["operations_at_most"]
    assert math.isclose(report["operations_per_second"], 2000e9 / median) and its["missing"] == "" and "measured" in its["source"]
    least = max(12000 / its["bytes_per_second"], 2000 / its["operations_per_second"])
    assert math.isclose(its["share"], least * 1e9 / median)
    out = said(capsys, "bench", "axpy.vir", "--device", "cpu", "a=2", "n=1000", "--repeat", "1")[1]
    assert re.search(r"memory: .* a launch, .*B/s of .*B/s\n", out) and re.search(r"arithmetic: 2 kFLOP a launch, .* of .*FLOP/s \(f32\)\n", out)
    assert re.search(r"roof: \S+ % of what memory and arithmetic allow", out)

    # Of vectors and bools, too, arrays are made.
    text = "program v(n) over(n) { buffer x: f16x3[n] read\n buffer y: bool[n] write\n y[global_id.x] = x[global_id.x].x > 0.0f16 }"
    Path("vectors.vir").write_text(text, encoding="utf-8")
    assert [b["given"] for b in told(capsys, "bench", "vectors.vir", "--device", "cpu", "n=200000", "--repeat", "1")["buffers"]] == [False, False]

    out = said(capsys, "bench", "axpy.vir", "--device", "reference", "a=2", "n=100", "--repeat", "1")[1]
    assert "roof: reference:0 does not support a roof (there are no figures of the interpreter)" in out and "FLOP/s of" not in out
    Path("loop.vir").write_text(LOOPS, encoding="utf-8")
    report = told(capsys, "bench", "loop.vir", "--device", "cpu", "n=100", "--repeat", "1")
    assert report["operations_per_launch"] is report["operations_per_second"] is None and "only as it runs" in report["uncounted"]
    assert said(capsys, "compile", "axpy.vir", "--target", "cpu")[0] == 0
    assert "compiled code" in told(capsys, "bench", "axpy.vyre", "--device", "cpu", "a=2", "n=10", "--repeat", "1")["uncounted"]


MADE = """program made(n) over(n) {
    buffer x: T[n] read
    buffer y: T[n] read_write
    buffer i: u32[n] read
    buffer b: boolx2[n] read
    let k = global_id.x
    let here = cast(x[k], f32)
    let there = cast(y[k], f32)
    assert here >= -1.0f32 && here <= 1.0f32, "{} of x", here
    assert there >= -1.0f32 && there <= 1.0f32, "{} of y", there
    assert here != there, "{} is in x and y", here
    assert k < WRAP || cast(x[k - WRAP], f32) == here, "not again"
    assert i[k] == 0 && !b[k].x && !b[k].y, "index {}", i[k]
}
"""


@pytest.mark.parametrize(("type_", "size"), [("f8e4m3", 3), ("f8e5m2", 3), ("f16", 100), ("bf16", 100), ("f32", 300_000), ("f64", 100)])
def test_bench_makes_random_floats_and_other_zeros(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, type_: str, size: int) -> None:
    monkeypatch.setattr(rounds, "_ROUND_NS", 1)
    text = MADE.replace("T[n]", f"{type_}[n]").replace("WRAP", str((1 << 20) // 4))
    Path("made.vir").write_text(re.sub(r"cast\((.*), f32\)", r"\1", text) if type_ == "f32" else text, encoding="utf-8")
    bench = ("bench", "made.vir", "--device", "cpu", "--repeat", "1", f"n={size}")
    report = told(capsys, *bench)
    assert [(row["name"], row["made_of"]) for row in report["buffers"]] == [("x", "random"), ("y", "random"), ("i", "zeros"), ("b", "zeros")]
    assert "0.0 is in x and y" in said(capsys, *bench[:-1], "x=0,0", "y=0,0")[2]


def test_bench_draws_a_roofline(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_ROUND_NS", 1)
    monkeypatch.setattr(roof, "_ADDED", 1 << 10)
    Path("earlier.json").write_text(json.dumps(told(capsys, "bench", "axpy.vir", "--device", "cpu", "a=2", "n=1000")), encoding="utf-8")
    plot = ("bench", "axpy.vir", "--device", "cpu", "a=2", "n=100", "--repeat", "1", "--plot")
    assert said(capsys, *plot, "line.svg", "--beside", "earlier.json")[::2] == (0, "")
    words = [text.text for text in ET.parse("line.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("axpy") == 2 and sum(word.startswith("axpy: ") for word in words if word) == 2, words
    assert "operations a byte" in words and "operations a second" in words and any(word and word.endswith("TFLOP/s") and "GB/s, " in word for word in words)

    assert "--beside goes with --plot" in refused(capsys, "bench", "axpy.vir", "--beside", "earlier.json")
    wrong = (("no.json", None, "No such file"), ("bad.json", "{", "Expecting"), ("list.json", "[]", "is no report"), ("none.json", "{}", "another device"))
    for file, text, message in wrong:
        if text is not None:
            Path(file).write_text(text, encoding="utf-8")
        status, _, err = said(capsys, *plot, "line.png", "--beside", file)
        assert status == 1 and message in err and not Path("line.png").exists(), err
    assert "could not be written" in said(capsys, *plot, "none/line.svg")[2] and "could not be written" in said(capsys, *plot, "line.odd")[2]
    assert "it has no arithmetic" in said(capsys, "bench", "count.vir", "--device", "cpu", "n=100", "--repeat", "1", "--plot", "count.svg")[2]
    assert "no figures of the interpreter" in said(capsys, "bench", "axpy.vir", "--device", "reference", "a=2", "n=1", "--repeat", "1", "--plot", "x.svg")[2]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install '.[plot]' in a checkout" in said(capsys, *plot, "line.png")[2]


def test_bench_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    held = open_device("reference").telemetry.snapshot()["bytes_allocated"]
    assert "give n=1000" in said(capsys, "bench", "axpy.vir", "--device", "reference", "a=2")[2]
    assert "param 'a'" in said(capsys, "bench", "axpy.vir", "--device", "reference", "n=10")[2]
    status, out, err = said(capsys, "bench", "axpy.vir", "--device", "reference", "--json", "n=10")
    assert status == 1 and json.loads(out)["error"]["class"] == "BindingError" and "param 'a'" in err
    assert open_device("reference").telemetry.snapshot()["bytes_allocated"] == held


# ---------------------------------------------------------------- an NVIDIA GPU


def test_on_an_nvidia_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    device = open_device("cuda")
    x = np.linspace(0, 1, 10_007, dtype=np.float32)
    np.save("x.npy", x)
    targets = ["--target", device.target.arch.replace("sm_", "compute_"), "--target", "wgsl"]
    if nvjitlink.available():
        targets += ["--target", device.target.arch]
    assert said(capsys, "compile", "axpy.vir", *targets)[0] == 0
    expected = hashlib.sha256((np.float32(2) * x + x).tobytes()).hexdigest()
    for file in ("axpy.vir", "axpy.vyre"):
        report = told(capsys, "run", file, "--device", device.name, "a=2", "x=@x.npy", "y=@x.npy", "--time")
        assert report["results"][0]["sha256"] == expected and report["device"] == device.name, file
        assert report["time"]["device_ns"] > 0, report["time"]
    report = told(capsys, "bench", "axpy.vir", "--device", device.name, "a=2", "n=1000000")
    assert report["bytes_per_launch"] == 12_000_000 and report["launch_ns"]["median"] > 0, report
    assert report["operations_per_launch"] == 2_000_000 and "multiprocessors" in report["roof"]["source"] + report["roof"]["missing"], report["roof"]
    (found,) = [row for row in told(capsys, "doctor")["findings"] if row["name"] == device.name]
    assert found["status"] == "ok" and "self test right" in found["detail"], found


RACE = """program race(n) workgroup(64) {
  buffer x: f32[n] read_write
  workgroup w: f32[64]
  w[local_id.x] = x[global_id.x]
  x[global_id.x] = w[63 - local_id.x]
}
"""


def test_run_finds_a_missing_barrier(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VYRE_DEVICE", "cpu")
    Path("race.vir").write_text(RACE, encoding="utf-8")
    Path("mended.vir").write_text(RACE.replace("  x[global_id.x] =", "  barrier\n  x[global_id.x] ="), encoding="utf-8")
    status, out, err = said(capsys, "run", "race.vir", "--races", "x=1,2,3", "--out", "x=x.npy")
    assert (status, out, Path("x.npy").exists()) == (1, "", False)
    assert "R101 w[63]: invocation 0 of workgroup 0 reads it, invocation 63 writes it" in err
    assert "race.vir:5:20" in err and "race.vir:4:3" in err
    status, out, _ = said(capsys, "run", "race.vir", "--races", "--json", "x=1,2,3")
    found = json.loads(out)["error"]["diagnostics"]
    assert (status, [(d["code"], d["line"]) for d in found]) == (1, [("R101", 5), ("R101", 4)])
    assert said(capsys, "run", "race.vir", "x=1,2,3")[0] == 0
    status, out, err = said(capsys, "run", "mended.vir", "--races", "--json", "x=1,2,3")
    assert (status, err, json.loads(out)["device"]) == (0, "", "reference:0")


def test_run_looks_at_the_program_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    """The passes drop a load that nothing uses, and the race with it."""
    Path("race.vir").write_text(RACE.replace("  x[global_id.x] =", "  let unused =").replace("(64) {", "(64) over(n) {"), encoding="utf-8")
    status, _, err = said(capsys, "run", "race.vir", "--races", "x=1,2,3")
    assert (status, "R101 w[63]" in err) == (1, True)
    assert said(capsys, "run", "race.vir", "--races", "--opt", "2", "x=1,2,3")[0] == 0
    assert said(capsys, "compile", "race.vir", "--target", "reference")[0] == 0
    assert said(capsys, "run", "race.vyre", "--races", "x=1,2,3")[0] == 0


UNWRITTEN = """program difference(n) workgroup(64) {
  buffer x: f32[n] read
  buffer y: f32[n] write
  workgroup w: f32[65]
  w[local_id.x] = x[global_id.x]
  barrier
  y[global_id.x] = w[local_id.x + 1] - w[local_id.x]
}
"""


def test_run_finds_a_forgotten_store(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VYRE_DEVICE", "cpu")
    Path("forgot.vir").write_text(UNWRITTEN, encoding="utf-8")
    Path("racing.vir").write_text(UNWRITTEN.replace("  barrier\n", ""), encoding="utf-8")
    Path("mended.vir").write_text(UNWRITTEN.replace("  barrier\n", "  w[64] = 0.0\n  barrier\n"), encoding="utf-8")
    status, out, err = said(capsys, "run", "forgot.vir", "--unwritten", "x=1,2,3", "--out", "y=y.npy")
    assert (status, out, Path("y.npy").exists()) == (1, "", False)
    assert "R102 w[64]: invocation 63 of workgroup 0 reads it, and nothing has written it\n  forgot.vir:7:20" in err
    status, out, _ = said(capsys, "run", "forgot.vir", "--unwritten", "--races", "--json", "x=1,2,3")
    found = json.loads(out)["error"]["diagnostics"]
    assert (status, [(d["code"], d["line"]) for d in found]) == (1, [("R102", 7)])
    assert said(capsys, "run", "forgot.vir", "x=1,2,3")[0] == said(capsys, "run", "forgot.vir", "--races", "x=1,2,3")[0] == 0
    status, _, err = said(capsys, "run", "racing.vir", "--unwritten", "--races", "x=1,2,3")
    assert (status, "R101 w[" in err, "R102" in err) == (1, True, False)
    status, out, err = said(capsys, "run", "mended.vir", "--unwritten", "--races", "--json", "x=1,2,3")
    assert (status, err, json.loads(out)["device"]) == (0, "", "reference:0")


def test_only_the_reference_device_finds_races(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = said(capsys, "run", "axpy.vir", "--races", "--device", "cpu", "a=1", "x=1,2", "y=1,2")
    assert (status, "cpu:0 does not support dispatch option races" in err) == (1, True)
