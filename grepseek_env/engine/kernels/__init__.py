"""Machine code for scanning, compiled by numba.

Importing this package, `load`, `encode` or `state` is cheap. Importing another module imports numba and compiles what
the module holds, or loads it from the cache; so they are imported inside functions, after `load.load`.
"""
