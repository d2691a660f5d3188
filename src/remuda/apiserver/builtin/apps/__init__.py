"""The apps group: deployments, replica sets, stateful sets, daemon sets, and their recorded revisions."""
