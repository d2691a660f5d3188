"""The types of v1beta2, which is the stored version."""
