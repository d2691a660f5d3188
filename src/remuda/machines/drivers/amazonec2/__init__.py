"""`amazonec2`: instances of Amazon EC2, with rancher-machine's flags.

:mod:`.driver` creates and removes a machine, :mod:`.launch_request` chooses its subnet and image, :mod:`.security_groups` and
:mod:`.key_pairs` make its other resources, :mod:`.client` is EC2's API with our tags and errors.
Not here: the Job that calls the driver (`machines/machineprovision`). Read :mod:`.driver` first.
"""

from __future__ import annotations

from .driver import AmazonEC2

__all__ = ["AmazonEC2"]
