"""The types of cluster.cattle.io/v3."""
