"""Machine code of NVIDIA GPUs: made of PTX, reported on, disassembled."""
