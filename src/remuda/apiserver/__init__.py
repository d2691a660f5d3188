"""The embedded Kubernetes API server: store, watch cache, schema, CEL, verbs, discovery, access control, admission."""
