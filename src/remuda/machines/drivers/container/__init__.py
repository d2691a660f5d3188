"""`container`: hosts that are containers with systemd, of podman or Docker. :mod:`.driver` is the whole of it on one page."""

from .driver import Container

__all__ = ["Container"]
