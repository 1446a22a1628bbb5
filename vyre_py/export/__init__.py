"""Sources made of compiled Programs: C by `vyre_py.export_c`, modules and pages for browsers by `vyre_py.export_web`."""
