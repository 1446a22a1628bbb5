"""What `uniform_load` gives is one value for the whole workgroup, whatever other workgroups write meanwhile."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import simt_host
from device_kinds import open_device

from vyre_py.drivers.device import Device
from vyre_py.ir.language.types import TYPES, Type, f32, i32, vector_of
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import compile_for, emit_text, prepare
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target, parse_target

PTX = Target("ptx", "sm_90")

# Half of the workgroups count. The others look, tell one another through workgroup memory what they saw, and count who saw something else.
STRESS = """program stress workgroup(256) grid(64) {
  buffer counted: u32[4] read_write
  buffer seen: u32[1] read_write
  workgroup first: u32[256]
  let l = local_index
  if workgroup_id.x % 2u32 == 0u32 {
    for k in 0u32..2000u32 { atomic_add(counted[0u32], 1u32) }
  } else {
    for k in 0u32..200u32 {
      let v = uniform_load(counted[0u32])
      first[l] = v
      barrier
      if first[0u32] != v { atomic_add(seen[0u32], 1u32) }
      barrier
    }
  }
}"""


@pytest.fixture
def others_write(monkeypatch: pytest.MonkeyPatch):
    """A function that has the invocations of a workgroup on the host run one at a time between barriers, in their order there, and calls what it is given
    before each goes on: another workgroup's write at the worst moment."""

    def begin(write) -> None:
        turn = threading.Lock()

        class Meeting(simt_host._Meeting):
            def wait(self) -> None:
                if turn.locked() and self.holder == threading.get_ident():
                    self.holder = 0
                    turn.release()
                super().wait()
                turn.acquire()
                self.holder = threading.get_ident()
                write()

            def leave(self) -> None:
                if self.holder == threading.get_ident():
                    self.holder = 0
                    turn.release()
                super().leave()

            holder = 0

        monkeypatch.setattr(simt_host, "_Meeting", Meeting)

    return begin


@pytest.mark.parametrize("type_", [*[t for t in TYPES.values() if not t.is_vector], vector_of(f32, 3), vector_of(i32, 2)], ids=str)
@pytest.mark.parametrize("options", [CompileOptions(), CompileOptions(persistent=True), CompileOptions(indirect=True)], ids=["plain", "persistent", "indirect"])
def test_one_invocation_of_a_gpu_loads(type_: Type, options: CompileOptions, others_write) -> None:
    program = parse(f"""program p workgroup(4, 2, 1) grid(2) {{
  buffer x: {type_}[3] read_write
  buffer y: {type_}[8, 2] write
  workgroup seen: u32[8]
  let l = local_index
  let past = uniform_load(x[3u32])
  let v = uniform_load(x[1u32])
  seen[l] = 1u32
  barrier
  y[l, workgroup_id.x] = v
  if l == 0u32 {{ y[l, 2u32] = past }}
}}""")
    x = np.zeros((3, type_.lanes) if type_.is_vector else 3, type_.dtype)
    y = np.zeros((8, 2, type_.lanes) if type_.is_vector else (8, 2), type_.dtype)
    word = x.view(np.uint8).reshape(3, -1)

    def write() -> None:
        if type_.name == "bool":
            word[1] ^= 1
        else:
            word[1, :: type_.scalar.size_bytes] += 1

    others_write(write)
    simt_host.run(prepare(program, PTX, options), {"x": x, "y": y}, {}, options=options)
    for group in (0, 1):
        saw = np.ascontiguousarray(y[:, group]).view(np.uint8).reshape(8, -1)
        assert (saw == saw[0]).all(), f"invocations saw {y[:, group]}"


def test_an_index_outside_gives_zero_to_all(device: Device) -> None:
    program = parse("""program p(n) workgroup(64) grid(1) {
  buffer x: u64[n] read_write
  buffer at: i32[4] read_write
  buffer y: u64[64, 4] write
  let l = local_index
  let a = uniform_load(at[0u32])
  y[l, 0u32] = uniform_load(x[a])
  y[l, 1u32] = uniform_load(x[uniform_load(at[1u32])])
  y[l, 2u32] = uniform_load(x[uniform_load(at[2u32])]) + 1u64
  y[l, 3u32] = uniform_load(x[uniform_load(at[9u32])])
}""")
    x = np.arange(7, 12, dtype=np.uint64) << 33
    out = device.compile_native(program).dispatch({"x": x, "at": np.array([4, 5, -1, 0], np.int32)})["y"]
    assert (out == [x[4], 0, 1, x[0]]).all()


@pytest.mark.parametrize("repeat", range(6))
@pytest.mark.parametrize("kind", ["cpu", "wgpu", "cuda"])  # workgroups of the interpreter take no turns
def test_barriers_may_stand_on_it(kind: str, repeat: int) -> None:
    device = open_device(kind)
    out = device.compile_native(parse(STRESS)).dispatch({"counted": np.zeros(4, np.uint32), "seen": np.zeros(1, np.uint32)})
    assert out["counted"][0] == 32 * 256 * 2000 and out["seen"][0] == 0


@pytest.mark.parametrize(("target", "share"), [("sm_90", 16), ("wgsl", 4)])
def test_what_it_takes_counts_as_workgroup_memory(target: str, share: int) -> None:
    text = """program p(n) workgroup(64) {
  buffer x: u32[n] read_write
  workgroup w: u32[COUNT]
  w[local_index] = uniform_load(x[0u32])
  barrier
  x[global_id.x] = w[63u32 - local_index]
}"""
    made = compile_for(parse(text.replace("COUNT", "64")), [parse_target(target)])
    assert made.parts[0].steps[0].workgroup_bytes == 64 * 4 + share
    full = (227 << 10) // 4
    with pytest.raises(Unsupported, match=f"{full * 4 + share} bytes of workgroup memory"):
        compile_for(parse(text.replace("COUNT", str(full))), [parse_target(target)])


@pytest.mark.parametrize("target", ["wgsl", "sm_90"])
def test_workgroup_memory_that_no_device_has_is_refused_by_name(target: str) -> None:
    """Small elements take a word each in WGSL, and arrays begin on multiples of 16 bytes in PTX."""
    arrays = "workgroup w0: u8[60000]" if target == "wgsl" else "".join(f"workgroup w{k}: u8[1]\n" for k in range(14529))
    program = parse(f"program p(n) {{ buffer y: u8[n] write\n {arrays}\n w0[local_index] = 5u8\n barrier\n y[global_id.x] = w0[0u32] }}")
    size = 60000 * 4 if target == "wgsl" else 14529 * 16
    for make in (lambda: compile_for(program, [parse_target(target)]), lambda: emit_text(program, target)):
        with pytest.raises(Unsupported, match=f"{size} bytes of workgroup memory"):
            make()
