"""The environment inside training frameworks. Each adapter imports its framework only when it is asked for."""
