"""PTX by libNVVM, from the same LLVM IR in its dialect."""
