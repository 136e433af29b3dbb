"""Algorithms that use the environment; each recipe is a file of its own."""
