"""The HTTP door of the API: listener, path grammar, negotiation, request handling, watch streams."""
