"""What a first server without an API tells of itself: its address, which others need to join it (capr.md §4.5).

Such a machine has no Node, so nobody else knows its address. :mod:`..join_urls` reads what these instructions print.
"""

from __future__ import annotations

from ...plans.plan import PeriodicInstruction
from .. import keys
from .context import Host

CAPTURE_ADDRESS, ETCD_NAME = "capture-address", "etcd-name"
_PERIOD = 600


def instructions(host: Host) -> tuple[PeriodicInstruction, ...]:
    machine, ground = host.machine, host.ground
    if not host.join.init or not machine.is_only_etcd or keys.JOIN_URL_AUTOSET_DISABLED in host.annotations:
        return ()
    ask = (
        f"curl -f --retry 100 --retry-delay 5 --cacert {ground.tls('server-ca.crt')} "
        f"https://{ground.layout.loopback}:{ground.runtime.supervisor_port}/db/info | grep 'clientURLs'"
    )
    return (
        PeriodicInstruction(CAPTURE_ADDRESS, args=("-c", ask), command="sh", periodSeconds=_PERIOD),
        PeriodicInstruction(
            ETCD_NAME, args=("-c", f"cat {ground.directories.distro}/server/db/etcd/name"), command="sh", periodSeconds=_PERIOD
        ),
    )
