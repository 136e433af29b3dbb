"""Policies that drive episodes; each file wraps one kind of policy."""
