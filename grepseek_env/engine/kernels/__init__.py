"""Machine code for scanning, compiled by numba.

Importing this package imports nothing; importing one of its modules imports numba and compiles, or loads from the
cache, what the module holds. So they are imported inside functions, behind `compiler.load`.
"""
