"""The vector types by name: two to four components of each scalar type."""

from __future__ import annotations

from vyre_py.ir.language.types import bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, vector_of

__all__ = [
    "bf16x2", "bf16x3", "bf16x4", "boolx2", "boolx3", "boolx4", "f16x2", "f16x3", "f16x4", "f32x2", "f32x3", "f32x4", "f64x2", "f64x3",
    "f64x4", "i16x2", "i16x3", "i16x4", "i32x2", "i32x3", "i32x4", "i64x2", "i64x3", "i64x4", "i8x2", "i8x3", "i8x4", "u16x2", "u16x3",
    "u16x4", "u32x2", "u32x3", "u32x4", "u64x2", "u64x3", "u64x4", "u8x2", "u8x3", "u8x4",
]

boolx2, boolx3, boolx4 = vector_of(bool_, 2), vector_of(bool_, 3), vector_of(bool_, 4)
i8x2, i8x3, i8x4 = vector_of(i8, 2), vector_of(i8, 3), vector_of(i8, 4)
i16x2, i16x3, i16x4 = vector_of(i16, 2), vector_of(i16, 3), vector_of(i16, 4)
i32x2, i32x3, i32x4 = vector_of(i32, 2), vector_of(i32, 3), vector_of(i32, 4)
i64x2, i64x3, i64x4 = vector_of(i64, 2), vector_of(i64, 3), vector_of(i64, 4)
u8x2, u8x3, u8x4 = vector_of(u8, 2), vector_of(u8, 3), vector_of(u8, 4)
u16x2, u16x3, u16x4 = vector_of(u16, 2), vector_of(u16, 3), vector_of(u16, 4)
u32x2, u32x3, u32x4 = vector_of(u32, 2), vector_of(u32, 3), vector_of(u32, 4)
u64x2, u64x3, u64x4 = vector_of(u64, 2), vector_of(u64, 3), vector_of(u64, 4)
f16x2, f16x3, f16x4 = vector_of(f16, 2), vector_of(f16, 3), vector_of(f16, 4)
bf16x2, bf16x3, bf16x4 = vector_of(bf16, 2), vector_of(bf16, 3), vector_of(bf16, 4)
f32x2, f32x3, f32x4 = vector_of(f32, 2), vector_of(f32, 3), vector_of(f32, 4)
f64x2, f64x3, f64x4 = vector_of(f64, 2), vector_of(f64, 3), vector_of(f64, 4)
