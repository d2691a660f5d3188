"""`make bench ARGS=pools`: clusters of machine pools in memory, machines from Amazon's double, and the demo's phases."""
