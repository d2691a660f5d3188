"""The types of management.cattle.io/v3."""
