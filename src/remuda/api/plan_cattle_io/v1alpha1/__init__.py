"""The types of plan.cattle.io/v1alpha1."""
