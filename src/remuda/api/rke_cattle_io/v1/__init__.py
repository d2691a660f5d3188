"""The types of rke.cattle.io/v1."""
