"""`digitalocean`: droplets of DigitalOcean, with rancher-machine's flags. :mod:`.driver` is the whole of it on one page."""

from __future__ import annotations

from .driver import DigitalOcean

__all__ = ["DigitalOcean"]
