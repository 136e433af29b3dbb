"""The memory of one query: an array of addresses of what it needs beside the index."""

from __future__ import annotations

from grepseek_env.engine.kernels.compiler import U64

__all__ = ["MOST_IDS", "PIECES", "PIECE_BYTES", "ROOM"]

MOST_IDS = 1 << 16
PIECES = 200
"""Pieces of all literals that are looked at; a mark of a block is a byte that counts them."""
PIECE_BYTES = 48
"""A row of the table of pieces: clause, literal, first id, end of ids, blocks of them all, and one to spare."""

ROOM = ("marks", "listed", "marks2", "listed2", "decoded", "row", "ids", "table", "text", "clauses", "bytes")
"""Marks and lists of blocks, twice; decoded numbers; a row of grams; ids; pieces, after one row of room; a text;
clauses; and, a result, the bytes of all candidates."""
MARKS, LISTED, MARKS2, LISTED2, DECODED, ROW, IDS, TABLE, TEXT, CLAUSES, BYTES = map(U64, range(11))
