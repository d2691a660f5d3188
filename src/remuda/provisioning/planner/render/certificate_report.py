"""The periodic instruction by which a host reports its certificates (docs/reference/operations.md#expiry).

Plain commands that every host and every version has, also with Rancher's own agent: the first certificate of each file, on one
line after the file's name. Only certificates leave the host, never a key. A host that has not all of them yet fails, so that its
agent tries again soon and not half a day later.
"""

from __future__ import annotations

import shlex

from ...plans.plan import PeriodicInstruction
from . import components
from .context import HostContext

NAME = "certificates"
# Twice a day; besides after each plan, since agents then run all periodic instructions.
_PERIOD = 43_200

_SCRIPT = """\
cd {directory} || exit 1
for file in server/tls/*.crt server/tls/etcd/*.crt server/tls/kube-*/*.crt agent/*.crt; do
    [ -f "$file" ] || continue
    printf '%s ' "$file"
    sed -n '/-BEGIN CERTIFICATE-/,/-END CERTIFICATE-/p;/-END CERTIFICATE-/q' "$file" | grep -v -e ----- | tr -d '\\n'
    echo
done
[ -f {last} ]
"""


def instruction(host: HostContext) -> PeriodicInstruction:
    # The last one that a host gets: a node's own. An etcd-only k3s server is no node.
    last = "agent/client-kubelet.crt" if components.has_kubelet(host) else "server/tls/client-admin.crt"
    script = _SCRIPT.format(directory=shlex.quote(host.cluster.directories.distro), last=last)
    return PeriodicInstruction(NAME, args=("-c", script), command="sh", periodSeconds=_PERIOD)
