"""The verbs of the API, one module each. All take an Api and a Call and work the same over HTTP and in-process."""
