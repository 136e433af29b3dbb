"""`grepseek bench scaling`: how the time of each class of query, and an index, grow with the corpus."""
