"""Compiled code out of memory, from the disk, and by the compiler; what is loaded, kept and evicted."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import child_environment

import vyre_py as vp
from vyre_py.drivers.cache import lookup
from vyre_py.drivers.cpu.device import CpuDevice
from vyre_py.drivers.lru import Bounded
from vyre_py.ir.language.program import Program
from vyre_py.lowering import compile as compiling
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.provenance import made_by
from vyre_py.lowering.target import parse_target


def program(name: str = "twice", factor: int = 2, buffer: str = "x") -> Program:
    return Program.from_text(f"""program {name}(n) workgroup(64) {{
  buffer {buffer}: u32[n] read_write
  let i = global_id.x
  {buffer}[i] = {buffer}[i] * {factor}u32
}}""")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> vp.DiskCache:
    """A disk cache of the test's own, in the place of the process's."""
    made = vp.DiskCache(tmp_path / "cache")
    monkeypatch.setattr(lookup, "disk_cache", lambda: made)
    return made


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The targets that the compiler is asked for."""
    asked: list[str] = []
    real = compiling.compile_for

    def counted(checked: Any, targets: Any, *rest: Any) -> Any:
        asked.extend(map(str, targets))
        return real(checked, targets, *rest)

    monkeypatch.setattr(compiling, "compile_for", counted)
    return asked


@pytest.fixture
def cpu() -> Any:
    made = CpuDevice(0)
    yield made
    made.close()


def doubled(pipeline: vp.Pipeline, factor: int = 2, name: str = "x") -> bool:
    x = np.arange(100, dtype=np.uint32)
    return bool(np.array_equal(pipeline.dispatch({name: x})[name], x * np.uint32(factor)))


# ---- layers


def test_each_layer_spares_the_one_behind_it(disk: vp.DiskCache, compiler: list[str], cpu: CpuDevice) -> None:
    first = cpu.compile_native(program())
    assert compiler == ["cpu"] and doubled(first) and cpu.telemetry.disk_cache_misses == 1
    assert cpu.compile_native(program()) is first and cpu.telemetry.memory_cache_hits == 1
    cpu._pipelines.clear()
    again = cpu.compile_native(program())
    assert again is not first and doubled(again) and cpu.telemetry.artifact_cache_hits == 1
    assert again._codes == first._codes, "what is loaded is loaded once"
    lookup.clear_memory()
    cpu._pipelines.clear()
    assert doubled(cpu.compile_native(program())) and cpu.telemetry.disk_cache_hits == 1
    assert compiler == ["cpu"]
    layers = cpu.cache_layers()
    assert set(layers) == {"validation", "artifacts", "disk", "modules", "pipelines"}
    assert (layers["disk"].hits, layers["disk"].misses, layers["disk"].entries) == (1, 1, 1) and layers["disk"].bytes > 0
    assert layers["modules"].entries == 1 and layers["modules"].hits == 2 and layers["modules"].bytes > 0


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3", "wgsl", "compute_90", "sm_90"])
def test_every_kind_of_code_is_kept(target: str, disk: vp.DiskCache, compiler: list[str]) -> None:
    if target == "sm_90":
        from device_kinds import need_nvjitlink

        need_nvjitlink()
    made = vp.compile_native(program(), target)
    lookup.clear_memory()
    found = vp.compile_native(program(), target)
    assert compiler == [target] and found.to_bytes() == made.to_bytes()
    assert [image.log for image in found.parts[0].steps[0].images] == [image.log for image in made.parts[0].steps[0].images]
    (entry,) = disk.entries()
    assert entry.key.kind == {"sm_90": "cubin", "compute_90": "ptx", "wgsl": "wgsl"}.get(target, "object")
    assert f"target={target}" in entry.key.text and program().code_digest.hex() in entry.key.text


def test_the_interpreter_s_programs_stay_in_memory(disk: vp.DiskCache, compiler: list[str]) -> None:
    vp.compile_native(program(), "reference")
    vp.compile_native(program(), "reference")
    assert compiler == ["reference"] and not disk.entries()


def test_code_is_shared_by_programs_of_other_names(disk: vp.DiskCache, compiler: list[str], cpu: CpuDevice) -> None:
    assert doubled(cpu.compile_native(program()))
    other = cpu.compile_native(program("other", buffer="values"))
    assert doubled(other, name="values") and other.name == "other" and compiler == ["cpu"]
    with pytest.raises(vp.BindingError, match="values"):
        other.dispatch({"x": np.arange(3, dtype=np.uint32)})


def test_what_makes_code_is_part_of_the_key() -> None:
    target, usual = parse_target("sm_90"), CompileOptions()
    key = lookup.key_of(program(), target, usual)
    fields = dict(key.fields)
    assert {"code", "target", "vyre-py", "options", "llvmlite", "nvjitlink"} <= set(fields)
    others = [
        lookup.key_of(program(factor=3), target, usual), lookup.key_of(program(), parse_target("compute_90"), usual),
        lookup.key_of(program(), parse_target("sm_80"), usual), lookup.key_of(program(), target, CompileOptions(opt=1)),
        lookup.key_of(program(), target, CompileOptions(numerics="fast")), lookup.key_of(program(), target, CompileOptions(debug=True)),
    ]  # fmt: skip
    assert len({made.name for made in [key, *others]}) == 7
    assert lookup.key_of(program("renamed", buffer="y"), target, usual) == key
    assert "cpu" in made_by(program(), parse_target("cpu"), usual) and "cpu" not in made_by(program(), parse_target("cpu:x86-64-v3"), usual)
    debug = CompileOptions(debug=True)
    assert lookup.key_of(program("renamed"), target, debug) != lookup.key_of(program(), target, debug), "names of kernels are places"


def test_a_new_version_of_a_compiler_compiles_again(disk: vp.DiskCache, compiler: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from vyre_py.lowering import provenance

    vp.compile_native(program(), "compute_90")
    lookup.clear_memory()
    monkeypatch.setattr(provenance, "version_of", lambda package: "99")
    made = vp.compile_native(program(), "compute_90")
    assert compiler == ["compute_90"] * 2 and made.parts[0].made_by["llvmlite"] == "99"


def test_two_builds_of_one_version_share_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vyre_py.lowering import provenance

    here, ir = tmp_path / "vyre_py" / "lowering", tmp_path / "vyre_py" / "ir"
    files = {here / "llvm" / "simt.py": "a = 1\n", ir / "fold.py": "b = 2\n", tmp_path / "vyre_py" / "face.py": "c = 3\n"}
    monkeypatch.setattr(provenance, "_HERE", here)
    monkeypatch.setattr(provenance, "_FLOORS", (here, ir))

    def contract(**changed: str) -> str:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(changed.get(path.stem, text))
        return provenance.contract.__wrapped__()

    first = contract()
    assert contract() == first == contract(face="c = 4\n")
    assert len({first, contract(simt="a = 2\n"), contract(fold="b = 3\n")}) == 3


def test_bytes_are_read_and_checked_once(monkeypatch: pytest.MonkeyPatch, cpu: CpuDevice) -> None:
    checks: list[str] = []
    real = lookup.check
    monkeypatch.setattr(lookup, "check", lambda made: checks.append(getattr(made, "name", "")) or real(made))
    data = program().to_bytes()
    assert cpu.compile_native(data) is cpu.compile_native(bytearray(data)) is cpu.compile_native(memoryview(data))
    vp.compile_native(data, "wgsl")
    assert checks == ["twice"]
    held = program("held")
    for target in ("wgsl", "compute_90", "cpu"):
        vp.compile_native(held, target)
    assert checks == ["twice", "held"], "a Program keeps its proof"
    with pytest.raises(vp.WireError):
        cpu.compile_native(data[:-1])
    with pytest.raises(vp.ValidationError):
        cpu.compile_native("no Program")  # type: ignore[arg-type]  # which is what is tested


def test_an_invalid_program_is_refused_each_time() -> None:
    with vp.ProgramBuilder("p") as b:
        y = b.write("y", vp.u32, b.dim("n"))
        with b.if_(b.global_id(0) < 3):
            b.barrier()
        y[b.global_id(0)] = 1
    for _ in range(2):
        with pytest.raises(vp.ValidationError, match="V401"):
            vp.compile_native(b.program, "wgsl")


# ---- preload


def test_preloaded_artifacts_are_found(disk: vp.DiskCache, compiler: list[str], cpu: CpuDevice) -> None:
    artifact = vp.Artifact.from_bytes(vp.compile_native(program(), ["wgsl", "cpu"]).to_bytes())
    lookup.clear_memory()
    disk.clear()
    compiler.clear()
    (pipeline,) = cpu.preload([artifact])
    assert doubled(pipeline) and doubled(cpu.compile_native(program())) and not compiler
    assert cpu.compile_native(program()).part.made_by == artifact.parts[1].made_by
    cpu.compile_native(program(), CompileOptions(opt=1))
    assert compiler == ["cpu"], "made with other options, it would be other code"
    with pytest.raises(vp.Unsupported, match="wgsl"):
        cpu.preload([vp.compile_native(program(), "wgsl")])


# ---- bounds


def test_the_table_drops_what_was_used_longest_ago() -> None:
    table: Bounded[str] = Bounded(3, 100)
    for key in "abc":
        table.put(key, key, 10)
    assert table.get("a") == "a"
    table.put("d", "d", 10)
    assert table.get("b") is None and len(table) == 3
    table.put("e", "e", 90)
    assert [table.get(key) for key in "acde"] == [None, None, "d", "e"]
    table.put("f", "f", 101)
    assert table.get("f") is None and len(table) == 2, "what is larger than all is not kept, and takes no other's place"
    table.put("e", "e", 101)
    assert table.get("e") is None and table.get("d") == "d"
    table.put("g", "1", 5)
    table.put("g", "2", 6)
    shot = table.snapshot()
    assert (shot.entries, shot.bytes, shot.hits, shot.misses, shot.evictions) == (2, 16, 4, 5, 3) and table.get("g") == "2"
    table.clear()
    assert len(table) == table.snapshot().bytes == 0


def test_the_table_in_threads() -> None:
    table: Bounded[int] = Bounded(8, 1000)

    def work(seed: int) -> None:
        for turn in range(2000):
            assert table.get_or_put((seed + turn) % 16, lambda: seed, lambda _: 1) is not None

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shot = table.snapshot()
    assert shot.entries <= 8 and shot.hits + shot.misses == 8000


def test_evicted_code_is_unloaded_once_no_pipeline_uses_it(cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu._codes, cpu._pipelines = Bounded(2, 1 << 20), Bounded(2, 1 << 20)
    kept = cpu.compile_native(program(factor=3))
    for factor in range(4, 9):
        cpu.compile_native(program(factor=factor))
    assert cpu.cache_layers()["modules"].entries == 2 and cpu.cache_layers()["modules"].evictions == 4
    assert doubled(kept, 3), "a pipeline that somebody holds keeps its code"


# ---- the disk, whatever is on it


def test_another_process_finds_what_this_one_compiled(tmp_path: Path) -> None:
    code = """
import numpy as np, vyre_py as vp
p = vp.Program.from_text('''program twice(n) workgroup(64) {
  buffer x: u32[n] read_write
  let i = global_id.x
  x[i] = x[i] * 2u32
}''')
device = vp.device("cpu")
assert device.compile_native(p).dispatch({"x": np.arange(5, dtype=np.uint32)})["x"].tolist() == [0, 2, 4, 6, 8]
import sys
needless = {"llvmlite", "json", "concurrent.futures", "decimal", "platformdirs", "vyre_py.lowering.compile", "vyre_py.ir.passes", "vyre_py.ir.evaluate.numbers",
            "vyre_py.drivers.many.graph", "vyre_py.drivers.memory.arena.planner", "vyre_py.lowering.artifact.writer"}
print(device.telemetry.disk_cache_hits, device.telemetry.disk_cache_misses, *needless & sys.modules.keys())
"""
    environment = child_environment(VYRE_CACHE_DIR=str(tmp_path / "cache"), VYRE_CACHE_LIMIT="10000000")
    said = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60).stdout.split() for _ in range(2)
    ]
    assert said[0][:2] == ["0", "1"] and said[1][:2] == ["1", "0"]
    if sys.platform == "linux":
        assert said[1][2:] == [], "a hit needs no compiler, and none of what few Programs use"


def test_spoiled_entries_are_compiled_again(disk: vp.DiskCache, compiler: list[str], cpu: CpuDevice) -> None:
    assert disk.path is not None
    assert doubled(cpu.compile_native(program()))
    (file,) = [path for path in disk.path.rglob("*") if path.is_file() and path.stat().st_size > 1000]
    whole = file.read_bytes()
    places = np.random.default_rng(9).integers(0, len(whole), 40).tolist()
    spoiled = [whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :] for at in places] + [whole[:at] for at in places[:10]]
    for number, data in enumerate(spoiled):
        file.write_bytes(data)
        lookup.clear_memory()
        cpu._pipelines.clear()
        assert doubled(cpu.compile_native(program())), f"entry {number}"
    assert len(compiler) == 1 + len(spoiled) and sum(disk.snapshot().rejected.values()) == len(spoiled)


def test_an_empty_directory_name_is_an_error(tmp_path: Path) -> None:
    environment = child_environment(VYRE_CACHE_DIR="", VYRE_CACHE_LIMIT="1000000")
    code = """
import vyre_py as vp
p = vp.Program.from_text('program p(n) { buffer y: u32[n] write\\n y[global_id.x] = 1u32 }')
try:
    vp.compile_native(p, "wgsl")
except vp.CacheError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert "VYRE_CACHE_DIR" in done.stdout


def test_the_public_face_of_the_caches(tmp_path: Path, disk: vp.DiskCache) -> None:
    assert disk.path == tmp_path / "cache"
    assert set(vp.cache_layers()) == {"validation", "artifacts", "disk"}


@pytest.mark.parametrize(("body", "streams"), [
    ("x[i] = x[i] + 1", True), ("if i == 3 { return }; x[i] = 1", True), ("var v: u32 = 1; if x[i] == 3 { v = 2 } else { v = 5 }; x[i] = v", True),
    ('w[0] = i; barrier; region "r" { x[i] = w[1] }', True), ("for k in 0u32..n { x[i] = k }", False), ("loop { x[i] = 1; break }", False),
    ("let old = atomic_add(x[i], 1)", False),
])  # fmt: skip
def test_what_touches_memory_a_few_times_is_known(body: str, streams: bool) -> None:
    program = Program.from_text(f"program p(n) over(n) {{ buffer x: u32[n] read_write\n workgroup w: u32[2]\n let i = global_id.x\n {body} }}")
    assert vp.compile_native(program, "compute_90").parts[0].steps[0].streaming is streams
