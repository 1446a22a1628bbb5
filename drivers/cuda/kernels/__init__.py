"""Kernels that are not compiled from Programs: strided copies, products of matrices, raw code."""
