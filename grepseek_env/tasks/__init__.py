"""Question sets and generated worlds."""
