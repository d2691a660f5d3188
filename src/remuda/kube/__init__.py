"""What every room shares: object access, names, errors, selectors, quantities, patches, clock, waits, JSON and YAML."""
