"""Moved to :mod:`remuda.management.users.tokens`."""

from remuda.management.users.tokens import *  # noqa: F403
