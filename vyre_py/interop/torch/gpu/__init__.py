"""Kernels of compiled graphs as GPUs want them."""
