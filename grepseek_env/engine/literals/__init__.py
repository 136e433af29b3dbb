"""Which pieces of text a line must hold so that a search can print it."""
