"""The commands behind `vyre-py`. `parser` has their arguments; a module for each topic has the commands: Programs, devices, tables, the cache.

A command is a function of the parsed arguments that returns the exit status. It prints through `output`, where untrusted text cannot move a
terminal's cursor.
"""
