"""The `remuda` distribution: what a host runs that was told to be a server or a node (design §6)."""
