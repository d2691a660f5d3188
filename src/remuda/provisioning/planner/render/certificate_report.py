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

_OF_A_NODE, _OF_A_SERVER = ("agent/client-kubelet.crt", "agent/serving-kubelet.crt"), ("server/tls/client-admin.crt",)

_SCRIPT = """\
cd {directory} || exit 1
{complete}
missing=$?
for file in server/tls/*.crt server/tls/etcd/*.crt server/tls/kube-*/*.crt agent/*.crt; do
    [ -f "$file" ] || continue
    printf '%s ' "$file"
    sed -n '/-BEGIN CERTIFICATE-/,/-END CERTIFICATE-/p;/-END CERTIFICATE-/q' "$file" | grep -v -e ----- | tr -d '\\n'
    echo
done
exit $missing
"""


def instruction(host: HostContext) -> PeriodicInstruction:
    # The last ones that a host gets: a node's own. An etcd-only k3s server is no node. They must be there before the others are
    # listed, or a certificate that comes in this moment would be left out.
    last = _OF_A_NODE if components.has_kubelet(host) else _OF_A_SERVER
    complete = " && ".join(f"[ -f {file} ]" for file in last)
    script = _SCRIPT.format(directory=shlex.quote(host.cluster.directories.distro), complete=complete)
    return PeriodicInstruction(NAME, args=("-c", script), command="sh", periodSeconds=_PERIOD)
