"""Many Programs at once: in order, as one by one, whatever ends a worker, and nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from children import TAKES_CTRL_C, child_environment
from executor_programs import AXPY, PATIENCE, is_alive, settled
from many_programs import invalid, named
from tree import file_of

import vyre_py as vp
from vyre_py.drivers.process import compile_pool, worker_process
from vyre_py.ir.language.program import Program
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.file import encode
from vyre_py.lowering.errors import ToolchainError, Unsupported
from vyre_py.lowering.stages import Stages

WORKER = file_of("faulty_compiler.py")
TARGETS = ("compute_90", "wgsl", "cpu", "reference")


def contents(artifact: Artifact) -> bytes:
    """All of an artifact but what was measured."""
    return encode(replace(artifact, parts=tuple(replace(part, stages=Stages()) for part in artifact.parts)))


def names(outcomes: list[Any]) -> list[str]:
    return [outcome.interface.name if isinstance(outcome, Artifact) else type(outcome).__name__ for outcome in outcomes]


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Workers that do what names of Programs say; a folder where they see each other, and where reports of crashes go."""
    compile_pool.end_idle()
    made = tmp_path_factory.mktemp("compilers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_process, "command", lambda fd: [sys.executable, "-P", str(WORKER), str(fd), str(made)])
        patch.setattr("tempfile.tempdir", str(made))
        yield made
    compile_pool.end_idle()


def hanging(folder: Path) -> list[int]:
    """The numbers of the workers that hang, or hung until they were ended."""
    return [int(left.suffix[1:]) for left in folder.glob("hangs.*")]


@pytest.fixture
def _none_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker can be started."""
    compile_pool.end_idle()
    monkeypatch.setattr(worker_process, "command", lambda fd: [sys.executable, "-c", "import sys; sys.exit('out of order')"])


# ---------------------------------------------------------------- one Program


def test_bytes_are_compiled_as_their_program_is() -> None:
    for data in (AXPY.to_bytes(), bytearray(AXPY.to_bytes()), memoryview(AXPY.to_bytes())):
        assert contents(vp.compile_native(data, TARGETS)) == contents(vp.compile_native(AXPY, TARGETS))
    with pytest.raises(vp.WireError):
        vp.compile_native(AXPY.to_bytes()[:-1], "wgsl")
    with pytest.raises(vp.ValidationError):
        vp.compile_native(invalid("invalid").to_bytes(), "wgsl")


# ---------------------------------------------------------------- many


def test_each_is_what_compile_native_makes_of_it_in_order() -> None:
    programs = [named(f"p{k}", 1 + 17 * k % 5) for k in range(12)]
    many = vp.compile_many(programs, TARGETS, workers=2)
    assert [contents(artifact) for artifact in many] == [contents(vp.compile_native(program, TARGETS)) for program in programs]
    assert len(compile_pool.idle()) == 2


def test_each_may_have_its_own_form_targets_and_options() -> None:
    opt, debug = vp.CompileOptions(opt=0), vp.CompileOptions(workgroup=(32, 1, 1))
    items = [AXPY, vp.check(AXPY), AXPY.to_bytes(), (AXPY, "wgsl", None), (AXPY, None, debug), (AXPY.to_bytes(), ["cpu", "reference"], opt)]
    for workers in (1, 2):
        many = vp.compile_many(iter(items), ["compute_90"], opt, workers=workers)
        expected = [("compute_90", opt)] * 3 + [("wgsl", opt), ("compute_90", debug), (("cpu", "reference"), opt)]
        assert [contents(artifact) for artifact in many] == [contents(vp.compile_native(AXPY, *wanted)) for wanted in expected]


@pytest.mark.usefixtures("_none_starts")
def test_few_small_programs_take_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(vp.compile_many([named(f"p{k}") for k in range(10)], "reference")) == [f"p{k}" for k in range(10)]
    monkeypatch.setattr("vyre_py.many._WORTH_STARTING", 1)
    assert names(vp.compile_many([named("a")] * 4, "reference", workers=1)) == ["a"] * 4
    assert vp.compile_many([], "reference", workers=2) == []


def test_large_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vyre_py.many._WORTH_STARTING", 700)
    monkeypatch.setattr("vyre_py.many.core_count", lambda: 2)
    compile_pool.end_idle()
    vp.compile_many([named("p")] * 11, "reference")
    assert not compile_pool.idle()
    vp.compile_many([named("p").to_bytes()] * 13, "reference")
    assert compile_pool.idle()


def test_two_compile_at_the_same_time(folder: Path) -> None:
    """Each of the two is done only when both have begun."""
    assert names(vp.compile_many([named("meets"), named("meets")], "reference", workers=2)) == ["meets", "meets"]


def test_workers_are_kept_and_end_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_pool.end_idle()
    vp.compile_many([named("p")] * 4, "reference", workers=2)
    first = set(compile_pool.idle())
    vp.compile_many([named("q")] * 4, "reference", workers=2)
    assert set(compile_pool.idle()) == first
    os.kill(min(first), signal.SIGKILL)
    assert settled(lambda: not is_alive(min(first)))
    assert names(vp.compile_many([named("r")] * 4, "reference", workers=2)) == ["r"] * 4, "one that was killed meanwhile is replaced"
    compile_pool.end_idle()
    monkeypatch.setattr(compile_pool, "_IDLE_S", 0.2)
    vp.compile_many([named("p")] * 4, "reference", workers=2)
    last = compile_pool.idle()
    assert settled(lambda: not any(map(is_alive, last))) and not compile_pool.idle()


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_error_by_place_is_raised(workers: int) -> None:
    programs = [named("a"), named("b"), invalid("c"), named("d"), invalid("e"), *[named("f")] * 20]
    with pytest.raises(vp.ValidationError) as caught:
        vp.compile_many(programs, "reference", workers=workers)
    with pytest.raises(vp.ValidationError) as alone:
        vp.compile_native(programs[2], "reference")
    assert str(caught.value) == f"Program 2 ('c'): {alone.value}" and caught.value.diagnostics == alone.value.diagnostics
    assert caught.value.diagnostics[0].place is not None and caught.value.diagnostics[0].place.source, "the line of the builder is lost"


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_in_place_of_artifacts(workers: int) -> None:
    with vp.ProgramBuilder("wide") as b:
        b.grid(1)
        b.write("y", vp.f64, b.dim("n"))[0] = 1.0
    items = [named("a"), invalid("b"), b.program, AXPY.to_bytes()[:-1], invalid("e").to_bytes(), named("f")]
    many = vp.compile_many(items, "wgsl", workers=workers, errors="return")
    assert names(many) == ["a", "ValidationError", "Unsupported", "WireError", "ValidationError", "f"]
    assert [str(outcome).partition(":")[0] for outcome in many[1:5]] == ["Program 1 ('b')", "Program 2 ('wide')", "Program 3", "Program 4"]


def test_what_cannot_be_written_is_compiled_here() -> None:
    written = replace(AXPY, doc="\ud800")  # no text that UTF-8 has
    with pytest.raises(vp.WireError):
        written.to_bytes()
    many = vp.compile_many([AXPY, written, AXPY], "cpu", workers=2)
    assert [contents(artifact) for artifact in many[::2]] == [contents(vp.compile_native(AXPY, "cpu"))] * 2
    assert many[1].parts[0].steps[0].images == many[0].parts[0].steps[0].images


def test_what_fails_here_hides_no_error_before_it() -> None:
    """The last is compiled in this process, long before the worker has come to the one before it."""
    programs = [named("a"), named("b", 200), invalid("c"), replace(invalid("d"), doc="\ud800")]
    with pytest.raises(vp.ValidationError, match=r"\AProgram 2 \('c'\)"):
        vp.compile_many(programs, "reference", workers=1, timeout=PATIENCE)


@pytest.mark.parametrize("arguments", [
    {"programs": AXPY}, {"programs": AXPY.to_bytes()}, {"programs": 3}, {"programs": [AXPY, 3]}, {"programs": [(AXPY, "cpu")]}, {"programs": [(AXPY, 3, None)]},
    {"targets": "sm_1"}, {"targets": None}, {"options": 3}, {"workers": 0}, {"workers": True}, {"workers": 2.0}, {"timeout": 0}, {"timeout": "1"},
    {"errors": "ignore"}, {"progress": 1}, {"programs": [(AXPY, None, {})]},
], ids=repr)  # fmt: skip
def test_arguments_that_are_none(arguments: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        vp.compile_many(**{"programs": [AXPY], "targets": "reference", **arguments})


# ---------------------------------------------------------------- workers that end


def test_a_crash_of_llvm_is_an_error_and_the_others_go_on(folder: Path) -> None:
    programs = [named(name, 2) for name in ("a", "aborts", "b", "exits", "c", "segfaults", "d", "lies", "e", "exaggerates", "f")]
    many = vp.compile_many(programs, ["reference", "cpu"], workers=2, errors="return")
    assert names(many) == ["a", *[name for letter in "bcdef" for name in ("ToolchainError", letter)]]
    causes = {1: r"SIGABRT", 3: "status 1 ", 5: "SIGSEGV", 7: "not an artifact", 9: "not an artifact"}
    for index, cause in causes.items():
        error = many[index]
        assert isinstance(error, ToolchainError) and error.program_bytes is not None and error.report is not None
        text = str(error)
        assert text.startswith(f"Program {index} ('{programs[index].name}'): the compiler: its process ended") and cause in text
        kept = error.report / "program.vyre"
        assert f"vyre-py compile {kept} --target reference --target cpu" in text
        assert kept.read_bytes() == error.program_bytes and Program.from_bytes(error.program_bytes) == programs[index]
        assert error.report.stat().st_mode & 0o777 == 0o700 and error.report.parent == folder
        report = (error.report / "report.txt").read_text("utf-8")
        assert cause in report and "llvmlite" in report
    assert "sin" in str(many[1]) and "Fatal Python error: Aborted" in str(many[1]), "what LLVM and Python said last"
    assert names(vp.compile_many(programs[:1], "cpu", workers=2)) == ["a"]


def test_a_crash_is_raised_and_may_not_be_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(folder / "nowhere"))
    with pytest.raises(ToolchainError, match="could not be kept") as caught:
        vp.compile_many([named("a"), named("segfaults"), named("b")], "reference", workers=2)
    assert caught.value.report is None and caught.value.program_bytes


def test_one_that_hangs_is_killed_in_time(folder: Path) -> None:
    began = time.monotonic()
    many = vp.compile_many([named("a"), named("hangs"), named("b")], "reference", workers=1, timeout=0.3, errors="return")
    assert names(many) == ["a", "DispatchTimeout", "b"] and time.monotonic() - began < PATIENCE
    assert "'hangs' for reference took longer than 0.3 s" in str(many[1])
    assert hanging(folder) and not any(map(is_alive, hanging(folder)))


def test_after_an_error_nothing_runs_on(folder: Path) -> None:
    with pytest.raises(ToolchainError, match=r"Program 0 \('segfaults'\)"):
        vp.compile_many([named("segfaults"), named("hangs"), *[named("a")] * 20], "reference", workers=2)
    assert not any(map(is_alive, hanging(folder)))


def test_a_defect_in_a_worker_is_an_error_of_one(folder: Path) -> None:
    many = vp.compile_many([named("a"), named("fails")], "reference", workers=2, errors="return")
    assert names(many) == ["a", "DriverError"] and "ZeroDivisionError: a defect" in str(many[1])


def test_what_a_worker_says_is_said_here(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vp.compile_many([named("a"), named("speaks"), named("b")], "reference", workers=2)
    assert capsys.readouterr().err == "a warning\ufffd[2J of a compiler\n"


def test_workers_that_die_as_they_start_cost_no_program(folder: Path) -> None:
    compile_pool.end_idle()
    for k in range(2):
        (folder / f"death.{k}").touch()
    assert names(vp.compile_many([named(f"p{k}") for k in range(5)], "reference", workers=1, timeout=PATIENCE)) == [f"p{k}" for k in range(5)]
    assert not list(folder.glob("death.*"))
    for k in range(3):
        (folder / f"death.{k}").touch()
    compile_pool.end_idle()
    with pytest.raises(ToolchainError, match=r"ended as it started: .*SIGKILL"):
        vp.compile_many([named("p")], "reference", workers=1, timeout=PATIENCE)


def test_a_program_whose_worker_is_killed_is_compiled_by_another(folder: Path) -> None:
    programs = [named("a"), named("killed twice"), named("b")]
    def held() -> tuple[int, list[Path]]:
        compile_pool.end_idle()
        return len(list(Path("/proc/self/fd").iterdir())), sorted(Path("/dev/shm").glob("*vyre*"))

    before = held()
    assert names(vp.compile_many(programs, "reference", workers=1, timeout=PATIENCE)) == ["a", "killed twice", "b"]
    dead = [int(left.suffix[1:]) for left in folder.glob("killed.*")]
    assert len(dead) == 2 and not any(map(is_alive, dead))
    many = vp.compile_many([named("a"), named("killed always"), named("b")], "reference", workers=2, errors="return")
    assert names(many) == ["a", "ToolchainError", "b"] and "SIGKILL" in str(many[1]) and "memory runs out" in str(many[1])
    assert len(list(folder.glob("killed.*"))) == 5
    assert held() == before


@pytest.mark.usefixtures("_none_starts")
def test_no_worker_can_be_started() -> None:
    with pytest.raises(ToolchainError, match=r"(?s)ended as it started.*out of order.*workers=1"):
        vp.compile_many([named("a"), named("b")], "reference", workers=2, errors="return")


@pytest.mark.usefixtures("_none_starts")
def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "command", lambda fd: ["/nowhere/python"])
    with pytest.raises(ToolchainError, match=r"(?s)cannot be started.*workers=1"):
        vp.compile_many([named("a"), named("b")], "reference", workers=2)


# ---------------------------------------------------------------- processes


SCRIPT = f"""
import os, signal, sys, time
import vyre_py as vp
from many_programs import children, named
from vyre_py.drivers.process import compile_pool, worker_process
as_ever = worker_process.command
def faulty(fd):
    return [sys.executable, "-P", {str(WORKER)!r}, str(fd), sys.argv[1]]
"""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Runs Python text in another process; its standard output is a pipe."""
    started = []

    def run(text: str) -> subprocess.Popen[str]:
        path = tmp_path / "script.py"
        path.write_text(TAKES_CTRL_C + SCRIPT + textwrap.dedent(text))
        environment = child_environment()
        process = subprocess.Popen(
            [sys.executable, "-W", "error", str(path), str(tmp_path)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert not err, err
    return out


def test_ctrl_c_ends_all_at_once_and_exit_the_rest(script: Callable[[str], subprocess.Popen[str]], tmp_path: Path) -> None:
    process = script("""
        worker_process.command = faulty
        try:
            vp.compile_many([named("hangs")] * 9, "reference", workers=2, progress=False)
        except KeyboardInterrupt:
            print("interrupted", children(), compile_pool.idle(), flush=True)
        worker_process.command = as_ever
        vp.compile_many([named("a")] * 9, "reference", workers=2)
        print(*children())
    """)
    assert settled(lambda: len(hanging(tmp_path)) == 2)
    os.kill(process.pid, signal.SIGINT)
    began = time.monotonic()
    assert process.stdout is not None and process.stdout.readline() == "interrupted [] ()\n"
    assert time.monotonic() - began < PATIENCE / 10
    left = [int(pid) for pid in finished(process).split()]
    assert len(left) == 2 and not any(map(is_alive, left))


def test_nothing_is_left_of_a_process_that_is_killed(script: Callable[[str], subprocess.Popen[str]], tmp_path: Path) -> None:
    """One of its workers waits then, the other compiles."""
    process = script("""
        worker_process.command = faulty
        vp.compile_many([named("a")] * 4, "reference", workers=2)
        print(*compile_pool.idle(), flush=True)
        vp.compile_many([named("hangs")], "reference", workers=1, timeout=1000)
    """)
    assert process.stdout is not None
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert settled(lambda: len(hanging(tmp_path)) == 1) and all(map(is_alive, workers)) and len(workers) == 2
    process.kill()
    assert settled(lambda: not any(map(is_alive, workers)))


def test_a_forked_child_has_workers_of_its_own(script: Callable[[str], subprocess.Popen[str]]) -> None:
    process = script("""
        vp.compile_many([named("a")], "reference", workers=1, timeout=60)
        ours = compile_pool.idle()
        child = os.fork()
        if not child:
            assert not compile_pool.idle()
            vp.compile_many([named("b")], "reference", workers=1, timeout=60)
            assert compile_pool.idle() and compile_pool.idle() != ours
            compile_pool.end_idle()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        vp.compile_many([named("c")], "reference", workers=1, timeout=60)
        assert compile_pool.idle() == ours
    """)
    assert finished(process) == ""


def test_calls_of_several_threads_share_no_worker(folder: Path) -> None:
    """Two calls of one worker each, of which neither is done before both have begun."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(vp.compile_many, [named("meets")], "reference", workers=1, timeout=PATIENCE) for _ in range(2)]
        assert [names(call.result()) for call in calls] == [["meets"]] * 2


# ---------------------------------------------------------------- progress


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_is_told_to_a_callable(workers: int, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[int, int, str]] = []
    items = [named("a"), named("b").to_bytes(), invalid("c"), named("d")]
    vp.compile_many(items, "reference", workers=workers, errors="return", progress=lambda *what: told.append(what))
    assert [(done, total) for done, total, _ in told] == [(k, 4) for k in (1, 2, 3, 4)] and sorted(name for *_, name in told) == [*"abcd"]
    assert capsys.readouterr().err == ""


def test_what_progress_raises_ends_the_call(folder: Path) -> None:
    def stop(done: int, total: int, name: str) -> None:
        raise EOFError

    with pytest.raises(EOFError):
        vp.compile_many([named("a"), named("hangs")], "reference", workers=2, progress=stop)
    assert not any(map(is_alive, hanging(folder)))


def test_traces_show_what_workers_did() -> None:
    with vp.trace() as trace:
        vp.compile_many([named("a"), named("b")], "reference", workers=2)
    text = trace.to_json()
    assert '"compile a"' in text and '"compile b"' in text and '"worker process ' in text
