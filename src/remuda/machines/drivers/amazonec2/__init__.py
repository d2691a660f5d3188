"""`amazonec2`: instances of Amazon EC2, with rancher-machine's flags. :mod:`.driver` is the whole of it on one page."""

from __future__ import annotations

from .driver import AmazonEC2

__all__ = ["AmazonEC2"]
