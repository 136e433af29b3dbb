"""A Gymnasium environment for search agents that read a raw corpus with shell commands."""

__version__ = "0.1.0"
