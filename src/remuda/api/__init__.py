"""Our API types, one package per group."""
