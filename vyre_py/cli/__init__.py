"""The commands behind `vyre-py`. `parser` has their arguments, a module each what they are about: Programs, devices, tables, the cache.

A command is a function of the parsed arguments that gives the exit status. What it prints goes through `output`, which lets no text of a
stranger move a terminal's cursor.
"""
