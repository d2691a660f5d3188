"""Version v3 of the group."""
