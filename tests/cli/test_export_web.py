"""`vp.export_web`: its module under node, over a stand-in for WebGPU that keeps the rules, and in headless Chromium over its WebGPU in software."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import struct
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_kinds import need_program
from tree import ROOT

import vyre_py as vp
from vyre_py.drivers.errors import DriverError
from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.ir.language.nodes import Param
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import bf16
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.wgsl.uniform_block import block_words, scalar_word

Array = np.ndarray[Any, np.dtype[Any]]

PROGRAMS = {
    "axpy": """program axpy(n) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  y[global_id.x] = a * x[global_id.x] + y[global_id.x]
}""",
    "bytes": """program bytes(n) {
  param k: i64
  param h: f16
  param b: bool
  buffer x: u8[n] read
  buffer y: u8[n] write
  buffer z: u64[n] write
  buffer f: bool[n] write
  buffer g: u16[n] read_write
  buffer e: f16[n] write
  let i = global_id.x
  y[i] = x[i] * 3u8
  z[i] = cast(k, u64) * cast(x[i], u64)
  f[i] = (x[i] > 100u8) != b
  g[i] = g[i] + 7u16
  e[i] = h
}""",
    "shapes": """program shapes(n, m) over(m, n) {
  param v: f32x3
  param s: i16x2
  buffer x: f32x3[n] read
  buffer y: f32[n, m + 1] write
  buffer w: i32[n * m] write
  let i = global_id.y
  let j = global_id.x
  y[i, j + 1u32] = dot(x[i], v)
  if j < m { w[i * m + j] = cast(s.x, i32) * cast(i, i32) + cast(s.y, i32) * cast(j, i32) }
}""",
    "kept": """program kept(n) workgroup(64) over(n) {
  buffer x: u32[n] read
  buffer y: u32[n] write
  workgroup t: u32[64]
  private own: u32[4]
  table c: u32[8] = [1, 2, 3, 5, 7, 11, 13, 17]
  t[local_index] = x[global_id.x]
  own[x[global_id.x] & 3u32] = 9u32
  barrier
  y[global_id.x] = t[63u32 - local_index] * c[global_id.x & 7u32] + own[global_id.x & 3u32]
}""",
    "scan": "program scan(n) workgroup(64) over(n) {\n  buffer y: u32[n] write\n  y[global_id.x] = grid_scan(add, 1u32)\n}",
    "wide": "program wide(n) workgroup(1) grid(n) {\n  buffer y: u32[n] write\n  y[global_id.x] = global_id.x ^ num_workgroups.x\n}",
}
N = 100
RNG = np.random.default_rng(4)
GIVEN: dict[str, dict[str, Any]] = {
    "axpy": {"a": 2.5, "x": RNG.integers(-9, 9, N).astype(np.float32), "y": np.ones(N, np.float32)},
    "bytes": {
        "k": -(1 << 40) - 3, "h": 0.1, "b": True, "x": RNG.integers(0, 256, 77).astype(np.uint8), "g": RNG.integers(0, 65536, 77).astype(np.uint16),
    },
    "shapes": {"v": [1.0, 2.0, -3.0], "s": [-7, 300], "x": RNG.integers(-9, 9, (6, 3)).astype(np.float32), "m": 11},
    "kept": {"x": RNG.integers(0, 1 << 32, N, dtype=np.uint32)},
    "scan": {"n": 1000},
    "wide": {"n": 65535 + 9},
    "none": {"a": 2.5, "x": np.zeros(0, np.float32), "y": np.zeros(0, np.float32)},
}  # fmt: skip


def program(name: str) -> Program:
    return Program.from_text(PROGRAMS["axpy" if name == "none" else name])


def exported(folder: Path, *names: str) -> None:
    for name in names:
        vp.export_web(vp.compile_native(program(name), ["wgsl"]), folder, name=f"made_{name}")


def in_script(value: Any) -> str:
    """A value as JavaScript."""
    if isinstance(value, np.ndarray):
        kinds = {"float32": "Float32Array", "uint32": "Uint32Array", "uint8": "Uint8Array", "uint16": "Uint16Array"}
        data = f"new {kinds[value.dtype.name]}({json.dumps(value.reshape(-1).tolist())})"
        return data if value.ndim == 1 else f"{{data: {data}, shape: {list(value.shape)}}}"
    return f"{value}n" if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 << 32 else json.dumps(value)


# ---------------------------------------------------------------- under node


def node(folder: Path, body: str) -> Any:
    """What a script prints as JSON; `Device` is the stand-in's."""
    need_program("node", "node")
    shutil.copy(ROOT / "tests" / "stand_ins" / "webgpu.mjs", folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "script.mjs").write_text('import {Device} from "./webgpu.mjs";\nimport {BindingError, Unsupported, fit, floatBits} from "./webgpu.js";\n' + body)
    done = subprocess.run(["node", "script.mjs"], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_kernel_is_loaded_bound_launched_and_set(tmp_path: Path) -> None:
    exported(tmp_path, "axpy")
    found = node(tmp_path, """
import {load} from "./made_axpy.js";
const device = new Device();
const blocks = [];
device.kernels = [([block, x, y], groups) => {
  blocks.push(Array.from(block));
  const [a, xs, ys] = [new DataView(block.buffer, block.byteOffset).getFloat32(20, true), new Float32Array(x.buffer), new Float32Array(y.buffer)];
  for (let k = 0; k < 300; k++) ys[k] = a * xs[k] + ys[k];
}];
const kernel = await load({device});
const x = Float32Array.from({length: 300}, (_, k) => k);
const out = await kernel.dispatch({x, y: new Float32Array(300).fill(1), a: 2});
const launch = kernel.bind({x, y: x, a: 1});
launch.run();
launch.set({a: 3}).run();
const y = await launch.read("y");
const left = device.buffers.filter((buffer) => !buffer.destroyed).length;
launch.destroy();
console.log(JSON.stringify({out: Array.from(out.y.slice(0, 3)), kind: out.y.constructor.name, y: Array.from(y.slice(0, 3)), blocks, groups: device.dispatched,
  left, still: device.buffers.filter((buffer) => !buffer.destroyed).length}));
""")
    assert found["out"] == [1, 3, 5] and found["kind"] == "Float32Array" and found["y"] == [0, 5, 10]
    assert found["groups"] == [[2, 1, 1]] * 3 and found["left"] == 3 and found["still"] == 0
    words = struct.pack("<IIIIIfII", 2, 1, 0, 0, 0, 2.0, 300, 0)
    assert bytes(found["blocks"][0]) == words
    assert [struct.unpack_from("<f", bytes(block), 20)[0] for block in found["blocks"]] == [2, 1, 3]


def test_blocks_are_those_of_the_driver(tmp_path: Path) -> None:
    """Params of every kind, and sizes, in the words in which the driver in Python writes them."""
    exported(tmp_path, "bytes", "shapes")
    names = ("bytes", "shapes")
    given = {name: ", ".join([f"{key}: {in_script(value)}" for key, value in GIVEN[name].items()]) for name in names}
    script = """
const blocks = {};
async function seen(name, given) {
  const device = new Device();
  device.kernels = [([block]) => { blocks[name] = Array.from(block); }];
  const {load} = await import(`./made_${name}.js`);
  await (await load({device})).dispatch(given);
}
""" + "".join([f"await seen('{name}', {{{given[name]}}});\n" for name in names])
    found = node(tmp_path, script + "console.log(JSON.stringify(blocks));")
    for name in ("bytes", "shapes"):
        made = vp.compile_native(program(name), ["wgsl"])
        layout = made.parts[0].steps[0].layout
        sizes = {"n": 77, "m": 11} if name == "bytes" else {"n": 6, "m": 11}
        kinds = {p.name: p.type for p in made.interface.params}
        block = bytes(found[name])
        assert len(block) == 4 * block_words(layout)
        for slot in layout.scalars:
            at = 4 * scalar_word(layout, slot)
            if slot.expr is None:
                encoded = np.asarray(GIVEN[name][slot.source[0]], kinds[slot.source[0]].dtype).tobytes()
                assert block[at : at + slot.size_bytes] == slot.cut(encoded), slot
            else:
                assert struct.unpack_from("<I", block, at)[0] == evaluate_dim(slot.expr, sizes)


def test_floats_of_16_bits_are_rounded_once(tmp_path: Path) -> None:
    exported(tmp_path, "axpy")
    edges = [0.0, -0.0, 65504, 65519.99, 65520, 65536, 2**-24, 2**-25, 1.5 * 2**-24, 1.00390625, 1.01171875, 1 + 2**-8 + 2**-40, 1e39, -1e300, 1e-300]
    x = np.concatenate([RNG.standard_normal(300) * 10.0 ** RNG.integers(-9, 6, 300), edges])
    found = node(tmp_path, f"console.log(JSON.stringify({json.dumps(x.tolist())}.map((v) => [floatBits(v, 5, 10), floatBits(v, 8, 7)])))")
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal([row[0] for row in found], x.astype(np.float16).view(np.uint16))
    assert [row[1] for row in found] == [int.from_bytes(encode_param(Param("x", bf16), float(one)), "little") for one in x]


def test_arguments_that_do_not_fit_are_all_named(tmp_path: Path) -> None:
    exported(tmp_path, "axpy", "bytes", "shapes", "wide", "kept")
    found = node(tmp_path, """
const problems = [];
async function refused(name, given, limits) {
  const {load} = await import(`./made_${name}.js`);
  try {
    (await load({device: new Device(limits)})).bind(given);
    problems.push("nothing");
  } catch (error) {
    if (!(error instanceof BindingError || error instanceof Unsupported)) throw error;
    problems.push(error.problems ?? [error.message]);
  }
}
const x = new Float32Array(4);
await refused("axpy", {x: [1, 2], y: new Float64Array(4), z: 1});
await refused("axpy", {x, y: new Float32Array(5), a: "2"});
await refused("axpy", {x, y: x, a: 1, n: -1});
await refused("axpy", {x, y: {buffer: new Device().createBuffer({size: 8, usage: 128}), shape: [4]}, a: 1});
await refused("axpy", {x: {data: x, shape: [2, 2]}, y: {data: x, shape: [3]}, a: 1});
await refused("bytes", {x: new Uint8Array(2), g: new Uint16Array(2), k: 1.5, h: 1n, b: 2});
await refused("bytes", {x: new Uint8Array(2), g: new Uint16Array(2), k: 2n ** 63n, h: 1, b: true});
await refused("shapes", {x: new Float32Array(7), v: [1, 2], s: [1, 40000]});
await refused("shapes", {x: new Float32Array(6), v: [1, 2, 3], s: [1, 4]});
await refused("shapes", {x: new Float32Array(6), y: {data: new Float32Array(6), shape: [2, 3]}, m: 4, v: [1, 2, 3], s: [1, 4]});
await refused("wide", {n: 2 ** 32});
await refused("wide", {n: 70000}, {maxComputeWorkgroupsPerDimension: 10});
await refused("axpy", {x: new Float32Array(100), y: new Float32Array(100), a: 1}, {maxStorageBufferBindingSize: 396});
await refused("kept", {x: new Uint32Array(4)}, {maxComputeWorkgroupStorageSize: 100});
await refused("kept", {x: new Uint32Array(4)}, {maxStorageBuffersPerShaderStage: 2});
console.log(JSON.stringify(problems));
""")
    signs = [
        ["no argument 'z'", "param 'a' (f32) is missing", "'x' needs elements of f32", "'y' needs elements of f32"],
        ["'a' is f32, a number", "axis 0 of 'y' has 5"],
        ["dim 'n' is a whole number"], ["'y' has 8 bytes"], ["'x' needs 1 axes", "'y' has 4 elements"], ["'k' is i64", "'h' is f16", "'b' is bool"],
        ["'k' is i64"], ["'v' is 3 components", "'s' is i16x2", "'x' needs 3 components"], ["dim 'm' is not the size"], ["axis 1 of 'y' is 5, got 3"],
        ["dim 'n' is a whole number"], ["more than 10 along y or z"], ["'x' has 400 bytes", "'y' has 400 bytes"],
        ["maxComputeWorkgroupStorageSize"], ["maxStorageBuffersPerShaderStage"],
    ]  # fmt: skip
    assert len(found) == len(signs)
    for problems, wanted in zip(found, signs, strict=True):
        assert len(problems) == len(wanted) and all(sign in problem for sign, problem in zip(wanted, problems, strict=True)), (problems, wanted)


# ---------------------------------------------------------------- what cannot be exported


def test_what_is_refused(tmp_path: Path) -> None:
    made = vp.compile_native(program("axpy"), ["wgsl:f64", "cpu"])
    with pytest.raises(Unsupported, match="for the target 'wgsl'"):
        vp.export_web(made, tmp_path)
    with pytest.raises(Unsupported, match="exporting 3"):
        vp.export_web(3, tmp_path)  # type: ignore[arg-type]  # what is wrong is the type
    told = Program.from_text('program told(n) { buffer x: u32[n] read_write\n print "{}", x[global_id.x]\n x[global_id.x] = 1u32 }')
    with pytest.raises(Unsupported, match="asserts or prints"):
        vp.export_web(vp.compile_native(told, ["wgsl"]), tmp_path)
    small = Program.from_text("program small(n) { param p: f8e4m3\n buffer x: f32[n] write\n x[global_id.x] = cast(p, f32) }")
    with pytest.raises(Unsupported, match="param 'p' of f8e4m3"):
        vp.export_web(vp.compile_native(small, ["wgsl"]), tmp_path)
    good = vp.compile_native(program("axpy"), ["wgsl", "wgsl:f64"])
    with pytest.raises(Unsupported, match="name"):
        vp.export_web(good, tmp_path, name="../x")
    (tmp_path / "file").write_text("")
    with pytest.raises(DriverError, match="cannot be written"):
        vp.export_web(good, tmp_path / "file")
    assert [path.name for path in vp.export_web(good, tmp_path / "new")] == ["axpy.js", "webgpu.js", "axpy.html"]


def test_a_name_is_no_code(tmp_path: Path) -> None:
    odd = Program.from_text('program "</title><script>" (n) { buffer y: u32[n] write\n y[global_id.x] = 1u32 }')
    module, _, page = vp.export_web(vp.compile_native(odd, ["wgsl"]), tmp_path)
    assert "<script>" not in page.read_text("utf-8") and "&lt;script&gt;" in page.read_text("utf-8")
    assert module.read_text("utf-8").isascii() and module.stem.isidentifier()


# ---------------------------------------------------------------- in a browser


class Told(SimpleHTTPRequestHandler):
    """Serves a folder, and takes what a page tells."""

    def __init__(self, *args: Any, told: list[str], over: threading.Event, **named: Any) -> None:
        self.told, self.over = told, over
        super().__init__(*args, **named)

    def do_POST(self) -> None:
        self.told.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()
        self.over.set()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        pass


def browse(folder: Path, page: str) -> str:
    """What a page in Chromium tells by POST."""
    need_program("chromium", "chromium")
    told: list[str] = []
    over = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Told, directory=str(folder), told=told, over=over))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    flags = ["--headless=new", "--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan,WebGPU"]
    flags += [f"--user-data-dir={folder / 'profile'}", f"http://127.0.0.1:{server.server_port}/{page}"]
    quiet = subprocess.DEVNULL
    browser = subprocess.Popen(["chromium", *flags], stdout=quiet, stderr=quiet, env={**os.environ, "HOME": str(folder)}, start_new_session=True)
    try:
        assert over.wait(120), "the page told nothing"
    finally:
        os.killpg(browser.pid, signal.SIGKILL)  # its own session: the processes that it started
        browser.wait()
        server.shutdown()
        server.server_close()
    return told[0]


def test_programs_run_in_a_browser_as_in_the_interpreter(tmp_path: Path) -> None:
    exported(tmp_path, *PROGRAMS)
    runs = "".join(
        [
            f"""
  ran["{name}"] = await (await import("./made_{'axpy' if name == 'none' else name}.js")).load({{device}}).then((kernel) => kernel.dispatch({{
    {', '.join(f'{k}: {in_script(v)}' for k, v in given.items())} }}));"""
            for name, given in GIVEN.items()
        ]
    )
    (tmp_path / "all.html").write_text(
        f"""<!doctype html><meta charset="utf-8"><body>nothing<script type="module">
import {{requestDevice}} from "./webgpu.js";
const ran = {{}};
const base64 = (array) => btoa(Array.from(new Uint8Array(array.buffer), (byte) => String.fromCharCode(byte)).join(""));
const coded = (out) => Object.fromEntries(Object.entries(out).map(([name, array]) => [name, base64(array)]));
try {{
  const device = await requestDevice();
  device.addEventListener("uncapturederror", (event) => {{ ran.error = event.error.message; }});{runs}
  const told = Object.entries(ran).map(([name, out]) => [name, typeof out === "string" ? out : coded(out)]);
  await fetch("/told", {{method: "POST", body: JSON.stringify(Object.fromEntries(told))}});
}} catch (error) {{
  await fetch("/told", {{method: "POST", body: JSON.stringify({{error: String(error)}})}});
}}
</script></body>"""
    )
    found = json.loads(browse(tmp_path, "all.html"))
    assert "error" not in found, found["error"]
    for name, given in GIVEN.items():
        want = vp.device("reference").compile_native(program(name)).dispatch(given)
        assert set(found[name]) == set(want)
        for buffer, array in want.items():
            got = np.frombuffer(base64.b64decode(found[name][buffer]), array.dtype).reshape(array.shape)
            np.testing.assert_array_equal(got, array, err_msg=f"{name} {buffer}")


def test_the_page_runs(tmp_path: Path) -> None:
    exported(tmp_path, "axpy")
    (tmp_path / "watch.html").write_text("""<!doctype html><iframe src="made_axpy.html"></iframe><script type="module">
const said = () => document.querySelector("iframe").contentDocument?.getElementById("said")?.textContent ?? "loading";
while (["loading", "ready"].includes(said())) await new Promise((done) => setTimeout(done, 20));
await fetch("/told", {method: "POST", body: said()});
</script>""")
    assert browse(tmp_path, "watch.html").startswith("y[16] = 0 3 6 9 12 ")
