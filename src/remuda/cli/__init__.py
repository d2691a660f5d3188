"""The remuda command: one module per command."""
