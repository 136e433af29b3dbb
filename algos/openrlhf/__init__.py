"""Recipes for OpenRLHF on vLLM: `python -m algos.openrlhf {prepare,sft,grpo}`; see docs/openrlhf.md."""
