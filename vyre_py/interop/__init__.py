"""Other compilers and engines: what makes launches of vyre-py part of their code and of their graphs. Each library is imported in its own module only."""
