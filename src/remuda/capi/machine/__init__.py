"""The Machine controller: one machine, from its references to its node, and back to nothing."""
