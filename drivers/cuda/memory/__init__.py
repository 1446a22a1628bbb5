"""Memory on CUDA: pools, page-locked memory, transfers, and their order among streams."""
