"""`grepseek bench vector`: many environments at once, ours and Gymnasium's own ways."""
