"""The types of provisioning.cattle.io/v1."""
