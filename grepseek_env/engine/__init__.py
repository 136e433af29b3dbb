"""Runs checked pipelines over a corpus view."""
