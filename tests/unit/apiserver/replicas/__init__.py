"""Several servers on one store, each with a watch cache that may be behind."""
