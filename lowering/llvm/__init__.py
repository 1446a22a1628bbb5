"""LLVM IR as text, from one op table in two walks: `simt` (PTX, an invocation a thread) and `lanes` (host, invocations as SIMD lanes)."""
