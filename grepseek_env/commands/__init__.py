"""Command text -> Pipeline: the command language, one table, one gate."""
