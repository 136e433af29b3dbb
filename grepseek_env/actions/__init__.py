"""Action text -> Action: the formats in which a policy writes its turns."""
