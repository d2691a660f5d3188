"""The periodic instruction by which a host reports its certificates (docs/reference/operations.md#expiry).

Plain commands that every host and every version has, also with Rancher's own agent: the first certificate of each file, on one
line after the file's name. Only certificates leave the host, never a key.
"""

from __future__ import annotations

import shlex

from ...plans.plan import PeriodicInstruction
from .context import HostContext

NAME = "certificates"
# Twice a day; besides after each plan, since agents then run all periodic instructions.
_PERIOD = 43_200

_SCRIPT = """\
cd {directory} || exit 0
for file in server/tls/*.crt server/tls/etcd/*.crt server/tls/kube-*/*.crt agent/*.crt; do
    [ -f "$file" ] || continue
    printf '%s ' "$file"
    sed -n '/-BEGIN CERTIFICATE-/,/-END CERTIFICATE-/p;/-END CERTIFICATE-/q' "$file" | grep -v -e ----- | tr -d '\\n'
    echo
done
"""


def instruction(host: HostContext) -> PeriodicInstruction:
    script = _SCRIPT.format(directory=shlex.quote(host.cluster.directories.distro))
    return PeriodicInstruction(NAME, args=("-c", script), command="sh", periodSeconds=_PERIOD)
