"""Blocks of pages that are no Python: commands, C and JavaScript run as they stand, and what a command is shown to say it says."""

from __future__ import annotations

import ctypes
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from command_line import said
from compilers import compile_c
from device_kinds import need_program, open_device
from site_pages import Block, blocks, pages
from tree import ROOT

import vyre_py as vp
from vyre_py.cli import doctor

FIRST = list(blocks(ROOT / "docs" / "start" / "first-program.md"))
AXPY = next(block.body for block in FIRST if block.body.startswith("program axpy"))
BUILD = next(block.body for block in FIRST if block.language == "python")
# The guide's Programs that do wrong: each begins with its file's name.
WRONG = list(blocks(ROOT / "docs" / "guide" / "when-something-is-wrong.md"))
FILES = {block.body.split(maxsplit=2)[1]: block.body for block in WRONG if block.body.startswith("// ")}
C_PAGES = {"drivers/C_ABI.md": 2, "docs/guide/other-libraries.md": 1}
JAVASCRIPT = ROOT / "drivers" / "wgpu" / "README.md"


def shown(language: str) -> list[tuple[str, Block]]:
    return [(page.relative_to(ROOT).as_posix(), block) for page in pages() for block in blocks(page) if block.language == language]


def commands() -> list[tuple[str, str]]:
    return [(page, line) for page, block in shown("sh") for line in block.body.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that pages name, and it is where commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor, "PROBES", {name: doctor.PROBES[name] for name in ("cpu", "reference")})  # the others have tests of their own
    for name, text in {"axpy.vir": AXPY, "build.py": BUILD, "trace.json": "[]", **FILES}.items():
        (tmp_path / name).write_text(text, "utf-8")
    np.save(tmp_path / "x.npy", np.ones(64, np.float32))
    return tmp_path


def test_blocks_are_of_languages_that_are_looked_at() -> None:
    """Python: `test_site.py` and what it names. Blocks without a language, and text, are Programs, diagnostics, signatures, and commands with what they say."""
    found = {block.language for page in pages() for block in blocks(page)}
    assert found == {"", "text", "python", "{toctree}", "sh", "c", "js"}
    assert {page for page, _ in shown("js")} == {JAVASCRIPT.relative_to(ROOT).as_posix()}
    assert {page: sum(1 for name, _ in shown("c") if name == page) for page, _ in shown("c")} == C_PAGES


def test_the_commands_of_a_page_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for page, line in commands():
        words = shlex.split(line, comments=True)
        assert words[:3] == ["python", "-m", "vyre_py"], (page, line)
        served = words[3] in ("explore", "trace") and "--html" not in words  # until it is interrupted: test_explore_command.py
        status, out, err = said(capsys, *words[3:], *(["--html", "served.html"] if served else []))
        assert (status, err) == (0, "") and (out or served or "--html" in words), (page, line)
    assert len(commands()) >= 20 and (folder / "axpy.html").stat().st_size > 10_000


def test_what_a_command_is_shown_to_say_it_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = 0
    for page, block in shown("text"):
        if block.body.startswith("$ "):
            command, *lines = block.body.splitlines()
            status, out, err = said(capsys, *shlex.split(command)[4:])
            assert status == 1 and err.startswith("\n".join(lines)) and not out, (page, err)
            seen += 1
    assert seen == 2


def axpy_arrays(device: vp.Device) -> tuple[vp.Buffer, vp.Buffer]:
    return device.upload(np.arange(5, dtype=np.float32)), device.upload(np.ones(5, np.float32))


def test_the_c_of_the_c_abi_runs(tmp_path: Path) -> None:
    parts = [tmp_path / f"{number}.c" for number in range(2)]
    for path, (_, block) in zip(parts, [one for one in shown("c") if one[0] == "drivers/C_ABI.md"], strict=True):
        path.write_text(block.body)
    library = ctypes.CDLL(str(compile_c(tmp_path / "both.so", parts, "-shared", "-fPIC", f"-I{vp.include_dir()}")))
    device = open_device("cpu")
    pipeline = device.compile_native(vp.Program.from_text(AXPY))
    x, y = axpy_arrays(device)
    launch = pipeline.bind({"x": x, "y": y, "a": 2.0})
    assert library.step(ctypes.c_void_p(launch.c_address)) == 0
    np.testing.assert_array_equal(y.read(), 2 * np.arange(5) + 1)
    entry = pipeline.callable()
    xs, ys = np.arange(7, dtype=np.float32), np.ones(7, np.float32)
    addresses = [ctypes.c_void_p(array.ctypes.data) for array in (xs, ys)]
    assert library.add(ctypes.c_void_p(entry.c_address), ctypes.c_float(3), *addresses, ctypes.c_int64(7)) == 0
    np.testing.assert_array_equal(ys, 3 * np.arange(7) + 1)


def test_the_c_that_calls_an_exported_program_runs(tmp_path: Path) -> None:
    ((_, block),) = [one for one in shown("c") if one[0] == "docs/guide/other-libraries.md"]
    vp.export_c(vp.compile_native(vp.Program.from_text(AXPY), targets=["cpu"]), tmp_path)
    built = re.fullmatch(r"/\* cc -std=c99 -O2 (.*) -lm \*/", block.body.splitlines()[0])
    assert built is not None
    names = built[1].split()
    assert names[0] == "main.c"
    function = f'#include "axpy.h"\n\nint run(float *x, float *y, uint64_t n)\n{{\n{block.body}return status;\n}}\n'
    (tmp_path / names[0]).write_text(function)
    options = ("-shared", "-fPIC", "-lm")
    library = ctypes.CDLL(str(compile_c(tmp_path / "axpy.so", [tmp_path / name for name in names], *options, optimise=2)))
    xs, ys = np.arange(9, dtype=np.float32), np.ones(9, np.float32)
    assert library.run(ctypes.c_void_p(xs.ctypes.data), ctypes.c_void_p(ys.ctypes.data), ctypes.c_uint64(9)) == 0
    np.testing.assert_array_equal(ys, 2 * np.arange(9) + 1)


def test_the_javascript_of_a_page_runs(tmp_path: Path) -> None:
    """Under node, over a stand-in for WebGPU whose kernel is axpy; what it logs is the result of a launch with 3 after one with 2, whose arrays are its own."""
    need_program("node", "node")
    ((_, block),) = shown("js")
    vp.export_web(vp.compile_native(vp.Program.from_text(AXPY), ["wgsl"]), tmp_path)
    shutil.copy(ROOT / "tests" / "stand_ins" / "webgpu.mjs", tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    device = """import {Device} from "./webgpu.mjs";
const device = new Device();
device.kernels = [([block, x, y]) => {
  const a = new DataView(block.buffer, block.byteOffset).getFloat32(20, true), [xs, out] = [new Float32Array(x.buffer), new Float32Array(y.buffer)];
  for (let k = 0; k < xs.length; k++) out[k] = a * xs[k] + out[k];
}];
const [x, ys] = [Float32Array.of(1, 2, 3), Float32Array.of(1, 1, 1)];
"""
    assert block.body.count("await load();") == 1
    body = block.body.replace("await load();", "await load({device});")
    (tmp_path / "script.js").write_text(f"{device}{body}console.log(y);\n")
    done = subprocess.run(["node", "script.js"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["Float32Array(3) [ 4, 7, 10 ]", "Float32Array(3) [ 3, 5, 7 ]"], done.stderr
