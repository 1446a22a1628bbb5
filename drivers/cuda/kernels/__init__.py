"""Kernels that come from no Program: strided copies, products of matrices, raw code."""
