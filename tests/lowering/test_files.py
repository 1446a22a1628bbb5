"""Files that are written whole: links stay, devices and pipes are written to, and nobody sees half a file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from children import child_environment

import vyre_py as vp
from vyre_py.__main__ import main
from vyre_py.drivers.cache.disk import DiskCache
from vyre_py.lowering.files import replacing

TEXT = "program copy(n) {\n  buffer x: f32[n] read\n  buffer y: f32[n] write\n  y[global_id.x] = x[global_id.x]\n}\n"


def put(path: Path, data: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(data)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    put(path, b"first")
    held = path.open("rb")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]  # what fails half way
    assert path.read_bytes() == b"first" and list(tmp_path.iterdir()) == [path]
    put(path)
    with held:
        assert held.read() == b"first"  # who had it open has the old one
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


def test_links_stay(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link, chain, dangling = (tmp_path / name for name in ("there/target", "link", "chain", "dangling"))
    target.write_bytes(b"old")
    link.symlink_to("there/target")
    chain.symlink_to(link)
    dangling.symlink_to("there/made")
    for given, found in ((link, target), (chain, target), (dangling, tmp_path / "there/made")):
        put(given, given.name.encode())
        assert given.is_symlink() and found.read_bytes() == given.name.encode() and not found.is_symlink()
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError):  # noqa: PT011 - the system's words
        put(loop)
    with pytest.raises(IsADirectoryError):
        put(tmp_path / "there")
    with pytest.raises(FileNotFoundError):
        put(tmp_path / "nowhere/file")


WRITERS: dict[str, Callable[[Path, Path], object]] = {
    "Artifact.save": lambda path, program: vp.compile_native(vp.Program.from_text(TEXT), targets=["wgsl"]).save(path),
    "trace": lambda path, program: vp.trace(path).__enter__().__exit__(None, None, None),
    "DiskCache.export": lambda path, program: DiskCache(path.parent / "cache").export(path),
    "compile": lambda path, program: main(["compile", str(program), "--target", "wgsl", "-o", str(path)]),
    "cache export": lambda path, program: main(["cache", "export", str(path)]),
    "lower": lambda path, program: main(["lower", str(program), "--emit", "wgsl", "-o", str(path)]),
    "run": lambda path, program: main(["run", str(program), "--device", "reference", "x=1,2", "--out", f"y={path}"]),
}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "copy.vir"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("writer", WRITERS)
def test_every_writer_leaves_a_pipe_and_a_link_what_they_are(writer: str, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("VYRE_CACHE_LIMIT", raising=False)
    pipe, target, link = tmp_path / "pipe", tmp_path / "target", tmp_path / "link"
    os.mkfifo(pipe)
    target.write_bytes(b"old")
    link.symlink_to(target)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    WRITERS[writer](pipe, program)
    reader.join(60)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and len(read[0]) > 8
    WRITERS[writer](link, program)
    assert link.is_symlink() and target.read_bytes()[:8] == read[0][:8]
    assert not list(tmp_path.glob("*.tmp"))


def test_a_device_stays_one(program: Path, tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        with device.open("wb") as file:
            file.write(b"x")
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    for write in WRITERS.values():
        write(device, program)
        assert stat.S_ISCHR(device.stat().st_mode)


def test_compile_writes_to_standard_output(program: Path) -> None:
    command = [sys.executable, "-m", "vyre_py", "compile", str(program), "--target", "wgsl", "-o", "-"]
    done = subprocess.run(command, capture_output=True, env=child_environment(), timeout=120, check=True)
    assert vp.Artifact.from_bytes(done.stdout) == vp.compile_native(vp.Program.from_text(TEXT), targets=["wgsl"]) and not done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("copy.vir", "b.vir", "-o", "out.vyre"), "-o names a folder, and 'out.vyre' is not"),
        (("copy.vir", "b.vir", "-o", "copy.vir"), "-o names a folder, and 'copy.vir' is not"),
        (("copy.vir", "copy.vir", "-o", "d"), "copy.vir and copy.vir would both become 'd/copy.vyre'"),
        (("copy.vir", "d/copy.vir"), "copy.vir and d/copy.vir would both become 'copy.vyre'"),
        (("-", "-", "-o", "d"), "standard input can be read once only"),
        (("copy.vir", "b.vir", "-o", "-"), "standard output takes one artifact"),
        (("copy.vir", "-o", "-", "--json"), "standard output takes one artifact"),
        (("copy.vir", "-o", "copy.vir"), "'copy.vir' is the Program itself"),
        (("copy.vir", "-o", "link.vir"), "'link.vir' is the Program itself"),
        (("copy.vir", "-o", ""), "-o needs a name"),
        (("-",), "standard input needs -o"),
    ],
)
def test_compile_refuses_what_says_two_things(
    arguments: tuple[str, ...], words: str, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    for copy in ("b.vir", "d/copy.vir"):
        (tmp_path / copy).write_text(TEXT)
    (tmp_path / "link.vir").symlink_to(program)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as ended:
        main(["compile", "--target", "wgsl", *arguments])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err and sorted(tmp_path.rglob("*")) == before and program.read_text() == TEXT


def test_compile_names_artifacts_in_folders(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.vir").write_text(TEXT)
    for out, files, made in (("new/", ["copy.vir"], ["new/copy.vyre"]), ("both", ["copy.vir", "b.vir"], ["both/b.vyre", "both/copy.vyre"])):
        assert main(["compile", "--target", "wgsl", *files, "-o", out]) == 0
        assert sorted(str(path.relative_to(tmp_path)) for path in Path(out).resolve().iterdir()) == made
    capsys.readouterr()
