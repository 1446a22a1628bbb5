"""Which Programs of invocations a Program of tiles becomes for each kind of target: the last one for any arguments, those before it better ones for some."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Final

from vyre_py.ir.check import Checked, check
from vyre_py.ir.check.facts import capabilities
from vyre_py.ir.check.uniformity import analyse
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing
from vyre_py.ir.language.nodes import TARGET_KINDS, BoxCopy, End, For, Let, Loop, Set, Statement, Tile, Value, Var
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS, modelled_product
from vyre_py.ir.language.types import Type, f64
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.llvm.gpu.architectures import generation
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import WITH_WARPGROUPS, Target
from vyre_py.lowering.tiles.cores import for_rings, uses_tensor_cores
from vyre_py.lowering.tiles.grid_walk import walks_grid
from vyre_py.lowering.tiles.lane_products import has_products_of_lanes
from vyre_py.lowering.tiles.packing import for_cpu, micro_kernel
from vyre_py.lowering.tiles.rewrite import without_tiles
from vyre_py.lowering.tiles.rings import RingPlan, RingTooLarge
from vyre_py.lowering.tiles.tensor import BYTE_FLOATS_SINCE, WARP, cores_take, invocations_for, is_modelled
from vyre_py.lowering.tiles.viewed import over_views

__all__ = ["copies_ahead", "host_tiles", "modelled", "ptx_tiles", "wgsl_tiles"]

# What tiles take of workgroup memory: on the CPU and for old GPUs what leaves room for other workgroups, for WebGPU what every device has.
_TILE_BYTES: Final = 48 << 10
_WGSL_TILE_BYTES: Final = 16 << 10
_WGSL_ELEMENT_BYTES: Final = 4  # what an element takes there at least
_REGISTER_BYTES: Final = 256 << 10  # of a multiprocessor, where a workgroup runs, on all GPUs from sm_50 on
_BY_ELEMENT: Final = frozenset({"fill", "iota"})  # what has no element before it is asked for
_MODELLED: Final = 90  # the generation whose tensor cores `mma_sm90` is
_UNPACKING: Final = range(90, 120)  # generations for which the assembler has `mma.sync` of floats of 8 bits compute f16
# What a workgroup may have, by the generation from which on it may: programs for tensor cores have one or two workgroups a multiprocessor.
_RING_BYTES: Final = {80: 160 << 10, 86: 96 << 10, 87: 160 << 10, 88: 96 << 10, 90: 227 << 10, 120: 96 << 10}


def ptx_tiles(program: Program, target: Target, options: CompileOptions) -> Sequence[Checked]:
    """A form for views of buffers, where that has wider accesses, and one for any; for tensor cores where the target has them and something uses them."""
    of = generation(target.arch)
    if of != _MODELLED and (missing := [Missing(s.op.name, program.place(k), "sm_90 has it") for k, s in enumerate(program.body) if is_modelled(s)]):
        raise Unsupported(target.name, missing)
    _require_registers(program, target)
    if of < BYTE_FLOATS_SINCE:
        program = _multiplied_plainly(program, lambda s: s.args[0].type.scalar.is_storage)
    if options.workgroup is None and of >= min(_RING_BYTES):
        chained = _chained(program) if of == _MODELLED else program
        if chained is not program:
            with suppress(Unsupported):  # what does not fit there is no reason to refuse it
                return _by_rings(chained, target, options)
        if uses_tensor_cores(program) or has_products_of_lanes(program, _most_bytes(target)):
            return _by_rings(program, target, options)
    _require_powers(target, options)
    wide = over_views(program, target.name, _TILE_BYTES, options.workgroup, WARP)
    if wide is None:
        return _invocations(program, target, options, _TILE_BYTES, lanes=WARP)
    # A launch takes either form, with as many invocations.
    return (check(wide), *_invocations(program, target, replace(options, workgroup=wide.workgroup), _TILE_BYTES, lanes=WARP))


def _require_registers(program: Program, target: Target) -> None:
    """Refuses what has to hold so many elements at once that no register is left for what is computed: they would go through memory."""
    told = [*_kept_by_loops(program), *_kept_over_folds(program)]
    found = [(what, index, taken) for what, index, taken in told if taken >= _REGISTER_BYTES]
    if found:
        room = f"of {_REGISTER_BYTES} in the registers of a multiprocessor,"
        raise Unsupported(target.name, [Missing(f"{what} of {taken} bytes, {room}", program.place(at), "use smaller tiles") for what, at, taken in found])


def _tile_bytes(type_: Type) -> int:
    return prod(type_.shape) * type_.scalar.size_bytes


@dataclass(frozen=True, slots=True)
class _Kept:
    """A tile: the statement that makes it and the last one that uses it, the bytes that it takes, or what it is computed from element by element, and the
    tiles that this is; none where it is not computed so."""

    made: int
    last: int
    taken: int
    sources: tuple[int, ...]


def _tiles(program: Program) -> dict[int, _Kept]:
    """The tiles of a Program, by number."""
    last = {a.id: index for index, s in enumerate(program.body) for a in s.args if isinstance(a, Value)}
    found: dict[int, _Kept] = {}
    for index, s in enumerate(program.body):
        if s.result is not None and s.result.type.is_tile:
            own, by_element = _tile_bytes(s.result.type), isinstance(s, Let) or (isinstance(s, Tile) and s.op.name in _BY_ELEMENT)
            sources = tuple([a.id for a in s.args if isinstance(a, Value) and a.id in found]) if by_element else ()
            taken = min(own, sum([found[one].taken for one in sources])) if by_element else own
            found[s.result.id] = _Kept(index, last.get(s.result.id, index), taken, sources)
    return found


def _kept_by_loops(program: Program) -> Iterator[tuple[str, int, int]]:
    """Each loop, with the bytes of the tiles that are there from turn to turn: variables from before it that its turns set, and values from before it that they
    compute with, element by element."""
    tiles, types = _tiles(program), {s.variable.id: s.variable.type for s in program.body if isinstance(s, Var) and s.variable.type.is_tile}
    declared = {s.variable.id: index for index, s in enumerate(program.body) if isinstance(s, Var)}
    opened: list[tuple[int, dict[tuple[str, int], int]]] = []  # each open loop: its statement, and what it keeps
    for index, s in enumerate(program.body):
        if isinstance(s, (For, Loop)):
            opened.append((index, {}))
        elif opened and isinstance(s, End) and program.match[opened[-1][0]] == index:
            begin, kept = opened.pop()
            yield "a loop that keeps from turn to turn tiles", begin, sum(kept.values())
        for begin, kept in opened:
            if isinstance(s, Set) and s.variable.id in types and declared[s.variable.id] < begin:
                kept["variable", s.variable.id] = _tile_bytes(types[s.variable.id])
            if isinstance(s, Let):
                kept |= {("value", a.id): tiles[a.id].taken for a in s.args if isinstance(a, Value) and a.id in tiles and tiles[a.id].made < begin}


def _kept_over_folds(program: Program) -> Iterator[tuple[str, int, int]]:
    """Each fold or scan, every element of which is needed first, with the bytes of the tiles that are there before it and used behind it; without those that
    are computed, element by element, from others that are."""
    tiles, alive = _tiles(program), dict[int, _Kept]()
    made_at = {tile.made: one for one, tile in tiles.items()}
    for index, s in enumerate(program.body):
        if isinstance(s, Tile) and s.op.fold:
            alive = {one: tile for one, tile in alive.items() if tile.last > index}
            kept = [tile.taken for tile in alive.values() if not tile.sources or any(source not in alive for source in tile.sources)]
            if kept:
                yield f"a fold or scan that keeps for later {'a tile' if len(kept) == 1 else 'tiles'}", index, sum(kept)
        if (one := made_at.get(index)) is not None:
            alive[one] = tiles[one]


def _most_bytes(target: Target) -> int:
    """What rings and all else of a workgroup may take of its memory."""
    return _RING_BYTES[max(known for known in _RING_BYTES if known <= generation(target.arch))]


def _by_rings(program: Program, target: Target, options: CompileOptions) -> Sequence[Checked]:
    """Forms with rings: one with boxes, where the target has them and they copy something (and where workgroups that read the grid walk by themselves), one for
    views of buffers, and one for any arguments."""
    memory_bytes = _most_bytes(target)
    warpgroups = target.arch in WITH_WARPGROUPS.values()
    unpacks = generation(target.arch) in _UNPACKING
    forms = [for_rings(program, target.name, memory_bytes, wide=wide, warpgroups=warpgroups, unpacks=unpacks) for wide in (True, False)]
    if warpgroups and options.boxes is not False and not (options.persistent or options.interruptible) and options.codegen == "llvm":
        boxes = for_rings(program, target.name, memory_bytes, wide=True, warpgroups=True, boxes=True, unpacks=unpacks)
        copies = any(isinstance(s, BoxCopy) for s in boxes.body)
        forms[:0] = [boxes] if copies and (walks_grid(boxes) or not options.indirect) else []  # words that count are set once
    return [_of_target(form) for form in forms]


def copies_ahead(program: Program, target: Target) -> bool:
    """Whether factors of the products of a Program of tiles are copied ahead for a target: there is room for their strips, and for the sums in registers."""
    if target.kind != "ptx" or generation(target.arch) < min(_RING_BYTES):
        return False
    if generation(target.arch) == _MODELLED:
        program = _chained(program)
    warpgroups = target.arch in WITH_WARPGROUPS.values()
    with suppress(RingTooLarge):
        invocations = invocations_for(program, warpgroups=warpgroups, unpacks=generation(target.arch) in _UNPACKING)
        return bool(RingPlan(program, invocations, _most_bytes(target), warpgroups=warpgroups).rings)
    return False


def _chained(program: Program) -> Program:
    """The Program whose strict products of f64 tensor cores compute where they take them: as chains of fused multiply-adds, with the same bits."""
    op = TILE_OPS["mma_sm90"]

    def one(s: Statement) -> Statement:
        taken = isinstance(s, Tile) and s.op.name == "mma" and s.args[0].type.scalar is f64
        return made if taken and isinstance(s, Tile) and cores_take(made := replace(s, op=op)) else s

    body = tuple(map(one, program.body))
    return program if body == program.body else replace(program, body=body)


def modelled(program: Program, model: str) -> Program:
    """The Program whose products on tensor cores have the bits of a model of `MODELS`, where that has the types."""

    def one(s: Statement) -> Statement:
        if not isinstance(s, Tile) or s.op.name != "mma_tensor":
            return s
        op = modelled_product(model, s.args[0].type.scalar)
        return s if op.result_type(tuple([a.type for a in s.values]), s.numbers) is None else replace(s, op=op)

    return replace(program, body=tuple(map(one, program.body)))


def _multiplied_plainly(program: Program, chosen: Callable[[Tile], bool]) -> Program:
    """The Program whose products that are `chosen` are not those of tensor cores."""
    op = TILE_OPS["mma"]
    return replace(program, body=tuple([replace(s, op=op) if isinstance(s, Tile) and s.op.name == "mma_tensor" and chosen(s) else s for s in program.body]))


def host_tiles(program: Program, target: Target, options: CompileOptions) -> Sequence[Checked]:
    """The one form that there is, with products by micro-kernels of what the CPU's registers hold."""
    with importing:
        from vyre_py.lowering.llvm.cpu.host import described
    _require_powers(target, options)
    cpu = described(target.arch)
    return (_of_target(for_cpu(program, target.name, _TILE_BYTES, options.workgroup, micro_kernel(cpu.vector_bytes, cpu.registers))),)


def wgsl_tiles(program: Program, target: Target, options: CompileOptions) -> Sequence[Checked]:
    """The one form that there is, with sums in blocks: a load has a check of its index, and so costs more than elsewhere."""
    return _invocations(program, target, options, _WGSL_TILE_BYTES, _WGSL_ELEMENT_BYTES, blocks=True)


def _invocations(
    program: Program, target: Target, options: CompileOptions, memory_bytes: int, least_bytes: int = 1, lanes: int = 0, *, blocks: bool = False
) -> Sequence[Checked]:
    _require_powers(target, options)
    return (check(without_tiles(program, target.name, memory_bytes, options.workgroup, least_bytes, lanes, blocks=blocks)),)


def _require_powers(target: Target, options: CompileOptions) -> None:
    if options.workgroup is not None and any(extent & extent - 1 for extent in options.workgroup):
        help_ = "tiles are shared out among numbers of invocations that are powers of two along x, y and z"
        raise Unsupported(target.name, [Missing(f"option workgroup={options.workgroup!r} for a Program of tiles", help=help_)])


def _of_target(program: Program) -> Checked:
    """A Program which may have statements of a target's: they are none of the language, which `check` takes alone."""
    if not any(isinstance(s, TARGET_KINDS) for s in program.body):
        return check(program)
    return Checked(program, analyse(program), capabilities(program))
