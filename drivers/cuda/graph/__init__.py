"""CUDA graphs and sequences: recorded, instantiated, replayed."""
