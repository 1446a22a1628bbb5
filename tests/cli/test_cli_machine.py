"""The commands about this machine: `doctor`, `devices`, `cache`; the settings; and how anything is printed."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from children import child_environment
from command_line import said, told
from tree import ROOT

import vyre_py
from vyre_py.__main__ import main
from vyre_py.cli import doctor, output, probes
from vyre_py.cli.probes import Finding
from vyre_py.drivers import registry
from vyre_py.drivers.cache.disk import CacheKey, DiskCache
from vyre_py.drivers.errors import DeviceUnavailable
from vyre_py.drivers.wgpu.adapter import AdapterProperties
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.settings import Settings, SettingsError, unknown_variables


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has doctor look at few things only, and start a program of the test's in place of a look."""

    def use(*names: str, program: str | None = None) -> None:
        monkeypatch.setattr(doctor, "PROBES", {name: probes.PROBES[name] for name in names})
        if program is not None:
            monkeypatch.setattr(doctor, "_command", lambda name: [sys.executable, "-c", program])

    return use


@pytest.fixture(autouse=True)
def cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a disk cache, which other tests do without."""
    monkeypatch.delenv("VYRE_CACHE_LIMIT", raising=False)


# ---------------------------------------------------------------- doctor


def test_doctor_finds_the_devices_that_need_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("VYRE_DEVICE", "cpu")
    report = told(capsys, "doctor")
    found = {finding["name"]: finding for finding in report["findings"]}
    assert report["ok"] is True and all(set(finding) == {"group", "name", "status", "detail", "help"} for finding in report["findings"])
    for name in ("Python", "system", "vyre-py", "numpy", "llvmlite", "LLVM", "disk cache", "reference:0", "cpu:0", "VYRE_DEVICE"):
        assert found[name]["status"] == "ok", found[name]
    assert "self test right" in found["cpu:0"]["detail"] and str(tmp_path) in found["disk cache"]["detail"]
    assert {"cuda-bindings", "wgpu", "libNVVM", "nvJitLink", "nvdisasm"} <= set(found)
    assert all(finding["help"] for finding in report["findings"] if finding["status"] == "missing")


def test_doctor_in_words(capsys: pytest.CaptureFixture[str], few: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    few("reference")  # and so the device cpu is not found
    Path(tmp_path / "file").touch()
    monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("VYRE_DEVICE", "tpu")
    monkeypatch.setenv("VYRE_POOL_RELEASE_TRESHOLD", "1")
    status, out, err = said(capsys, "doctor", "--timeout", "30")
    assert (status, err) == (1, "") and out.endswith("vyre-py does not work here: cpu:0 failed\n")
    assert "  ok      reference:0 " in out and "not used, it is not a directory" in out and "VYRE_DEVICE='tpu'" in out
    assert "did you mean VYRE_POOL_RELEASE_THRESHOLD?" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("program", "detail"),
    [
        ("import time; time.sleep(60)", "did not answer in time"),
        ("import os, signal; print('x'); os.kill(os.getpid(), signal.SIGSEGV)", "ended with signal 11"),
        ("import sys; print('out of luck', file=sys.stderr); sys.exit(3)", "ended with status 3: out of luck"),
        (f"print({probes.MARK!r} + 'no JSON')", "gave an invalid finding"),
        (f"print({probes.MARK!r} + '[{{}}]')", "gave an invalid finding"),
    ],
)
def test_a_look_that_hangs_or_crashes_is_a_finding(program: str, detail: str, few: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    few("cuda", program=program)
    status, out, _ = said(capsys, "doctor", "--json", "--timeout", "1" if "sleep" in program else "30")
    found = {finding["name"]: finding for finding in json.loads(out)["findings"]}
    assert status == 1 and found["cuda"]["status"] == "failed" and detail in found["cuda"]["detail"]


def test_a_look_that_raises_is_a_finding() -> None:
    def raises(error: Exception) -> Callable[[], Iterator[Finding]]:
        def look() -> Iterator[Finding]:
            yield Finding("devices", "cuda:0", "ok", "good")
            raise error

        return look

    cases: list[tuple[Exception, str, str, str]] = [
        (DeviceUnavailable("no driver", cause="none", remedy="install one"), "missing", "no driver likely cause: none", "install one"),
        (Unsupported("here", [Missing("nvvm", help="pip install it")]), "missing", "here does not support nvvm (pip install it)", "pip install it"),
        (vyre_py.LaunchError("lost"), "failed", "lost", ""), (ZeroDivisionError("by zero"), "failed", "ZeroDivisionError: by zero", ""),
    ]  # fmt: skip
    for error, *wanted in cases:
        good, bad = probes.isolated("devices", "cuda", raises(error))
        assert good.status == "ok" and [bad.status, bad.detail, bad.help] == wanted


# ---------------------------------------------------------------- devices


def test_devices_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KINDS", ("cpu", "reference"))
    rows = told(capsys, "devices")["devices"]
    assert [(row["name"], row["available"]) for row in rows] == [("cpu:0", True), ("reference:0", True)] and all(row["description"] for row in rows)


def test_devices_with_all_that_is_known(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KINDS", ("cpu", "reference"))
    first, second = told(capsys, "devices", "--all")["devices"]
    assert first["properties"]["target"] == "cpu" and first["properties"]["buffer_bytes"] > 0
    assert second["properties"]["workgroups"] == list(registry.device("reference").limits.workgroups)
    found = AdapterProperties("a\x1b", "b", "c", "CPU", "Vulkan", 1, 2, 8, ("f", "g"), (), {"h": 3})
    monkeypatch.setattr(registry.device("reference"), "properties", found, raising=False)
    assert main(["devices", "--all"]) == 0
    out = capsys.readouterr().out
    assert "features: f, g" in out and "limits: h 3" in out and "\x1b" not in out


# ---------------------------------------------------------------- cache


def key(name: str) -> CacheKey:
    return CacheKey("ptx", (("program", name), ("target", "sm_90")))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskCache:
    monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path / "cache"))
    made = DiskCache.open_default()
    assert made.put(key("first"), b"a" * 100) and made.put(key("second\x1b[2J\u202e\nkind=x"), b"b" * 200)
    return made


def test_cache_stats_and_list(cache: DiskCache, capsys: pytest.CaptureFixture[str]) -> None:
    report = told(capsys, "cache", "stats")
    assert (report["path"], report["in_use"], report["entries"]) == (str(cache.path), True, 2) and report["size_bytes"] > 300
    assert f"{cache.path}\n2 entries, " in said(capsys, "cache", "stats")[1]
    rows = told(capsys, "cache", "list")["entries"]
    assert {row["name"] for row in rows} == {key("first").name, key("second\x1b[2J\u202e\nkind=x").name}
    assert {row["key"]["program"] for row in rows} == {"first", "second\x1b[2J\u202e\nkind=x"} and all(row["kind"] == "ptx" for row in rows)
    out = said(capsys, "cache", "list")[1]
    assert len(out.splitlines()) == 2 and "program=first target=sm_90" in out and all(c.isprintable() or c == "\n" for c in out)


def test_cache_verify_clear_export_import(cache: DiskCache, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    assert told(capsys, "cache", "export", bundle)["entries"] == 2
    assert told(capsys, "cache", "verify") == {"good": 2, "size_bytes": 300, "bad": []}
    assert cache.path is not None
    entry = cache.path / key("first").name
    entry.write_bytes(entry.read_bytes()[:-1])
    status, out, _ = said(capsys, "cache", "verify", "--json")
    assert status == 1 and json.loads(out)["bad"] == [{"name": key("first").name, "reason": "layout"}]
    assert told(capsys, "cache", "clear")["removed"] == 1 and told(capsys, "cache", "list")["entries"] == []
    assert told(capsys, "cache", "import", bundle)["entries"] == 2
    assert cache.get(key("first")) == b"a" * 100
    assert said(capsys, "cache", "export", bundle)[1].startswith("2 entries written to ")
    bundle.write_bytes(b"nothing")
    status, out, err = said(capsys, "cache", "import", bundle, "--json")
    assert status == 1 and json.loads(out)["error"]["class"] == "CacheError" and err.startswith("vyre-py: ")


def test_a_cache_that_is_not_used_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path / "file"))
    assert told(capsys, "cache", "stats")["in_use"] is False
    for action in ("list", "verify", "clear"):
        status, _, err = said(capsys, "cache", action)
        assert status == 1 and "it is not a directory" in err
    monkeypatch.setenv("VYRE_CACHE_LIMIT", "0")
    assert "turned off" in said(capsys, "cache", "stats")[1] and "turned off" in said(capsys, "cache", "list")[2]


# ---------------------------------------------------------------- settings


def test_settings_have_defaults_and_read_the_environment() -> None:
    plain = Settings.from_environment({})
    assert (plain.device, plain.cache_dir, plain.cache_limit, plain.nvtx) == (None, None, 1 << 30, False) and not plain.model_fields_set
    given = {
        "VYRE_DEVICE": "cuda:1", "VYRE_CACHE_DIR": "/var/cache/x", "VYRE_CACHE_LIMIT": " 4096 ", "VYRE_CACHE_READ_ONLY": os.pathsep.join(["/a", "", "/b"]),
        "VYRE_DEVICE_POOL_BYTES": "0", "VYRE_POOL_RELEASE_THRESHOLD": "1", "VYRE_PINNED_POOL_BYTES": "2", "VYRE_NVTX": "yes", "PATH": "/bin",
        "VYRE_TRACE": "/t/{pid}.json", "VYRE_CPU_THREADS": "3",
    }  # fmt: skip
    found = Settings.from_environment(given)
    assert (found.device, found.cache_dir, found.cache_limit) == ("cuda:1", Path("/var/cache/x"), 4096)
    assert (found.cache_read_only, found.device_pool_bytes, found.pinned_pool_bytes, found.nvtx) == ((Path("/a"), Path("/b")), 0, 2, True)
    assert found.trace == Path("/t/{pid}.json") and plain.trace is None
    assert (found.cpu_threads, plain.cpu_threads) == (3, None)
    assert Settings.from_environment({"VYRE_NVTX": "0", "VYRE_DEVICE": ""}) == Settings(nvtx=False)
    with pytest.raises(ValueError, match="frozen"):
        found.device = "cpu"  # type: ignore[misc]  # read-only to the type checker as well


def test_settings_that_make_no_sense_are_all_told() -> None:
    bad = {"VYRE_DEVICE": "tpu\x1b[0m", "VYRE_CACHE_DIR": "", "VYRE_CACHE_LIMIT": "1GiB", "VYRE_PINNED_POOL_BYTES": "-1", "VYRE_DEVICE_POOL_BYTES": "\u0664"}
    with pytest.raises(SettingsError) as error:
        Settings.from_environment(bad)
    assert sorted(problem.partition("=")[0] for problem in error.value.problems) == sorted(bad) and "\x1b" not in str(error.value)
    for variable, values in {"VYRE_DEVICE": ("cuda:", "cuda:x", "cpu:12345", "CPU"), "VYRE_CPU_THREADS": ("0", "many")}.items():
        for value in values:
            with pytest.raises(SettingsError):
                Settings.from_environment({variable: value})


def test_variables_that_are_none_of_ours_are_found() -> None:
    assert unknown_variables({"VYRE_CACHE_DIR": "x", "HOME": "y"}) == ()
    assert unknown_variables({"VYRE_CACHE_DIRS": "x"}) == ("'VYRE_CACHE_DIRS' means nothing; did you mean VYRE_CACHE_DIR?",)
    assert unknown_variables({"VYRE_QUX": "x"}) == ("'VYRE_QUX' means nothing",)


def test_every_variable_that_is_read_is_a_setting() -> None:
    """What stands in the code as a text that is a variable's whole name; the statuses of the C ABI look alike."""
    read = set()
    for floor in ("ir", "lowering", "drivers", "vyre_py"):
        for path in (ROOT / floor).rglob("*.py"):
            texts = (node.value for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant) and isinstance(node.value, str))
            read |= {text for text in texts if re.fullmatch(r"VYRE_(?!OK$|ERROR_)[A-Z_]+[A-Z]", text)}
    assert read == {variable for variable, _, _ in Settings.rows()}


def test_settings_agree_with_those_who_obey_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults, and which values are refused: the parts that obey a variable read it themselves."""
    from vyre_py.drivers.cache.disk import LIMIT_BYTES
    from vyre_py.drivers.errors import DriverError
    from vyre_py.drivers.memory.pool import bytes_from

    assert Settings().cache_limit == LIMIT_BYTES
    for text in ("12", " 12 ", "", "x", "-1", "1.5", "\u0664"):
        monkeypatch.setenv("VYRE_CACHE_LIMIT", text)
        try:
            wanted: int | None = bytes_from("VYRE_CACHE_LIMIT", LIMIT_BYTES)
        except DriverError:
            wanted = None
        try:
            found: int | None = Settings.from_environment().cache_limit
        except SettingsError:
            found = None
        assert found == wanted, text


# ---------------------------------------------------------------- printing


class Terminal(io.StringIO):
    """A stream that a person watches."""

    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert (output.coloured(Terminal()), output.coloured(io.StringIO())) == (True, False)
    monkeypatch.setenv("TERM", "dumb")
    assert not output.coloured(Terminal())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert output.coloured(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not output.coloured(Terminal())


def test_what_a_terminal_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    screen, errors = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", errors)
    bad = tmp_path / "bad.vir"
    bad.write_text("program p(n) {\n  let \x1b[31m = 1\n}\n", encoding="utf-8")
    assert main(["check", str(bad), str(tmp_path / "none\x1b[31m")]) == 1
    assert screen.getvalue().startswith("\x1b[31mP101\x1b[0m ") and "\x1b" not in screen.getvalue().replace("\x1b[31mP101\x1b[0m", "")
    assert errors.getvalue().startswith("\x1b[31mvyre-py:\x1b[0m ") and errors.getvalue().count("\x1b") == 2


def test_sizes_and_times_for_people() -> None:
    assert [output.size_text(n) for n in (0, 1023, 1024, 1 << 20, 3 << 30)] == ["0 bytes", "1023 bytes", "1.0 KiB", "1.0 MiB", "3.0 GiB"]
    assert [output.time_text(n) for n in (0, 999, 12_345, 1.5e6, 2e9)] == ["0 ns", "999 ns", "12.3 us", "1.5 ms", "2 s"]


def test_ctrl_c_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vyre_py.cli.tables.ops", interrupted)
    assert said(capsys, "ops") == (130, "", "vyre-py: interrupted\n")


def test_help_loads_no_library_that_it_does_not_need() -> None:
    """The commands' modules come when they are called; what all of them have is NumPy."""
    program = (
        "import sys\nfrom vyre_py.__main__ import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), *sorted(n for n in sys.modules if n.startswith('vyre_py.')), file=sys.stderr)"
    )
    for arguments in (["--help"], ["run", "--help"], ["explain", "V201"], ["cache", "stats"]):
        environment = child_environment()
        done = subprocess.run([sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False)
        loaded = set(done.stderr.split())
        assert done.returncode == 0 and done.stdout and not loaded & {"llvmlite", "pydantic", "wgpu", "cuda", "PIL", "ml_dtypes", "platformdirs"}, done.stderr
        if "--help" in arguments:
            assert not loaded & {"vyre_py.drivers.device", "vyre_py.lowering.compile", "vyre_py.ir.passes"}
