"""What a worker process and its parent say to each other: errors as data, shared memory, answers and requests that are none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from executor_programs import AXPY, GOOD, PATIENCE, is_alive, works

import vyre_py as vp
from vyre_py.drivers.errors import (
    BindingError,
    DeviceLost,
    DeviceUnavailable,
    DispatchTimeout,
    DriverError,
    LaunchError,
    OutOfMemory,
)
from vyre_py.drivers.process import worker_process
from vyre_py.drivers.process.channel import MAX_FRAME, Channel
from vyre_py.drivers.process.error_data import ErrorDataBroken, describe, rebuild
from vyre_py.drivers.process.shared_memory import SharedMemory
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
from vyre_py.lowering.errors import ArtifactError, Missing, ToolchainError, Unsupported

SPECIMENS: list[VyreError] = [
    VyreError("plain"),
    DriverError("d", status="S", meaning="m", cause="c", remedy="r"),
    BindingError("p", ["one", "two"]),
    OutOfMemory("o", remedy="free"),
    LaunchError("l"),
    DispatchTimeout("t"),
    DeviceLost("x", cause="first"),
    DeviceUnavailable("u"),
    Unsupported("w", [Missing("op exp", Place("f.vir", 3, 4, 2, "  y = exp(x)", ("a", "b")), "h"), "type f64"]),
    ToolchainError("ptxas", "bad", "text"),
    ArtifactError("part sm_90", "it was damaged", "a.vyre"),
    ValidationError([Diagnostic("V201", "m", Place("f", 1), "h"), Diagnostic("V202", "n")]), RaceError(Diagnostic("R101", "m", Place("f", 1))),
    UnwrittenRead([Diagnostic("R102", "m", Place("f", 1)), Diagnostic("R102", "n")]),
    ParseError(Diagnostic("P101", "m")),
    WireError(Diagnostic("W101", "m"), where=17),
    WireError(Diagnostic("W101", "m"), where="/body/3"),
]


@pytest.mark.parametrize("error", SPECIMENS, ids=lambda e: type(e).__name__)
def test_errors_survive_as_data(error: VyreError) -> None:
    made = rebuild(json.loads(json.dumps(describe(error))))
    assert type(made) is type(error) and str(made) == str(error) and vars(made) == vars(error) and made.args == (str(error),)


def test_errors_of_classes_to_come_become_their_nearest() -> None:
    class Newer(OutOfMemory):
        def __init__(self) -> None:
            super().__init__("o", cause="c")
            self.asked, self.nested, self.many = 5, object(), 1 << 100

    made = rebuild(describe(Newer()))
    assert type(made) is OutOfMemory and made.cause == "c" and vars(made)["asked"] == 5
    long = rebuild(describe(ToolchainError("t", "m" * (1 << 20), "x" * (1 << 24))))
    assert str(long).endswith("...") and len(str(describe(long))) < MAX_FRAME


def test_data_that_is_no_error() -> None:
    good = describe(SPECIMENS[8])
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    for data in (
        None, 3, [], {}, {"class": "DeviceLost"}, {"class": "SystemExit", "text": "", "fields": {}}, {**good, "text": 3}, {**good, "fields": []},
        {**good, "fields": {"items": deep}}, {**good, "fields": {"items": [{"Missing": {"what": 3, "place": None, "help": ""}}]}},
        {**good, "fields": {"items": [{"Popen": {}}]}}, {**good, "fields": {"items": [{}]}}, {**good, "fields": {"items": [{"Missing": {}}]}},
    ):  # fmt: skip
        with pytest.raises(ErrorDataBroken):
            rebuild(data)
    for items in ([1], ["text"], 5, [{"Place": {"file": "f", "line": 1, "column": 0, "width": 1, "source": "", "around": ["", ""]}}], None):
        lying = rebuild({"class": "Unsupported", "text": "t", "fields": {"who": 3, "items": items}})
        assert isinstance(lying, Unsupported) and lying.items == () and lying.who == "" and str(lying) == "t"
    made = rebuild({"class": "BindingError", "text": "t", "fields": {"problems": 7, "__class__": 3, "args": 3, "status": None, "extra": "kept"}})
    assert isinstance(made, BindingError) and made.problems == () and made.status == "" and vars(made)["extra"] == "kept" and made.args == ("t",)


# ---------------------------------------------------------------- workers that lie

FRAME = """
import json, os, struct, sys, time
def read():
    head = b""
    while len(head) < 8:
        head += os.read(0, 8 - len(head)) or sys.exit(0)
    length = struct.unpack("<4sI", head)[1]
    text = b""
    while len(text) < length:
        text += os.read(0, length - len(text))
    return json.loads(text)
def frame(message):
    text = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack("<4sI", b"\\x89VYw", len(text)) + text
def write(data):
    while data:
        data = data[os.write(1, data):]
def opened(number):
    return {"id": number, "done": {"name": "cpu:0", "description": "a liar", "limits": LIMITS, "target": "cpu", "honoured": []}}
first = read()
"""

LIMITS = vp.device("cpu").limits

LIES: dict[str, str] = {
    "garbage": "write(os.urandom(4096))",
    "nothing": "sys.exit(3)",
    "a crash": "os.abort()",
    "a short frame": "write(frame(answer)[:-3])",
    "half a head": "write(frame(answer)[:5])",
    "a huge length": "write(struct.pack('<4sI', b'\\x89VYw', 0xFFFFFFFF)); time.sleep(1000)",
    "no JSON": "write(frame(b'{' * 1000))",
    "deep JSON": "write(frame(b'[' * 900_000))",
    "a long number": "write(frame(b'1' * 900_000))",
    "no object": "write(frame([1, 2]))",
    "another number": "write(frame({**answer, 'id': 77}))",
    "a text as number": "write(frame({**answer, 'id': '1'}))",
    "neither": "write(frame({'id': answer['id']}))",
    "an error of no class": "write(frame({'id': answer['id'], 'error': {'class': 'SystemExit', 'text': 'x', 'fields': {}}}))",
    "an error that is none": "write(frame({'id': answer['id'], 'error': [1]}))",
    "done that is none": "write(frame({'id': answer['id'], 'done': 5}))",
    "an early answer": "write(frame({**answer, 'id': answer['id'] - 1}) + frame(answer))",
}  # fmt: skip


def liar(tmp_path: Path, body: str) -> Callable[[int], list[str]]:
    script = tmp_path / "liar.py"
    script.write_text(FRAME.replace("LIMITS", repr({name: list(v) if isinstance(v, tuple) else v for name, v in asdict(LIMITS).items()})) + body)
    return lambda _: [sys.executable, "-I", str(script)]


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_workers_that_lie_as_they_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    monkeypatch.setattr(worker_process, "command", liar(tmp_path, f"answer = opened(first['id'])\n{lie}\n"))
    with pytest.raises(DeviceUnavailable, match="ended as it started"):
        vp.Executor("cpu", start_timeout=PATIENCE)


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_workers_that_lie_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    body = f"write(frame(opened(first['id'])))\nanswer = {{'id': read()['id'], 'done': {{'numerics': 'strict'}}}}\n{lie}\n"
    monkeypatch.setattr(worker_process, "command", liar(tmp_path, body))
    with vp.Executor("cpu", start_timeout=PATIENCE) as executor:
        pid = executor.pid
        assert pid is not None
        with pytest.raises(DeviceLost, match="was lost while it ran 'axpy'") as caught:
            executor.dispatch(AXPY, GOOD, timeout=PATIENCE)
        assert caught.value.cause and not is_alive(pid)
        monkeypatch.undo()
        works(executor)


@pytest.mark.parametrize("field", ["name", "description", "limits", "target", "honoured"])
def test_devices_that_are_described_wrongly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    for value in ("None", "-1", "'sm_1'", "{'buffer_bytes': 'x'}", "[[1]]"):
        if (field, value) in {("name", "'sm_1'"), ("description", "'sm_1'")}:
            continue
        body = f"told = opened(first['id'])\ntold['done'][{field!r}] = {value}\nwrite(frame(told))\n"
        monkeypatch.setattr(worker_process, "command", liar(tmp_path, body))
        with pytest.raises(DeviceUnavailable, match="ended as it started"):
            vp.Executor("cpu")


def test_a_worker_that_answers_half_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any timeout: a frame that has begun must go on."""
    monkeypatch.setattr("vyre_py.drivers.process.channel._STALLED", 0.5)
    body = "write(frame(opened(first['id'])))\nanswer = {'id': read()['id'], 'done': {}}\nwrite(frame(answer)[:-3])\ntime.sleep(1000)\n"
    monkeypatch.setattr(worker_process, "command", liar(tmp_path, body))
    with vp.Executor("cpu") as executor, pytest.raises(DeviceLost, match="stopped in the middle"):
        executor.dispatch(AXPY, GOOD)


def test_a_worker_that_does_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of many bytes do not wait for it either."""
    monkeypatch.setattr(worker_process, "command", liar(tmp_path, "write(frame(opened(first['id'])))\ntime.sleep(1000)\n"))
    with vp.ProgramBuilder("many", workgroup=1) as b:
        b.grid(1)
        out = b.write("out", vp.u32, 1)
        params = [b.param(f"p{k}", vp.u64) for k in range(8000)]
        out[0] = vp.cast(params[0], vp.u32)
    with vp.Executor("cpu", timeout=0.5, compile_timeout=0.5) as executor, pytest.raises(DispatchTimeout):
        executor.dispatch(b.program, {f"p{k}": 1 << 60 for k in range(8000)})


def test_shared_memory_cannot_be_taken_away(tmp_path: Path) -> None:
    memory = SharedMemory()
    memory.reserve(4 << 20)
    array = memory.array(0, (4 << 20,), np.dtype(np.uint8))
    array[:] = 7
    with pytest.raises(OSError, match="not permitted"):
        os.truncate(memory.fd, 0)
    memory.trim(1 << 20)
    assert array[0] == 7 and array[-1] == 0, "pages past what is kept go back"
    memory.reserve(8 << 20)
    for offset, shape in ((-1, (1,)), (8 << 20, (1,)), (0, (-1,)), (0, (1 << 62,)), (0, (9 << 20,))):
        with pytest.raises(ValueError, match="bytes"):
            memory.array(offset, shape, np.dtype(np.uint8))
    memory.close()
    memory.close()
    assert array[0] == 7


# ---------------------------------------------------------------- requests that are none


def test_a_worker_refuses_what_is_no_request() -> None:
    for message in ({"kind": "nonsense"}, {"kind": 3}, {"kind": "dispatch", "pipeline": "none"}, {"kind": "compile", "at": -1, "size_bytes": 4},
                    {"kind": "allocate", "size_bytes": -1}, {"kind": "free", "number": "x"}, {"id": "x", "kind": "free"}):  # fmt: skip
        memory = SharedMemory()
        process = subprocess.Popen(
            worker_process.command(memory.fd), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            pass_fds=(memory.fd,), env=worker_process._environment(),
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        channel = Channel(process.stdout.fileno(), process.stdin.fileno())
        channel.send({"id": 1, **message})
        complaint = process.stderr.read()  # before its own input is closed, which alone would end it
        assert process.wait(PATIENCE) == 2 and complaint.startswith(b"vyre-py worker: "), (message, complaint)
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
        memory.close()
