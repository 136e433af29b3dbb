"""The corpus: files, facts, manifest, view."""
