"""Moved to :mod:`remuda.management.users.passwords`."""

from remuda.management.users.passwords import *  # noqa: F403
