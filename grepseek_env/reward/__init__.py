"""Scores of a final answer and the reward made from them."""
