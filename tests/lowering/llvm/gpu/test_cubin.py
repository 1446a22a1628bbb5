"""Machine code for NVIDIA GPUs without a GPU: what nvJitLink makes and says, for every architecture, against ELF and the disassembler."""

from __future__ import annotations

import re
import stat
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from io import BytesIO

import pytest
from axpy import TEXT as AXPY
from device_kinds import need_nvdisasm, need_nvjitlink
from elftools.elf.elffile import ELFFile
from test_ptx import EVERYTHING

from vyre_py.ir.text.parser import parse
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.compile import compile_for, emit_text, prepare
from vyre_py.lowering.errors import ToolchainError, Unsupported
from vyre_py.lowering.llvm.gpu import nvptx
from vyre_py.lowering.llvm.gpu.architectures import ARCHITECTURES
from vyre_py.lowering.llvm.gpu.machine_code import disassemble, nvjitlink
from vyre_py.lowering.llvm.gpu.machine_code.assembler_log import resources, settled
from vyre_py.lowering.llvm.gpu.simt.kernel import write_kernel
from vyre_py.lowering.llvm.text import ModuleText
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target

# What CUDA 13 has of sm_75 to sm_120.
ARCHS = (
    "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_103", "sm_110", "sm_120", "sm_120a", "sm_121",
)  # fmt: skip

PRIVATE = """program private_memory(n) workgroup(64) over(n) {
  buffer y: i32[n] read_write
  private tmp: i32[40]
  table t: u32[4] = [1, 2, 3, 4]
  let i = global_id.x
  let k = cast(i & 31u32, i32)
  tmp[k] = y[i]
  tmp[k + 1i32] = 3i32
  y[i] = tmp[cast(t[i & 3u32], i32)] + tmp[y[i]]
}"""


def many_values(count: int) -> str:
    """A kernel that holds so many values over a barrier, in a workgroup of 1,024 threads, for each of which there are 64 registers."""
    loads = "\n".join(f"  let v{k} = x[i + {7 * k}u32]" for k in range(count))
    stores = "\n".join(f"  y[i * {count}u32 + {k}u32] = v{count - 1 - k}" for k in range(count))
    return f"""program many(n, m) workgroup(1024) over(n) {{
  buffer x: f32[n] read_write
  buffer y: f32[m] read_write
  workgroup t: f32[64]
  let i = global_id.x
{loads}
  t[local_id.x & 63u32] = v0
  barrier
{stores}
  y[i] = t[3u32]
}}"""


KERNELS = {"axpy": AXPY, "everything": EVERYTHING, "many": many_values(80), "private": PRIVATE}


@cache
def ptx_of(name: str, arch: str, debug: bool = False) -> bytes:
    return emit_text(parse(KERNELS[name], f"{name}.vir"), arch.replace("sm_", "compute_"), CompileOptions(debug=debug)).encode()


@cache
def linked(name: str, arch: str, debug: bool = False) -> nvjitlink.Linked:
    need_nvjitlink()
    return nvjitlink.link(ptx_of(name, arch, debug), arch, debug=debug, name=name)


def elf(code: bytes) -> ELFFile:
    return ELFFile(BytesIO(code))


def kernels_of(file: ELFFile) -> list[str]:
    """The names of the kernels."""
    symbols = file.get_section_by_name(".symtab").iter_symbols()
    return [s.name for s in symbols if s["st_info"]["type"] == "STT_FUNC" and s["st_info"]["bind"] == "STB_GLOBAL"]


def attributes(file: ELFFile, symbol: str) -> dict[int, int]:
    """The numbers that the ELF file itself notes about a kernel in `.nv.info`, where entries are a format, an attribute, a size and a payload; those of
    format 4 hold the number of a symbol and a number."""
    data = file.get_section_by_name(".nv.info").data()
    symbols = file.get_section_by_name(".symtab")
    found, at = {}, 0
    while at < len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == 4:
            number, value = struct.unpack_from("<II", data, at)
            if symbols.get_symbol(number).name == symbol:
                found[attribute] = value
            at += size
    return found


FRAME_SIZE, REGISTER_COUNT = 0x11, 0x2F
EM_CUDA = 190


# ---------------------------------------------------------------- code


@pytest.mark.parametrize("arch", ARCHS)
def test_every_architecture_gets_its_machine_code(arch):
    file = elf(linked("axpy", arch).code)
    assert file.header["e_machine"] in ("EM_CUDA", EM_CUDA)
    assert file.header["e_flags"] >> 8 & 0xFF == int(arch.strip("smaf_"))
    assert set(re.findall(r"\.visible \.entry (\w+)\(", ptx_of("axpy", arch).decode())) == set(kernels_of(file)) != set()
    assert all(file.get_section_by_name(f".text.{symbol}")["sh_size"] > 0 for symbol in kernels_of(file))


def test_an_artifact_has_the_machine_code_and_the_ptx_that_it_is_of():
    need_nvjitlink()
    (step,) = compile_for(parse(AXPY), [parse_target("sm_90")]).parts[0].steps
    cubin, ptx = step.images
    assert (cubin.format, ptx.format) == ("cubin", "ptx")
    assert cubin.code == nvjitlink.link(ptx.code, "sm_90", name="another name").code
    assert set(kernels_of(elf(cubin.code))) == {entry.symbol for entry in step.entries} == set(cubin.resources)
    assert resources(cubin.log) == cubin.resources


def test_architectures_that_it_does_not_know_are_named():
    need_nvjitlink()
    for arch in ("sm_60", "sm_999"):
        with pytest.raises(Unsupported, match=rf"nvJitLink [\d.]+ does not support target {arch} \(name compute_{arch[3:]} for PTX alone"):
            nvjitlink.link(ptx_of("axpy", "sm_75"), arch, name="axpy")
    refused = {}
    for arch in ARCHITECTURES:  # whatever LLVM has, is made or refused by name
        try:
            nvjitlink.link(nvjitlink._PROBE, arch, name="probe")
        except Unsupported as error:
            refused[arch] = str(error)
    assert all(f"target {arch} " in words for arch, words in refused.items()) and refused.keys().isdisjoint(ARCHS)


def test_an_option_that_it_does_not_know_is_no_missing_architecture(monkeypatch):
    need_nvjitlink()
    monkeypatch.setattr(nvjitlink, "_LEVELS", ("-nonsense",) * 4)
    with pytest.raises(ToolchainError, match=r"for -arch=sm_90 .*-nonsense"):
        nvjitlink.link(nvjitlink._PROBE, "sm_90", name="probe")


@pytest.mark.parametrize("level", range(4))
def test_levels(level):
    need_nvjitlink()
    made = nvjitlink.link(ptx_of("everything", "sm_90"), "sm_90", level=level, name="everything")
    best = linked("everything", "sm_90")
    assert kernels_of(elf(made.code)) == kernels_of(elf(best.code))
    assert (len(made.code) > 1.2 * len(best.code)) == (level == 0)


def test_the_same_input_gives_the_same_code_and_log_on_any_thread():
    jobs = [(name, arch) for name in ("axpy", "private") for arch in ("sm_75", "sm_90", "sm_120")] * 2
    alone = [linked(*job) for job in jobs]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda job: nvjitlink.link(ptx_of(*job), job[1], name=job[0]), jobs))
    assert together == alone
    assert all("time" not in made.log for made in together)


def test_ptx_that_is_refused_comes_with_the_messages():
    need_nvjitlink()
    broken = ptx_of("axpy", "sm_90").replace(b"st.global", b"st.nowhere")
    with pytest.raises(ToolchainError, match=r"nvJitLink: (?s:.*)error(?s:.*)nowhere") as caught:
        nvjitlink.link(broken, "sm_90", name="a\0name\n\N{SNOWMAN}")
    assert caught.value.text == broken.decode()
    newer = re.sub(rb"\.version \S+", b".version 42.0", ptx_of("axpy", "sm_90"))
    with pytest.raises(Unsupported, match=r"PTX of version 42\.0 \(it reads up to [\d.]+: update nvidia-nvjitlink, or name compute_90"):
        nvjitlink.link(newer, "sm_90", name="axpy")
    for junk in (b"", b"junk", bytes(100), b"\xff" * 40):
        with pytest.raises(ToolchainError):
            nvjitlink.link(junk, "sm_90", name="junk")


# ---------------------------------------------------------------- where it is


LOADS_NOTHING = """
import sys
from pathlib import Path
from vyre_py.lowering.llvm.gpu.machine_code import nvjitlink
assert not any(name.startswith("cuda") for name in sys.modules), "importing loads"
assert nvjitlink.available() and nvjitlink.version()[0].isdigit()
if nvjitlink._wheel_versions():
    assert "cuda.bindings.nvjitlink" not in sys.modules and "libnvJitLink" not in Path("/proc/self/maps").read_text(), "asking loads"
nvjitlink.prepare()
assert "libnvJitLink" in Path("/proc/self/maps").read_text()
"""


def test_nothing_is_loaded_before_it_is_needed():
    need_nvjitlink()
    done = subprocess.run([sys.executable, "-c", LOADS_NOTHING], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def fresh(monkeypatch):
    """As in a process that has not asked for the library yet."""
    asked = (nvjitlink._library, nvjitlink.available, nvjitlink.version)
    for answer in asked:
        answer.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    for answer in asked:
        answer.cache_clear()


@pytest.mark.parametrize("error", [ImportError("No module named 'cuda'"), RuntimeError("no libnvJitLink.so\nsearched here"), OSError("not an ELF file")])
def test_without_the_library(fresh, error):
    def fail(name):
        raise error

    fresh.setattr(nvjitlink, "imported", fail)
    nvjitlink.prepare()  # where the wheel is there, and broken
    nvjitlink.available.cache_clear()
    fresh.setattr(nvjitlink, "_wheel_versions", lambda: ())
    assert not nvjitlink.available()
    nvjitlink.prepare()
    for ask in (nvjitlink.version, lambda: nvjitlink.link(b"", "sm_90", name="k")):
        with pytest.raises(Unsupported, match=r"pip install '\.\[cuda\]' in a checkout of vyre-py; or name compute_") as caught:
            ask()
        assert str(error).splitlines()[0] in str(caught.value)


def test_without_the_binding_nothing_is_tried(fresh):
    fresh.setattr(nvjitlink, "find_spec", lambda name: None)
    fresh.setattr(nvjitlink, "imported", lambda name: pytest.fail(f"imports {name}"))
    assert not nvjitlink.available()
    nvjitlink.prepare()


# ---------------------------------------------------------------- what it says


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_log_agrees_with_the_file(name, arch):
    made = linked(name, arch)
    file = elf(made.code)
    assert set(made.resources) == set(kernels_of(file))
    for symbol, said in made.resources.items():
        noted = attributes(file, symbol)
        assert said["registers"] == noted[REGISTER_COUNT] > 0
        assert said["stack_bytes"] == noted[FRAME_SIZE]
        assert said["workgroup_bytes"] == 0  # what the launch gives is not the code's
        assert said["barriers"] == int(name in ("everything", "many"))
        assert ("constant_bytes" in said) == (int(arch[3:]) < 100)
        if "constant_bytes" in said:
            banks = [section for section in file.iter_sections() if re.fullmatch(rf"\.nv\.constant\d+\.{symbol}", section.name)]
            assert said["constant_bytes"] == sum(bank["sh_size"] for bank in banks)
        if name == "many":
            assert said["registers"] <= 64
            assert min(said["spill_store_bytes"], said["spill_load_bytes"]) >= 4 * (80 - 64) and said["stack_bytes"] >= said["spill_store_bytes"]
        else:
            assert said["spill_store_bytes"] == said["spill_load_bytes"] == 0
            assert said["stack_bytes"] >= {"private": 160, "everything": 32}.get(name, 0)


@pytest.mark.parametrize("options", [{}, {"interruptible": True, "persistent": True}], ids=str)
def test_the_report_has_the_workgroup_memory_that_launches_give(options):
    """What is printed, and what says it as data; an artifact that was read says the same."""
    need_nvjitlink()
    made = compile_for(parse(EVERYTHING), [parse_target("sm_90")], CompileOptions(**options))
    for artifact in (made, Artifact.from_bytes(made.to_bytes())):
        (part,) = artifact.parts
        (step,) = part.steps
        (taken,) = step.takes(step.images[0]).values()
        assert part.report["workgroup_bytes"] == taken["workgroup_bytes"] == step.workgroup_bytes >= 256
        assert f"workgroup_bytes {step.workgroup_bytes}" in str(artifact)
        assert step.images[0].resources[step.entries[0].symbol] == {**taken, "workgroup_bytes": 0}
        assert {name: part.report[name] for name in taken} == taken and step.takes(step.images[1]) == {}


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_spills_agree_with_the_instructions(arch):
    need_nvdisasm()
    made = linked("many", arch)
    text = disassemble.disassemble(made.code)
    (said,) = made.resources.values()
    for instruction, name in (("STL", "spill_store_bytes"), ("LDL", "spill_load_bytes")):
        widths = [int(width or 32) // 8 for width in re.findall(rf"\b{instruction}(?:\.LU)?(?:\.(64|128))?\s", text)]
        assert sum(widths) == said[name], instruction


def test_several_kernels_in_one_module():
    need_nvjitlink()
    module = ModuleText()
    for name in ("axpy", "many", "private"):
        write_kernel(prepare(parse(KERNELS[name]), parse_target("sm_90"), CompileOptions()), module, name)
    ptx = nvptx.assemble(module, "sm_90", 3, 3)
    made = nvjitlink.link(ptx.encode(), "sm_90", name="three")
    assert set(made.resources) == {"axpy", "many", "private"}
    for name, said in made.resources.items():
        assert said in linked(name, "sm_90").resources.values(), name


# nvJitLink 12.9 of sm_70, with a kernel that calls a function: the assembler and the linker each say their part.
OLD_LOG = """Architectures prior to '<compute/sm>_75' are deprecated and may be removed in a future release
ptxas info    : 16 bytes gmem, 24 bytes cmem[3]
ptxas info    : Compiling entry function 'vyre_spill' for 'sm_70'
ptxas info    : Function properties for vyre_spill
ptxas         .     176 bytes stack frame, 172 bytes spill stores, 168 bytes spill loads
ptxas info    : Function properties for helper
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 256 bytes smem, 376 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 42.791 ms
ptxas info    : Compiling entry function 'other' for 'sm_70'
ptxas info    : Function properties for other
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 13 registers
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register requirements.
info    : 16 bytes gmem
info    : Function properties for 'vyre_spill':
info    : used 64 registers, used 7 barriers, 176 stack, 1280 bytes smem, 376 bytes cmem[0], 8 bytes cmem[2], 0 bytes lmem
info    : Function properties for 'other':
info    : used 13 registers, used 9 barriers, 0 stack, 1024 bytes smem, 364 bytes cmem[0], 0 bytes lmem
"""


def test_a_log_is_read_and_settled():
    expected = {
        "vyre_spill": {
            "registers": 64, "barriers": 1, "stack_bytes": 176, "spill_store_bytes": 172, "spill_load_bytes": 168, "workgroup_bytes": 256,
            "constant_bytes": 384,
        },
        "other": {
            "registers": 13, "barriers": 0, "stack_bytes": 0, "spill_store_bytes": 0, "spill_load_bytes": 0, "workgroup_bytes": 0, "constant_bytes": 364,
        },
    }  # fmt: skip
    found = resources(OLD_LOG)
    assert found["vyre_spill"] == expected["vyre_spill"] and found["other"] == expected["other"]
    calm = settled(OLD_LOG)
    assert resources(calm) == found
    assert "Compile time" not in calm and "used 7 barriers" not in calm and "used 1 barriers" in calm and "C7508" in calm
    assert settled(calm) == calm
    linkers = "\n".join(line for line in OLD_LOG.splitlines() if line.startswith("info"))
    assert resources(linkers)["other"] == {"registers": 13, "stack_bytes": 0, "constant_bytes": 364}


@pytest.mark.parametrize(
    "text", ["", "\n", "ptxas info    : Used 10 registers", "ptxas info    : Used " + "9" * 5000 + " registers", "info : Function properties for '", "\0\x85"],
    ids=range(6),
)  # fmt: skip
def test_any_text_is_taken_for_a_log(text):
    assert resources(text) == {} and isinstance(settled(text), str)


# ---------------------------------------------------------------- disassembly


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Temporary files go to an empty folder, which has to be empty again at the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def test_disassembly(here):
    need_nvdisasm()
    plain = disassemble.disassemble(linked("axpy", "sm_90").code)
    assert "vyre_axpy" in plain and "STG.E" in plain and "EXIT" in plain and "axpy.vir" not in plain
    assert '//## File "axpy.vir", line 6' in disassemble.disassemble(linked("axpy", "sm_90", debug=True).code, lines=True)


@pytest.mark.parametrize("junk", [b"", b"junk", b"\x7fELF" + bytes(100)])
def test_what_is_no_cubin_is_refused(here, junk):
    need_nvdisasm()
    with pytest.raises(ToolchainError, match=r"nvdisasm: .*the cubin") as caught:
        disassemble.disassemble(junk)
    assert str(here) not in str(caught.value)


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_tool_that_hangs_is_ended(here, tmp_path, monkeypatch):
    monkeypatch.setattr(disassemble, "find_nvdisasm", lambda: script(tmp_path / "nvdisasm", "exec sleep 60"))
    monkeypatch.setattr(disassemble, "_TIMEOUT_S", 0.2)
    with pytest.raises(ToolchainError, match="took longer"):
        disassemble.disassemble(b"x")


def test_a_tool_that_fails_without_a_word(here, tmp_path, monkeypatch):
    monkeypatch.setattr(disassemble, "find_nvdisasm", lambda: script(tmp_path / "nvdisasm", "exit 3"))
    with pytest.raises(ToolchainError, match="it ended with status 3"):
        disassemble.disassemble(b"x")
    monkeypatch.setattr(disassemble, "find_nvdisasm", lambda: tmp_path / "nowhere")
    with pytest.raises(ToolchainError, match="cannot be run"):
        disassemble.disassemble(b"x")


def test_where_the_disassembler_is_looked_for(tmp_path, monkeypatch):
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(disassemble, "find_spec", lambda name: None)
    assert disassemble.find_nvdisasm() is None
    with pytest.raises(Unsupported, match=r"disassembly of machine code .*pip install nvidia-cuda-nvdisasm"):
        disassemble.disassemble(b"x")
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "nvdisasm"
    tool.write_text("no program")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    assert disassemble.find_nvdisasm() is None  # it is there, but cannot be run
    script(tool, "exit 0")
    assert disassemble.find_nvdisasm() == tool
    monkeypatch.delenv("CUDA_PATH")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert disassemble.find_nvdisasm() == tool
