"""The pictures of `docs/guide/tiles.md`: of its own Program, of the layouts and rings that this is compiled with, and of the committed figures."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from svg_picture import DARK, LIGHT, MIDDLE, PALE, WARM, Picture
from tree import ROOT, on_path

on_path()

from vyre_py.ir.language.dims import evaluate_dim  # noqa: E402 - the path above must stand first
from vyre_py.ir.language.nodes import For, Statement, TileLoad, TileStore, WarpgroupRegisters  # noqa: E402 - as above
from vyre_py.ir.language.program import Program  # noqa: E402 - as above
from vyre_py.ir.language.types import bf16  # noqa: E402 - as above
from vyre_py.ir.text.parser import parse  # noqa: E402 - as above
from vyre_py.lowering.tiles.cores import for_rings  # noqa: E402 - as above
from vyre_py.lowering.tiles.rings import Ring, RingPlan  # noqa: E402 - as above
from vyre_py.lowering.tiles.tensor import WARP, accumulators, invocations_for  # noqa: E402 - as above
from vyre_py.lowering.tiles.tile_layout import Line, TileLayout, invocation_grid  # noqa: E402 - as above
from vyre_py.ops.products import TILES, matmul  # noqa: E402 - as above

__all__ = ["PICTURES"]

_PAGE: Final = ROOT / "docs" / "guide" / "tiles.md"
_SIZES: Final = {"m": 70, "n": 90, "k": 50}  # those of the page
_GROUP: Final = (1, 0)  # the workgroup that is shown, along x and y
_TURN: Final = 1  # of its loop
_ROOM_BYTES: Final = 1 << 17  # for rings


def _product(tensor: bool = False, pipeline: int = 0) -> Program:
    """The product of the page, as it is printed there; for tensor cores, and with a depth, where asked for."""
    found = re.search(r"^```\n(program matmul.*?)^```", _PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    text = found[1].replace("mma(", "mma_tensor(") if tensor else found[1]
    return parse(text.replace("step 32 {", f"step 32 pipeline({pipeline}) {{") if pipeline else text)


def _of(program: Program, kind: type[Statement]) -> list[int]:
    return [index for index, s in enumerate(program.body) if isinstance(s, kind)]


# ---------------------------------------------------------------- the pictures


def walk() -> str:
    """Which parts of the arrays a workgroup reads and writes, and what is outside."""
    program = _product()
    shapes = {m.name: tuple([evaluate_dim(extent, _SIZES) for extent in m.shape]) for m in program.buffers}
    tiles = {s.memory.name: s.shape for s in program.body if isinstance(s, (TileLoad, TileStore))}
    (across, down), (rows, columns), depth = _GROUP, tiles["z"], tiles["x"][1]
    first = {"x": (down * rows, _TURN * depth), "y": (_TURN * depth, across * columns), "z": (down * rows, across * columns)}
    walked = {"x": (down * rows, 0, rows, shapes["x"][1]), "y": (0, across * columns, shapes["y"][0], columns), "z": (*first["z"], rows, columns)}
    corners = {"x": (40, 200), "y": (200, 40), "z": (200, 200)}
    picture = Picture(660, 430, "How the tiles of a product walk")
    scale = 2
    for name, (left, top) in corners.items():
        height, width = shapes[name]
        picture.box(left, top, scale * width, scale * height, PALE)
        row, column, tall, wide = walked[name]
        picture.box(left + scale * column, top + scale * row, scale * min(wide, width - column), scale * min(tall, height - row), LIGHT)
        (row, column), (tall, wide) = first[name], tiles[name]
        picture.box(left + scale * column, top + scale * row, scale * wide, scale * tall, "none", dashed=True, line=DARK)
        picture.box(left + scale * column, top + scale * row, scale * min(wide, width - column), scale * min(tall, height - row), MIDDLE)
        picture.text(left + 4, top - 6 if name != "z" else top + scale * height + 16, f"{name}[{height}, {width}]")
    picture.legend(470, 330, [
        (PALE, "of other workgroups"), (LIGHT, f"of workgroup ({across}, {down})"), (MIDDLE, f"in turn {_TURN}, p = {_TURN * depth}"),
        ("white", "dashed: zero or dropped"),
    ])  # fmt: skip
    return picture.svg()


def _places(layout: TileLayout, shape: tuple[int, int], invocation: int) -> list[tuple[int, int]]:
    """The elements of a tile that an invocation holds."""

    def place(line: Line) -> int:
        return invocation // line.over % line.count * line.step + (place(line.then) if line.then is not None else 0)

    down, across = [[place(layout.line(shape, axis)) + offset for offset in layout.offsets(shape, axis)] for axis in (0, 1)]
    return [(row, column) for row in down for column in across]


def holders() -> str:
    """Which elements of the sums some invocations hold: in the layout of all tiles, and in that of tensor cores."""
    plain, tensor = _product(), _product(tensor=True)
    (at,) = _of(tensor, TileStore)
    stored = tensor.body[at]
    assert isinstance(stored, TileStore)
    shape = (stored.shape[0], stored.shape[1])
    grid = invocation_grid(tensor, count=invocations_for(tensor, warpgroups=False))
    (sums,) = set(accumulators(tensor, grid).values.values())
    own = invocation_grid(plain)
    picture, scale = Picture(700, 400, "Who holds which sums"), 5
    for left, layout, count, words in (
        (20, own, own.count, f"as all tiles lie: {own.rows} x {own.columns} invocations"),
        (370, sums, grid.count, f"as tensor cores want it: {grid.count // WARP} warps"),
    ):  # fmt: skip
        picture.text(left, 18, words)
        picture.box(left, 28, scale * shape[1], scale * shape[0], PALE)
        for invocation, fill in ((1, LIGHT), (0, DARK), (count - 1, WARM)):
            for row, column in _places(layout, shape, invocation):
                picture.box(left + scale * column, 28 + scale * row, scale, scale, fill)
    picture.legend(20, 360, [(DARK, "invocation 0"), (LIGHT, "invocation 1")])
    picture.legend(160, 360, [(WARM, "the last one"), (PALE, f"all others: {shape[0]} x {shape[1]} sums")])
    return picture.svg()


def _ring(warpgroups: bool, pipeline: int) -> Ring:
    program = _product(tensor=True, pipeline=pipeline)
    plan = RingPlan(program, invocations_for(program, warpgroups=warpgroups), _ROOM_BYTES, warpgroups=warpgroups)
    (loop,) = _of(program, For)
    return plan.rings[loop]


def ring() -> str:
    """What becomes of each strip of workgroup memory, turn by turn."""
    made, turns = _ring(False, 4), 8
    picture, wide, tall = Picture(700, 70 + 34 * made.count + 90, "How a ring of strips turns"), 72, 34
    for turn in range(turns):
        picture.text(94 + wide * turn, 30, f"turn {turn}")
        for strip in range(made.count):
            use = turn + (strip - turn) % made.count  # the turn that the strip is filled for
            fill = DARK if use == turn else MIDDLE if use == turn + made.ahead else LIGHT
            picture.labelled(84 + wide * turn, 40 + tall * strip, wide, tall, [f"for turn {use}"], fill)
    for strip in range(made.count):
        picture.text(20, 62 + tall * strip, f"strip {strip}")
    picture.legend(84, 60 + tall * made.count, [
        (DARK, "the tensor cores multiply it"), (MIDDLE, f"its copy begins, {made.ahead} turns ahead of its use"), (LIGHT, "its copy is on its way"),
    ])  # fmt: skip
    return picture.svg()


def roles() -> str:
    """What the warpgroups of a workgroup do meanwhile where one of them copies, and which strips they have."""
    product = matmul(bf16, tiles="large")
    made = for_rings(product, "the picture", _ROOM_BYTES * 2 - (32 << 10), wide=True, warpgroups=True, boxes=True)
    few, many = [s.count for s in made.body if isinstance(s, WarpgroupRegisters)]
    count = next(evaluate_dim(m.shape[0], {}) for m in made.memories if m.name.startswith("tile:arrivals"))
    rows, columns, _ = TILES["large"]
    turns, wide, tall, left = 5, 72, 34, 190  # a place of the grid of so many turns, and the first one of the next
    picture = Picture(left + wide * (turns + 2) + 10, 70 + tall * (count + 3) + 90, "Who does what in a workgroup of three warpgroups")

    def name(turn: int) -> str:
        return f"turn {turn}" if turn < turns else f"next {turn - turns}"

    heads = [("copies", f"asks for {few} registers"), *[(f"rows {rows // 2 * k} to {rows // 2 * (k + 1) - 1}", f"asks for {many}") for k in range(2)]]
    for number, (what, registers) in enumerate(heads):
        picture.text(10, 62 + tall * number, f"{what}, {registers}")
    for strip in range(count):
        picture.text(10, 72 + tall * (strip + len(heads)), f"strip {strip}")
    for column in range(turns + 2):
        x, at, stores, waits = left + wide * column, min(column, turns), column == turns, column > turns
        begun = at - 1 + count  # into the strip of the turn before, which both have given back
        picture.text(x + wide / 2, 30, "stores" if stores else name(at), anchor="middle")
        picture.labelled(x, 40, wide, tall, ["waits" if waits else name(begun)], PALE if waits else MIDDLE)
        for k in range(2):
            picture.labelled(x, 40 + tall * (k + 1), wide, tall, [f"{rows // 2} x {columns}" if stores else name(at)], WARM if stores else DARK)
        for strip in range(count):
            use = at + (strip - at) % count  # the turn that it is filled for
            fill = DARK if use == at and not stores else MIDDLE if use == begun and not waits else LIGHT
            picture.labelled(x, 50 + tall * (strip + len(heads)), wide, tall, [name(use)], fill)
    picture.legend(left, 70 + tall * (count + len(heads)), [
        (DARK, "multiplied"), (MIDDLE, "its copy begins, once both warpgroups have done with the strip"), (LIGHT, "on its way, or there"),
        (WARM, "sums are stored, while factors of the next place of the grid come"),
    ])  # fmt: skip
    return picture.svg()


def rates() -> str:
    """What the steps of the page come to on an H100: the committed figures."""
    text = (ROOT / "docs" / "beside" / "figures.md").read_text(encoding="utf-8")

    def row(name: str) -> tuple[float, float]:
        """The last rate of a row, here and beside PyTorch's."""
        found = re.search(rf"^\| {re.escape(name)} \| ([^|]+) \| ([^|;]+)", text, re.MULTILINE)
        assert found is not None, f"the page has no figures of {name}"
        rate, share = [float(one.split("/")[-1].replace(",", "")) for one in found.groups()]
        return rate, rate / share

    (warps, _), (groups, peer), (tf32, tf32_peer) = row("8192^3, by code for sm_80"), row("8192^3"), row("8192^3, transposed, f32 (tf32)")
    bars = [
        ("bf16, mma.sync: code for sm_80", warps, LIGHT), ("bf16, wgmma: code for sm_90a", groups, DARK), ("bf16, PyTorch with cuBLAS", peer, WARM),
        ("tf32, wgmma: code for sm_90a", tf32, DARK), ("tf32, PyTorch with cuBLAS", tf32_peer, WARM),
    ]  # fmt: skip
    picture = Picture(700, 40 + 34 * len(bars), "Rates of the steps")
    picture.text(20, 22, "8192^3, second factor transposed, TFLOP/s on one H100: python -m tests.bench.cuda --only matmul")
    for number, (name, rate, fill) in enumerate(bars):
        picture.text(20, 54 + 34 * number, name)
        picture.box(230, 38 + 34 * number, 400 * rate / max(rate for _, rate, _ in bars), 24, fill)
        picture.text(640, 54 + 34 * number, f"{rate:.0f}")
    return picture.svg()


PICTURES: Final[dict[str, Callable[[], str]]] = {f"docs/pictures/tiles-{make.__name__}.svg": make for make in (walk, holders, ring, roles, rates)}
