"""The walk for GPUs: one invocation a thread; and PTX of its LLVM IR."""
