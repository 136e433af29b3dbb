"""A corpus in several part files, on this host or on many: the same answers as over one file.

`parts` says what the parts are, `hosts` runs commands over one of them, `links` reach hosts (in this process, or Ray
actors), `runs` makes one answer of what the parts give, and `backend` is the `SearchBackend` over all that.
"""
