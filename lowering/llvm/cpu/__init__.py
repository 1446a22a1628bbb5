"""The walk for hosts: invocations are SIMD lanes with masks; and host objects of its LLVM IR."""
