"""The types of v1beta2, which is what is stored."""
