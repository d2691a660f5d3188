"""`container`: hosts that are containers with systemd, of podman or Docker.

:mod:`.driver` has the steps, :mod:`.engine` the requests to podman or Docker, :mod:`.host_image` the default image,
:mod:`.firstboot` the first start of a container.
Not here: hosts that are directories with processes (`..local`). Read :mod:`.driver` first.
"""

from .driver import Container

__all__ = ["Container"]
