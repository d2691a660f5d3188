"""The test suites: unit, api, real, bench."""
