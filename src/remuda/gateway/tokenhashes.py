"""Moved to :mod:`remuda.management.users.tokenhashes`."""

from remuda.management.users.tokenhashes import *  # noqa: F403
