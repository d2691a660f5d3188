"""`digitalocean`: droplets of DigitalOcean, with rancher-machine's flags.

:mod:`.driver` creates and removes a machine, :mod:`.ssh_keys` its key, :mod:`.client` is DigitalOcean's API.
Not here: the Job that calls the driver (`machines/machineprovision`). Read :mod:`.driver` first.
"""

from __future__ import annotations

from .driver import DigitalOcean

__all__ = ["DigitalOcean"]
