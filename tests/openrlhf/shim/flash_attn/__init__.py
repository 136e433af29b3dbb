"""A stand-in for flash-attention, which OpenRLHF imports even where it is not used."""

__version__ = "0.0.0"
