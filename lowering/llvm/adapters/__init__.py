"""Functions that other libraries call by conventions of their own: LLVM IR that ends in a pipeline's native entry."""
