"""The examples run as a newcomer would run them, and the photograph comes out the same everywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from children import child_environment
from device_kinds import need_package, open_device
from PIL import Image, ImageSequence
from tree import ROOT

import vyre_py as vp
from vyre_py.__main__ import main
from vyre_py.demo import programs
from vyre_py.demo.photograph import process
from vyre_py.demo.picture import read_picture, write_animation
from vyre_py.drivers.device import Device

PHOTOGRAPH = ROOT / "examples" / "data" / "chelsea.png"
# Example -> the package that it needs, and what VYRE_REQUIRE_DEVICES calls that.
NEEDS = {
    "16_jax": ("jax", "jax"), "17_heat_mpi": ("mpi4py", "mpi"), "18_heat_dask": ("distributed", "dask"), "19_torch_distributed": ("torch", "torch"),
    "20_shard_map": ("jax", "jax"),
}  # fmt: skip
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_example(example: Path, kind: str, tmp_path: Path) -> None:
    open_device(kind)
    need_package(*NEEDS.get(example.stem, ("vyre_py", "")))
    environment = child_environment()
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example), kind], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 80
    for written in tmp_path.glob("*.png"):
        assert read_picture(written).std() > 20
    for written in tmp_path.glob("*.gif"):
        with Image.open(written) as animation:
            frames = [np.asarray(frame.convert("RGB"), np.float32) for frame in ImageSequence.Iterator(animation)]
        assert len(frames) > 20 and frames[-1].std() > 20 and np.abs(frames[-1] - frames[0]).max() > 100


@pytest.mark.parametrize("ranks", [2, 3])
def test_heat_over_mpi_ranks(ranks: int, tmp_path: Path) -> None:
    need_package("mpi4py", "mpi")
    start = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    assert start, "mpi4py is here, and mpiexec is not: pip install mpich"
    (example,) = [path for path in EXAMPLES if path.stem == "17_heat_mpi"]
    command = [start, "-n", str(ranks), sys.executable, "-W", "error", str(example)]
    done = subprocess.run(command, cwd=tmp_path, env=child_environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and f"{ranks} ranks: the bits of one process" in done.stdout, done.stderr


def test_what_the_toy_compiler_compiles_runs_on_wgpu(tmp_path: Path) -> None:
    open_device("wgpu")
    (example,) = [path for path in EXAMPLES if path.stem == "08_expressions"]
    command = [sys.executable, "-W", "error", str(example), "wgpu"]
    done = subprocess.run(command, cwd=tmp_path, env=child_environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and "wgsl, cpu compiled; right on wgpu" in done.stdout, done.stderr
    assert vp.Artifact.load(tmp_path / "formula.vyre").interface.name == "formula"


def test_the_same_picture_bit_for_bit(strict_device: Device) -> None:
    picture = read_picture(PHOTOGRAPH)
    expected = process(open_device("reference"), picture)
    report = process(strict_device, picture)
    assert report.digest == expected.digest
    assert [step.name for step in report.steps] == ["upload", "histogram", "tone_curve", "equalise", "blur", "sharpen", "download"]
    assert report.telemetry["launches"] == 5


def test_almost_the_same_picture_on_wgpu() -> None:
    picture = read_picture(PHOTOGRAPH)
    expected = process(open_device("reference"), picture).picture.astype(int)
    got = process(open_device("wgpu"), picture).picture.astype(int)
    assert np.abs(got - expected).max() <= 1  # native floats may round a pixel the other way


def test_the_programs_do_what_numpy_does(strict_device: Device) -> None:
    picture = read_picture(PHOTOGRAPH)[:50, :70]
    luma = (picture.astype(np.uint32) * np.array([77, 150, 29], np.uint32)).sum(axis=2) >> 8
    bins = strict_device.compile_native(programs.histogram()).dispatch({"picture": picture, "bins": np.zeros(256, np.uint32)})["bins"]
    np.testing.assert_array_equal(bins, np.bincount(luma.ravel(), minlength=256))
    curve = strict_device.compile_native(programs.tone_curve()).dispatch({"bins": bins})["curve"]
    sums = np.cumsum(bins)
    first = sums[np.flatnonzero(bins)[0]]
    want = np.maximum(sums, first).astype(np.float32) - np.float32(first)
    np.testing.assert_array_equal(curve, want * np.float32(255) / np.float32(sums[-1] - first))
    blurred = strict_device.compile_native(programs.blur()).dispatch({"picture": picture})["blurred"]
    taps = np.exp(-np.square(np.arange(-programs.RADIUS, programs.RADIUS + 1) / programs.SIGMA) / 2)
    taps /= taps.sum()
    padded = np.pad(picture.astype(np.float64), ((programs.RADIUS,) * 2, (programs.RADIUS,) * 2, (0, 0)), mode="edge")
    rows = sum(taps[k] * padded[:, k : k + 70] for k in range(len(taps)))
    np.testing.assert_allclose(blurred, sum(taps[k] * rows[k : k + 50] for k in range(len(taps))), atol=1e-4)


def test_the_accesses_of_the_demo_are_proven_as_far_as_they_can_be(strict_device: Device) -> None:
    makers = (programs.histogram, programs.tone_curve, programs.equalise, programs.blur, programs.sharpen)
    kept = {make.__name__: strict_device.compile_native(make()).report["checks_kept"] for make in makers}
    # Left in the blur: a picture may have no rows or columns at all, so that its clamped edge lies outside, and the same at the store.
    assert kept == {"histogram": 0, "tone_curve": 0, "equalise": 0, "blur": kept["blur"], "sharpen": 0} and kept["blur"] <= 4


def test_demo_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "result.png"
    assert main(["demo", "--device", "cpu", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "tone_curve" in text and "telemetry: " in text and "SHA-256" in text
    assert read_picture(out).shape == read_picture(PHOTOGRAPH).shape


@pytest.mark.parametrize("ending", ["gif", "png"])
def test_animations_hold_every_frame(ending: str, tmp_path: Path) -> None:
    frames = [np.full((8, 12, 3), shade, np.uint8) for shade in (0, 100, 200, 100)]
    write_animation(tmp_path / f"a.{ending}", frames, frame_ms=50)
    with Image.open(tmp_path / f"a.{ending}") as animation:
        shades = [int(np.asarray(frame.convert("L"))[3, 4]) for frame in ImageSequence.Iterator(animation)]
        assert animation.info["duration"] == 50
    assert shades == [0, 100, 200, 100]
    for path, given in ((tmp_path / "nowhere" / f"a.{ending}", frames), (tmp_path / "a.nothing", frames), (tmp_path / f"b.{ending}", [])):
        with pytest.raises(vp.DriverError, match="could not be written"):
            write_animation(path, given)


def test_command_line_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--device", "tpu"]) == 1
    assert "there is no device 'tpu'" in capsys.readouterr().err
    (tmp_path / "no.png").write_text("no picture", encoding="utf-8")
    assert main(["demo", "--device", "cpu", "--picture", str(tmp_path / "no.png")]) == 1
    assert "not a picture that can be read" in capsys.readouterr().err
    assert main(["demo", "--device", "cpu", "--out", str(tmp_path / "nowhere" / "x.png")]) == 1
    assert "could not be written" in capsys.readouterr().err
    assert main(["devices"]) == 0
    assert "cpu:0" in capsys.readouterr().out
    with pytest.raises(SystemExit) as wrong:
        main(["paint"])
    assert wrong.value.code == 2


def test_axpy_becomes_one_guard() -> None:
    with vp.ProgramBuilder("axpy") as b:
        n, a = b.dim("n"), b.param("a", vp.f32)
        x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n)
        i = b.global_id(0)
        y[i] = a * x[i] + y[i]
    pipeline = open_device("cpu").compile_native(b.program)
    assert pipeline.report["checks_kept"] == 0 and pipeline.report["checks_removed"] == 3
