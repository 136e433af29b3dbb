"""Benchmarks; each prints how its figures were taken."""
