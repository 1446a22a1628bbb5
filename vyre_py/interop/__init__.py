"""Other compilers: what makes launches of vyre-py part of their code. Each library is imported in its own module only."""
