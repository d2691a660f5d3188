"""The types of v1beta1, which is served for clients that have not moved on, and converted."""
