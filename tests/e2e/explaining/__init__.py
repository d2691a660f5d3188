"""Stuck clusters, on real processes: what `remuda explain` says of each, and that its commands end it.

The same states as waits, without processes: tests/unit/cli/views/test_wait_advice.py.
"""
