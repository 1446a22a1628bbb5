"""C source made of compiled Programs: `vyre_py.export_c`."""
