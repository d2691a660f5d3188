"""Real programs of others, built and started for the tests that compare Remuda with them."""
