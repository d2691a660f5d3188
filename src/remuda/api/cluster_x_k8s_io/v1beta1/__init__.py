"""The types of v1beta1, which is served for older clients and converted (`capi/conversion`)."""
