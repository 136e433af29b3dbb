"""Action text -> Action: the formats in which a policy writes its turns."""

from grepseek_env.actions.formats import ACTION_FORMATS, ActionFormat, get_action_format

__all__ = ["ACTION_FORMATS", "ActionFormat", "get_action_format"]
