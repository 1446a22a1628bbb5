"""Kernels on CUDA: loaded, bound, launched, dispatched, waited for."""
