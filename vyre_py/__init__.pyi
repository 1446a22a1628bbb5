"""Made from `vyre_py/_names.py` and `ir/language/ops.py` by `python tests/pages.py`; changes belong there."""

from vyre_py.drivers.cache.directory import CacheWarning as CacheWarning
from vyre_py.drivers.cache.disk import DiskCache as DiskCache
from vyre_py.drivers.cache.lookup import cache_layers as cache_layers
from vyre_py.drivers.cache.lookup import disk_cache as disk_cache
from vyre_py.drivers.callable import CallEntry as CallEntry
from vyre_py.drivers.config import DispatchConfig as DispatchConfig
from vyre_py.drivers.device import Device as Device
from vyre_py.drivers.device import Limits as Limits
from vyre_py.drivers.dispatch import Timed as Timed
from vyre_py.drivers.errors import BindingError as BindingError
from vyre_py.drivers.errors import CacheError as CacheError
from vyre_py.drivers.errors import DeviceLost as DeviceLost
from vyre_py.drivers.errors import DeviceUnavailable as DeviceUnavailable
from vyre_py.drivers.errors import DispatchTimeout as DispatchTimeout
from vyre_py.drivers.errors import DriverError as DriverError
from vyre_py.drivers.errors import KernelAssertion as KernelAssertion
from vyre_py.drivers.errors import LaunchError as LaunchError
from vyre_py.drivers.errors import OutOfMemory as OutOfMemory
from vyre_py.drivers.event import Event as Event
from vyre_py.drivers.launch import Launch as Launch
from vyre_py.drivers.lru import LayerSnapshot as LayerSnapshot
from vyre_py.drivers.many.chain import Chain as Chain
from vyre_py.drivers.many.collectives import all_gather_step as all_gather_step
from vyre_py.drivers.many.collectives import all_reduce_step as all_reduce_step
from vyre_py.drivers.many.collectives import broadcast_step as broadcast_step
from vyre_py.drivers.many.collectives import exchange_step as exchange_step
from vyre_py.drivers.many.collectives import reduce_scatter_step as reduce_scatter_step
from vyre_py.drivers.many.graph import Graph as Graph
from vyre_py.drivers.many.rank_watch import RankWatch as RankWatch
from vyre_py.drivers.many.rank_watch import watch_ranks as watch_ranks
from vyre_py.drivers.many.sequence import Sequence as Sequence
from vyre_py.drivers.many.sequence import SequenceStep as SequenceStep
from vyre_py.drivers.many.sequence import copy_step as copy_step
from vyre_py.drivers.many.sequence import fill_step as fill_step
from vyre_py.drivers.many.sequence import gemm_step as gemm_step
from vyre_py.drivers.memory.arena.arena import Arena as Arena
from vyre_py.drivers.memory.arena.planner import ArenaPlan as ArenaPlan
from vyre_py.drivers.memory.arena.planner import ArenaStep as ArenaStep
from vyre_py.drivers.memory.arena.planner import ArenaValue as ArenaValue
from vyre_py.drivers.memory.arena.planner import plan_arena as plan_arena
from vyre_py.drivers.memory.buffer import Buffer as Buffer
from vyre_py.drivers.memory.store import ResidentStore as ResidentStore
from vyre_py.drivers.memory.store import StoreSnapshot as StoreSnapshot
from vyre_py.drivers.memory.weights import Weights as Weights
from vyre_py.drivers.observe.snapshot import Snapshot as Snapshot
from vyre_py.drivers.observe.snapshot import prometheus_text as prometheus_text
from vyre_py.drivers.observe.trace import Trace as Trace
from vyre_py.drivers.observe.trace import trace as trace
from vyre_py.drivers.pending import Pending as Pending
from vyre_py.drivers.pipeline import Pipeline as Pipeline
from vyre_py.drivers.process.executor import Executor as Executor
from vyre_py.drivers.registry import DeviceInfo as DeviceInfo
from vyre_py.drivers.registry import device as device
from vyre_py.drivers.registry import devices as devices
from vyre_py.drivers.registry import is_available as is_available
from vyre_py.export_c import export_c as export_c
from vyre_py.export_web import export_web as export_web
from vyre_py.headers import include_dir as include_dir
from vyre_py.ir.builder.expressions import Expr as Expr
from vyre_py.ir.builder.expressions import Operand as _Operand
from vyre_py.ir.builder.expressions import const as const
from vyre_py.ir.builder.handles import ArrayHandle as ArrayHandle
from vyre_py.ir.builder.handles import VariableHandle as VariableHandle
from vyre_py.ir.builder.program_builder import ProgramBuilder as ProgramBuilder
from vyre_py.ir.builder.sizes import Size as Size
from vyre_py.ir.builder.special import bitcast as bitcast
from vyre_py.ir.builder.special import cast as cast
from vyre_py.ir.builder.special import ceil_div as ceil_div
from vyre_py.ir.builder.special import max as max
from vyre_py.ir.builder.special import min as min
from vyre_py.ir.builder.special import mma as mma
from vyre_py.ir.builder.special import splat as splat
from vyre_py.ir.builder.special import vec2 as vec2
from vyre_py.ir.builder.special import vec3 as vec3
from vyre_py.ir.builder.special import vec4 as vec4
from vyre_py.ir.builder.tiles.tile_array import TileArrayHandle as TileArrayHandle
from vyre_py.ir.builder.tiles.tile_builder import TileBuilder as TileBuilder
from vyre_py.ir.builder.traced import Traced as Traced
from vyre_py.ir.builder.traced import function as function
from vyre_py.ir.check import Checked as Checked
from vyre_py.ir.check import check as check
from vyre_py.ir.language.errors import Diagnostic as Diagnostic
from vyre_py.ir.language.errors import Missing as Missing
from vyre_py.ir.language.errors import ParseError as ParseError
from vyre_py.ir.language.errors import Place as Place
from vyre_py.ir.language.errors import ProgramError as ProgramError
from vyre_py.ir.language.errors import ProgramWarning as ProgramWarning
from vyre_py.ir.language.errors import RaceError as RaceError
from vyre_py.ir.language.errors import UnwrittenRead as UnwrittenRead
from vyre_py.ir.language.errors import ValidationError as ValidationError
from vyre_py.ir.language.errors import VyreError as VyreError
from vyre_py.ir.language.errors import WireError as WireError
from vyre_py.ir.language.program import Program as Program
from vyre_py.ir.language.types import Type as Type
from vyre_py.ir.language.types import bf16 as bf16
from vyre_py.ir.language.types import bool_ as bool_
from vyre_py.ir.language.types import f16 as f16
from vyre_py.ir.language.types import f32 as f32
from vyre_py.ir.language.types import f64 as f64
from vyre_py.ir.language.types import f8e4m3 as f8e4m3
from vyre_py.ir.language.types import f8e5m2 as f8e5m2
from vyre_py.ir.language.types import i16 as i16
from vyre_py.ir.language.types import i32 as i32
from vyre_py.ir.language.types import i64 as i64
from vyre_py.ir.language.types import i8 as i8
from vyre_py.ir.language.types import u16 as u16
from vyre_py.ir.language.types import u32 as u32
from vyre_py.ir.language.types import u64 as u64
from vyre_py.ir.language.types import u8 as u8
from vyre_py.lowering.artifact.artifact import Artifact as Artifact
from vyre_py.lowering.artifact.parts import Entry as Entry
from vyre_py.lowering.artifact.parts import Image as Image
from vyre_py.lowering.artifact.parts import Interface as Interface
from vyre_py.lowering.artifact.parts import Part as Part
from vyre_py.lowering.artifact.parts import Step as Step
from vyre_py.lowering.errors import ArtifactError as ArtifactError
from vyre_py.lowering.errors import LoweringError as LoweringError
from vyre_py.lowering.errors import ToolchainError as ToolchainError
from vyre_py.lowering.errors import Unsupported as Unsupported
from vyre_py.lowering.options import CompileOptions as CompileOptions
from vyre_py.lowering.stages import Stages as Stages
from vyre_py.lowering.target import Target as Target
from vyre_py.many import compile_many as compile_many
from vyre_py.native import compile_native as compile_native
from vyre_py.ops.sobol import Sobol as Sobol
from vyre_py.ops.sobol import sobol_program as sobol_program
from vyre_py.ops.sorts import Sort as Sort
from vyre_py.tuning.tune import Tried as Tried
from vyre_py.tuning.tune import Tuned as Tuned
from vyre_py.tuning.tune import tune as tune
from vyre_py import ops as ops

__all__ = ['Arena', 'ArenaPlan', 'ArenaStep', 'ArenaValue', 'ArrayHandle', 'Artifact', 'ArtifactError', 'BindingError', 'Buffer', 'CacheError', 'CacheWarning', 'CallEntry', 'Chain', 'Checked', 'CompileOptions', 'Device', 'DeviceInfo', 'DeviceLost', 'DeviceUnavailable', 'Diagnostic', 'DiskCache', 'DispatchConfig', 'DispatchTimeout', 'DriverError', 'Entry', 'Event', 'Executor', 'Expr', 'Graph', 'Image', 'Interface', 'KernelAssertion', 'Launch', 'LaunchError', 'LayerSnapshot', 'Limits', 'LoweringError', 'Missing', 'OutOfMemory', 'ParseError', 'Part', 'Pending', 'Pipeline', 'Place', 'Program', 'ProgramBuilder', 'ProgramError', 'ProgramWarning', 'RaceError', 'RankWatch', 'ResidentStore', 'Sequence', 'SequenceStep', 'Size', 'Snapshot', 'Sobol', 'Sort', 'Stages', 'Step', 'StoreSnapshot', 'Target', 'TileArrayHandle', 'TileBuilder', 'Timed', 'ToolchainError', 'Trace', 'Traced', 'Tried', 'Tuned', 'Type', 'Unsupported', 'UnwrittenRead', 'ValidationError', 'VariableHandle', 'VyreError', 'Weights', 'WireError', 'abs_diff', 'acos', 'acosh', 'all', 'all_gather_step', 'all_reduce_step', 'any', 'asin', 'asinh', 'atan', 'atan2', 'atanh', 'bf16', 'bf16x2', 'bf16x3', 'bf16x4', 'bitcast', 'bool_', 'boolx2', 'boolx3', 'boolx4', 'broadcast_step', 'cache_layers', 'cast', 'cbrt', 'ceil', 'ceil_div', 'check', 'clamp', 'clz', 'compile_many', 'compile_native', 'complex_abs', 'complex_div', 'complex_exp', 'complex_mul', 'const', 'copy_step', 'copysign', 'cos', 'cosh', 'cross', 'ctz', 'degrees', 'device', 'devices', 'disk_cache', 'distance', 'dot', 'dot4_i8', 'dot4_u8', 'erf', 'erfc', 'erfcx', 'erfinv', 'exchange_step', 'exp', 'exp10', 'exp2', 'expm1', 'export_c', 'export_web', 'extract_bits', 'f16', 'f16x2', 'f16x3', 'f16x4', 'f32', 'f32x2', 'f32x3', 'f32x4', 'f64', 'f64x2', 'f64x3', 'f64x4', 'f8e4m3', 'f8e4m3x2', 'f8e4m3x3', 'f8e4m3x4', 'f8e5m2', 'f8e5m2x2', 'f8e5m2x3', 'f8e5m2x4', 'fast', 'fill_step', 'floor', 'fma', 'fract', 'frexp_exponent', 'frexp_fraction', 'function', 'gemm_step', 'hypot', 'hypot3', 'i16', 'i16x2', 'i16x3', 'i16x4', 'i32', 'i32x2', 'i32x3', 'i32x4', 'i64', 'i64x2', 'i64x3', 'i64x4', 'i8', 'i8x2', 'i8x3', 'i8x4', 'include_dir', 'insert_bits', 'is_available', 'is_finite', 'is_inf', 'is_nan', 'ldexp', 'length', 'lgamma', 'log', 'log10', 'log1p', 'log2', 'max', 'min', 'mix', 'mma', 'modf_fraction', 'mul_hi', 'nextafter', 'normalize', 'ops', 'pack2x16_float', 'pack2x16_sint', 'pack2x16_snorm', 'pack2x16_uint', 'pack2x16_unorm', 'pack4x8_sint', 'pack4x8_snorm', 'pack4x8_uint', 'pack4x8_unorm', 'plan_arena', 'popcount', 'pow', 'prometheus_text', 'quantize_f16', 'radians', 'reduce_scatter_step', 'reflect', 'refract', 'remainder', 'reverse_bits', 'rotl', 'rotr', 'round', 'rsqrt', 'saturate', 'saturating_add', 'saturating_mul', 'saturating_sub', 'select', 'sign', 'sin', 'sinh', 'smoothstep', 'sobol_program', 'splat', 'sqrt', 'step', 'tan', 'tanh', 'trace', 'trunc', 'tune', 'u16', 'u16x2', 'u16x3', 'u16x4', 'u32', 'u32x2', 'u32x3', 'u32x4', 'u64', 'u64x2', 'u64x3', 'u64x4', 'u8', 'u8x2', 'u8x3', 'u8x4', 'unpack2x16_float', 'unpack2x16_sint', 'unpack2x16_snorm', 'unpack2x16_uint', 'unpack2x16_unorm', 'unpack4x8_sint', 'unpack4x8_snorm', 'unpack4x8_uint', 'unpack4x8_unorm', 'vec2', 'vec3', 'vec4', 'watch_ranks']

__version__: str

boolx2: Type
boolx3: Type
boolx4: Type
i8x2: Type
i8x3: Type
i8x4: Type
i16x2: Type
i16x3: Type
i16x4: Type
i32x2: Type
i32x3: Type
i32x4: Type
i64x2: Type
i64x3: Type
i64x4: Type
u8x2: Type
u8x3: Type
u8x4: Type
u16x2: Type
u16x3: Type
u16x4: Type
u32x2: Type
u32x3: Type
u32x4: Type
u64x2: Type
u64x3: Type
u64x4: Type
f8e4m3x2: Type
f8e4m3x3: Type
f8e4m3x4: Type
f8e5m2x2: Type
f8e5m2x3: Type
f8e5m2x4: Type
f16x2: Type
f16x3: Type
f16x4: Type
bf16x2: Type
bf16x3: Type
bf16x4: Type
f32x2: Type
f32x3: Type
f32x4: Type
f64x2: Type
f64x3: Type
f64x4: Type

def sign(x: _Operand) -> Expr:
    """1 above zero, -1 below; zeros and NaN stay what they are."""

def clamp(x: _Operand, low: _Operand, high: _Operand) -> Expr:
    """min(max(x, low), high)."""

def fma(a: _Operand, b: _Operand, c: _Operand) -> Expr:
    """a * b + c, rounded once."""

def sqrt(x: _Operand) -> Expr:
    """The square root, correctly rounded."""

def floor(x: _Operand) -> Expr:
    """The greatest whole number not above."""

def ceil(x: _Operand) -> Expr:
    """The least whole number not below."""

def trunc(x: _Operand) -> Expr:
    """The whole part, toward zero."""

def round(x: _Operand) -> Expr:
    """The nearest whole number, ties to even."""

def fract(x: _Operand) -> Expr:
    """x - floor(x)."""

def rotl(x: _Operand, count: _Operand) -> Expr:
    """Rotate left; the count is masked by the width."""

def rotr(x: _Operand, count: _Operand) -> Expr:
    """Rotate right; the count is masked by the width."""

def popcount(x: _Operand) -> Expr:
    """How many bits are one."""

def clz(x: _Operand) -> Expr:
    """How many leading bits are zero; the width for 0."""

def ctz(x: _Operand) -> Expr:
    """How many trailing bits are zero; the width for 0."""

def reverse_bits(x: _Operand) -> Expr:
    """The bits in the opposite order."""

def mul_hi(a: _Operand, b: _Operand) -> Expr:
    """The upper half of the exact product."""

def abs_diff(a: _Operand, b: _Operand) -> Expr:
    """The distance, unsigned."""

def select(condition: _Operand, a: _Operand, b: _Operand) -> Expr:
    """The second operand where the first is true, else the third; bits are kept."""

def is_nan(x: _Operand) -> Expr:
    """Whether this is a NaN."""

def is_inf(x: _Operand) -> Expr:
    """Whether this is an infinity."""

def is_finite(x: _Operand) -> Expr:
    """Whether this is neither NaN nor an infinity."""

def dot(a: _Operand, b: _Operand) -> Expr:
    """The sum of the products of components, left to right, each step rounded; integers wrap."""

def length(v: _Operand) -> Expr:
    """sqrt(dot(v, v))."""

def cross(a: _Operand, b: _Operand) -> Expr:
    """The cross product a.yzx * b.zxy - a.zxy * b.yzx, each step rounded."""

def all(v: _Operand) -> Expr:
    """Whether all components are true."""

def any(v: _Operand) -> Expr:
    """Whether any component is true."""

def saturating_add(a: _Operand, b: _Operand) -> Expr:
    """The sum, or the nearest value that the type holds."""

def saturating_sub(a: _Operand, b: _Operand) -> Expr:
    """The difference, or the nearest value that the type holds."""

def saturating_mul(a: _Operand, b: _Operand) -> Expr:
    """The product, or the nearest value that the type holds."""

def extract_bits(x: _Operand, offset: _Operand, count: _Operand) -> Expr:
    """The `count` bits from bit `offset` up, sign-extended for signed types; both are cut to the width."""

def insert_bits(x: _Operand, y: _Operand, offset: _Operand, count: _Operand) -> Expr:
    """x with its `count` bits from bit `offset` up taken from the low bits of y; both are cut to the width."""

def rsqrt(x: _Operand) -> Expr:
    """1 / sqrt(x), in two roundings."""

def pack4x8_snorm(v: _Operand) -> Expr:
    """Four bytes round(clamp(x, -1, 1) * 127), the first lowest."""

def pack4x8_unorm(v: _Operand) -> Expr:
    """Four bytes round(clamp(x, 0, 1) * 255), the first lowest."""

def pack4x8_sint(v: _Operand) -> Expr:
    """The low bytes of four integers, the first lowest."""

def pack4x8_uint(v: _Operand) -> Expr:
    """The low bytes of four integers, the first lowest."""

def pack2x16_snorm(v: _Operand) -> Expr:
    """Two halves round(clamp(x, -1, 1) * 32767), the first lowest."""

def pack2x16_unorm(v: _Operand) -> Expr:
    """Two halves round(clamp(x, 0, 1) * 65535), the first lowest."""

def pack2x16_sint(v: _Operand) -> Expr:
    """The low halves of two integers, the first lowest."""

def pack2x16_uint(v: _Operand) -> Expr:
    """The low halves of two integers, the first lowest."""

def pack2x16_float(v: _Operand) -> Expr:
    """Two f16, each rounded once, the first lowest."""

def unpack4x8_snorm(x: _Operand) -> Expr:
    """The components of a pack4x8_snorm."""

def unpack4x8_unorm(x: _Operand) -> Expr:
    """The components of a pack4x8_unorm."""

def unpack4x8_sint(x: _Operand) -> Expr:
    """The components of a pack4x8_sint."""

def unpack4x8_uint(x: _Operand) -> Expr:
    """The components of a pack4x8_uint."""

def unpack2x16_snorm(x: _Operand) -> Expr:
    """The components of a pack2x16_snorm."""

def unpack2x16_unorm(x: _Operand) -> Expr:
    """The components of a pack2x16_unorm."""

def unpack2x16_sint(x: _Operand) -> Expr:
    """The components of a pack2x16_sint."""

def unpack2x16_uint(x: _Operand) -> Expr:
    """The components of a pack2x16_uint."""

def unpack2x16_float(x: _Operand) -> Expr:
    """The components of a pack2x16_float."""

def exp(x: _Operand) -> Expr:
    """e to the power x."""

def exp2(x: _Operand) -> Expr:
    """2 to the power x."""

def exp10(x: _Operand) -> Expr:
    """10 to the power x."""

def expm1(x: _Operand) -> Expr:
    """e to the power x, less 1."""

def log(x: _Operand) -> Expr:
    """The natural logarithm."""

def log2(x: _Operand) -> Expr:
    """The logarithm to base 2."""

def log10(x: _Operand) -> Expr:
    """The logarithm to base 10."""

def log1p(x: _Operand) -> Expr:
    """The natural logarithm of 1 + x."""

def sin(x: _Operand) -> Expr:
    """The sine of x radians."""

def cos(x: _Operand) -> Expr:
    """The cosine of x radians."""

def tan(x: _Operand) -> Expr:
    """The tangent of x radians."""

def asin(x: _Operand) -> Expr:
    """The angle in [-pi/2, pi/2] whose sine is x."""

def acos(x: _Operand) -> Expr:
    """The angle in [0, pi] whose cosine is x."""

def atan(x: _Operand) -> Expr:
    """The angle in [-pi/2, pi/2] whose tangent is x."""

def atan2(y: _Operand, x: _Operand) -> Expr:
    """The angle in [-pi, pi] of the point with abscissa x and ordinate y; the operands are y, x."""

def sinh(x: _Operand) -> Expr:
    """The hyperbolic sine."""

def cosh(x: _Operand) -> Expr:
    """The hyperbolic cosine."""

def tanh(x: _Operand) -> Expr:
    """The hyperbolic tangent."""

def asinh(x: _Operand) -> Expr:
    """The inverse hyperbolic sine."""

def acosh(x: _Operand) -> Expr:
    """The inverse hyperbolic cosine, not negative."""

def atanh(x: _Operand) -> Expr:
    """The inverse hyperbolic tangent."""

def pow(x: _Operand, y: _Operand) -> Expr:
    """x to the power y, as C's pow."""

def cbrt(x: _Operand) -> Expr:
    """The cube root."""

def hypot(x: _Operand, y: _Operand) -> Expr:
    """sqrt(x^2 + y^2) without overflow on the way."""

def erf(x: _Operand) -> Expr:
    """The error function."""

def erfc(x: _Operand) -> Expr:
    """1 - erf(x), without loss for large x."""

def step(edge: _Operand, x: _Operand) -> Expr:
    """0 where x < edge, else 1; for NaN too."""

def smoothstep(low: _Operand, high: _Operand, x: _Operand) -> Expr:
    """t * t * (3 - 2 * t) for t = clamp((x - low) / (high - low), 0, 1), each step rounded; 0 where t is NaN."""

def mix(a: _Operand, b: _Operand, t: _Operand) -> Expr:
    """Linear interpolation, lerp: fma(t, b, fma(-t, a, a)), so of finite ends a for t = 0 and b for t = 1."""

def saturate(x: _Operand) -> Expr:
    """clamp(x, 0, 1); 0 for NaN."""

def degrees(x: _Operand) -> Expr:
    """Radians in degrees: x * c, rounded once, for the c of the type nearest to 180 / pi."""

def radians(x: _Operand) -> Expr:
    """Degrees in radians: x * c, rounded once, for the c of the type nearest to pi / 180."""

def copysign(x: _Operand, y: _Operand) -> Expr:
    """The magnitude of x with the sign of y; a NaN y counts as positive."""

def nextafter(x: _Operand, y: _Operand) -> Expr:
    """The number beside x toward y, as C's nextafter: y where they are equal, NaN where either is."""

def modf_fraction(x: _Operand) -> Expr:
    """The fraction of C's modf, x - trunc(x) with the sign of x, exact; a zero for infinities. Its whole part is trunc(x)."""

def frexp_fraction(x: _Operand) -> Expr:
    """The fraction of C's frexp: x by a power of two, its magnitude from 0.5 up to 1; zeros, infinities and NaN stay."""

def remainder(x: _Operand, y: _Operand) -> Expr:
    """IEEE's remainder, exact: x - n * y for the whole number n nearest to x / y, the even one of two; a zero has x's sign."""

def frexp_exponent(x: _Operand) -> Expr:
    """The exponent of C's frexp: x = frexp_fraction(x) * 2^e; 0 for zeros, infinities and NaN."""

def ldexp(x: _Operand, e: _Operand) -> Expr:
    """x * 2^e for any e, rounded once, as C's scalbn."""

def distance(a: _Operand, b: _Operand) -> Expr:
    """length(a - b)."""

def normalize(v: _Operand) -> Expr:
    """v / length(v), each step rounded; NaN for the zero vector."""

def reflect(i: _Operand, n: _Operand) -> Expr:
    """i - 2 * dot(n, i) * n, each step rounded: what comes in at i, turned at a surface whose normal n has length 1."""

def refract(i: _Operand, n: _Operand, eta: _Operand) -> Expr:
    """eta * i - (eta * dot(n, i) + sqrt(k)) * n for k = 1 - eta * eta * (1 - dot(n, i) * dot(n, i)), each step rounded; 0 where k < 0."""

def quantize_f16(x: _Operand) -> Expr:
    """The nearest number that f16 holds, ties to even; an infinity from 65520 on."""

def hypot3(x: _Operand, y: _Operand, z: _Operand) -> Expr:
    """sqrt(x^2 + y^2 + z^2) without overflow on the way."""

def dot4_i8(a: _Operand, b: _Operand, c: _Operand) -> Expr:
    """The sum of c and the products of the four bytes of a and b, signed as in pack4x8_sint; wraps."""

def dot4_u8(a: _Operand, b: _Operand, c: _Operand) -> Expr:
    """The sum of c and the products of the four bytes of a and b, unsigned as in pack4x8_uint; wraps."""

def erfcx(x: _Operand) -> Expr:
    """exp(x^2) erfc(x), without overflow on the way: infinity below about -9.38, of f64 -26.6."""

def erfinv(x: _Operand) -> Expr:
    """The inverse of the error function: the y with erf(y) = x."""

def lgamma(x: _Operand) -> Expr:
    """log |gamma(x)|: infinity for 0, negative whole numbers and infinities."""

def complex_mul(a: _Operand, b: _Operand) -> Expr:
    """The product of complex numbers (x = real, y = imaginary part), each part within 1.5 ULP unless a product underflows."""

def complex_div(a: _Operand, b: _Operand) -> Expr:
    """The quotient of complex numbers, scaled so that nothing overflows on the way; each part within 5 ULP where those of an operand are less than 2^60 apart."""

def complex_abs(z: _Operand) -> Expr:
    """The magnitude of a complex number: hypot(z.x, z.y)."""

def complex_exp(z: _Operand) -> Expr:
    """e to the power z: exp(z.x) by cos(z.y) and sin(z.y), each part within 5 ULP, and 8 near overflow."""

class fast:  # noqa: N801 - as Python code calls it
    """Functions that targets may approximate, within the bounds of lowering/FAST.md."""

    @staticmethod
    def div(x: _Operand, y: _Operand) -> Expr:
        """div, within the bounds of lowering/FAST.md."""

    @staticmethod
    def sqrt(x: _Operand) -> Expr:
        """sqrt, within the bounds of lowering/FAST.md."""

    @staticmethod
    def rsqrt(x: _Operand) -> Expr:
        """rsqrt, within the bounds of lowering/FAST.md."""

    @staticmethod
    def exp(x: _Operand) -> Expr:
        """exp, within the bounds of lowering/FAST.md."""

    @staticmethod
    def exp2(x: _Operand) -> Expr:
        """exp2, within the bounds of lowering/FAST.md."""

    @staticmethod
    def exp10(x: _Operand) -> Expr:
        """exp10, within the bounds of lowering/FAST.md."""

    @staticmethod
    def log(x: _Operand) -> Expr:
        """log, within the bounds of lowering/FAST.md."""

    @staticmethod
    def log2(x: _Operand) -> Expr:
        """log2, within the bounds of lowering/FAST.md."""

    @staticmethod
    def log10(x: _Operand) -> Expr:
        """log10, within the bounds of lowering/FAST.md."""

    @staticmethod
    def sin(x: _Operand) -> Expr:
        """sin, within the bounds of lowering/FAST.md."""

    @staticmethod
    def cos(x: _Operand) -> Expr:
        """cos, within the bounds of lowering/FAST.md."""

    @staticmethod
    def tanh(x: _Operand) -> Expr:
        """tanh, within the bounds of lowering/FAST.md."""

    @staticmethod
    def pow(x: _Operand, y: _Operand) -> Expr:
        """pow, within the bounds of lowering/FAST.md."""
