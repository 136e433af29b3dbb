"""The file for OpenRLHF's `--train.agent_func_path`: the episodes of this package as rollouts.

It is configured by environment variables, `GREPSEEK_AGENT_CORPUS` and so on: see `AgentOptions`.
"""

from grepseek_env.adapters.openrlhf import executor_class

__all__ = ["AgentExecutor"]

AgentExecutor = executor_class()
