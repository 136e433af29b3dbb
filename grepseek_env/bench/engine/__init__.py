"""`grepseek bench engine`: every way to run a command against bash, side by side in one run."""
