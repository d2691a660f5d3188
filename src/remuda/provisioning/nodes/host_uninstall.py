"""The last plan of a host that outlives its machine: it removes the distribution and the agent, if a user asked for that. Pure.

A registered host goes on running what it was given: without its cluster, a K3s that restarts for ever. The annotation
`remuda.dev/uninstall: "true"` on the Machine or the Cluster asks for the removal. The controller is :mod:`.custommachine`: the
host is the machine's infrastructure, which Cluster API deletes after the drain and the etcd member, and before the plan and its
account. Deletion does not wait long for a host that does not answer: it may be gone for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remuda.kube.clock import time_of
from remuda.kube.objects import annotations_of

from ..plans.machine_plan_secret import PlanSecretError, PlanState, decode, with_plan
from ..plans.plan import Instruction, Plan, PlanError, encode, instruction, variable
from ..releases.distributions import of_version
from ..well_known import PLAN_UPDATED, UNINSTALL

Obj = dict[str, Any]

NAME = "uninstall"
# Agents look every few seconds, but one of the older kind reports nothing before it is done.
ANSWER_SECONDS, WITHIN_SECONDS = 300.0, 900.0
_INSTALL, _LONGEST = "install", 500
# The agent runs this script and reports how it ended, so only systemd can remove the agent, a minute later. Where there is none,
# the agent ends by itself when its machine is gone.
_SCRIPT = """\
found=
for place in /usr/local/bin /usr/bin /opt/bin /opt/$RUNTIME/bin; do
    for name in $RUNTIME-uninstall.sh $RUNTIME-agent-uninstall.sh; do
        [ -x "$HOST_ROOT$place/$name" ] || continue
        found=$place/$name
        echo "running $HOST_ROOT$found"
        "$HOST_ROOT$found" || exit $?
    done
done
[ -n "$found" ] || echo "$RUNTIME is not installed"
if [ -z "$HOST_ROOT" ] && command -v systemd-run >/dev/null; then
    for place in /usr/local /opt/rancher-system-agent /usr; do
        script=$place/bin/rancher-system-agent-uninstall.sh
        [ -x "$script" ] || continue
        systemd-run --unit=rancher-system-agent-uninstall --on-active=60 "$script" || :
        break
    done
fi
"""


@dataclass(frozen=True, slots=True)
class UninstallProgress:
    """`write` is the Secret with the plan, to be written now; else `again` is the time until the next look, None at the end.
    `problem` is the reason why the host keeps what it has, `text` what happened."""

    write: Obj | None = None
    again: float | None = None
    problem: str = ""
    text: str = ""


def is_asked(*objects: Obj | None) -> bool:
    """True if a user asked for it on one of these: a Machine, its Cluster."""
    return any(annotations_of(each or {}).get(UNINSTALL) == "true" for each in objects)


def progress(secret: Obj | None, now: float) -> UninstallProgress:
    """The progress of the removal; `secret` is the machine's plan Secret."""
    try:
        given = None if secret is None else decode(secret)
        current = None if given is None else given.plan()
    except (PlanSecretError, PlanError) as error:
        return UninstallProgress(problem=f"its plan can't be read: {error}")
    if secret is None or given is None or current is None:
        return UninstallProgress(text="its host was never given a plan")
    if instruction(current, NAME) is None:
        wanted = plan(current)
        if wanted is None:
            return UninstallProgress(text="nothing was installed by its plan")
        return UninstallProgress(write=with_plan(secret, encode(wanted), now=now, max_failures=2))
    if given.failed:
        output = given.failed_output.get(NAME, b"").decode(errors="replace").strip()
        return UninstallProgress(
            problem=f"its host could not uninstall: {output[-_LONGEST:] or given.failure_reason or 'no output'}"
        )
    if given.in_sync:
        return UninstallProgress(text="its host has uninstalled everything")
    began = time_of(annotations_of(secret).get(PLAN_UPDATED)) or now
    left = began + (ANSWER_SECONDS if given.state in (PlanState.NONE, PlanState.PENDING) else WITHIN_SECONDS) - now
    return UninstallProgress(again=left) if left > 0 else UninstallProgress(problem="its host did not answer in time")


def plan(installed: Plan) -> Plan | None:
    """The plan that removes what this one has installed; None if that is nothing."""
    found = instruction(installed, _INSTALL)
    if found is None:
        return None
    # The image's tag is the version that is on the host; the cluster may want another one already.
    runtime = of_version(found.image.rpartition(":")[2])
    kept = [f"{runtime.env_prefix}_{name}" for name in ("DATA_DIR", "ROOT")]
    env = [f"{name}={value}" for name in kept if (value := variable(found, name))]
    root = variable(found, f"{runtime.env_prefix}_ROOT").rstrip("/")
    env += [f"RUNTIME={runtime.name}", f"HOST_ROOT={root}"]
    return Plan(instructions=(Instruction(NAME, env=tuple(env), args=("-c", _SCRIPT), command="sh", saveOutput=True),))
