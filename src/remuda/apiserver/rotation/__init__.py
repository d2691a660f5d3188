"""Other keys and certificates while servers run, without a request that fails. For users: docs/rotation.md."""
