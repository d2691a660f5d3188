"""What to do about a wait, by its code, and who has to. The words of docs/waits.md, for the one who is stuck."""

from __future__ import annotations

from typing import Final

from remuda.kube.waits import Actor, Code, Wait
from remuda.machines.machineprovision.well_known import FORCE_REMOVE
from remuda.provisioning.graph.names import MACHINE_GROUP

_WHO: Final = {
    Actor.USER: "you",
    Actor.REMUDA: "remuda, by itself",
    Actor.PROVIDER: "whatever provides its infrastructure",
    Actor.MACHINE: "the host, by itself",
    Actor.OTHER_CONTROLLER: "another controller",
}

_WHAT: Final = {
    Code.FINALIZERS: "Whoever put the finalizers there has to take them away; see that its controller runs.",
    Code.NAMESPACE_CONTENT: "What is left in the namespace goes by itself, or waits for finalizers of its own.",
    Code.CONTENT: "See that the object that is waited for holds what is missing; without a server-url, set that setting.",
    Code.DEPENDENTS: "Its dependents have to go first; look at what holds them.",
    Code.PAUSED: "Take the pause away: spec.paused of the Cluster, or the annotation cluster.x-k8s.io/paused.",
    Code.REFERENCE: "Make the object that is referred to, or refer to another one.",
    Code.PROVISIONING: "See what was tried (remuda machine attempts CLUSTER), or the conditions of the infrastructure object.",
    Code.MALFORMED: "Correct what can't be used; the text says what is wrong with it.",
    Code.CONNECTION: "See whether the cluster's agent runs, and whether it reaches this server.",
    Code.NODE: "See on the host whether the kubelet runs, and whether it registered under the name that is expected.",
    Code.HOOK: "Whoever set the hook takes it away when they are done; look at what they do.",
    Code.DRAIN: "Look for pods that a PodDisruptionBudget keeps, or change the drain options.",
    Code.VOLUMES: "The volumes have to be detached; look at the VolumeAttachments of the node.",
    Code.DELETION: "It has to be gone first; look at its finalizers and its events.",
    Code.MACHINES: "Look at the machines that are not there or not available.",
    Code.BUDGET: "Too much is broken at once for a repair without you: see what the machines have in common.",
    Code.PREFLIGHT: "It goes on when the control plane is stable and of the right version.",
    Code.RELEASE: "Choose a kubernetesVersion that this server knows.",
    Code.ROLES: "Register hosts: remuda cluster registration-command CLUSTER prints the command, with roles as options.",
    Code.INIT_NODE: "See why no machine with the role etcd is there yet (remuda machine attempts CLUSTER), or register a host.",
    Code.RESTORE: "Restore a snapshot of etcd; hosts that come now would begin with an empty one.",
    Code.STEP: "Nothing: the next step follows at once.",
    Code.CHECK_IN: "See on the host whether its agent runs and reaches this server (journalctl -u rancher-system-agent).",
    Code.PLAN: "Nothing, unless it takes long; then see what the host says (journalctl -u rancher-system-agent).",
    Code.PLAN_FAILED: "It is tried again, later each time; the output of the plan says what has to be mended on the host.",
    Code.RENDER: "Correct what its plan can't be made of; the text says what is missing.",
    Code.PROBES: "See on the host why the services that are probed are not healthy (journalctl -u of its server or node unit).",
    Code.TIER: "Nothing: machines of other roles come first.",
    Code.TURN: "Nothing, unless the machine before it has failed: mend that one.",
    Code.QUORUM: "Bring the member or its agent back, or delete its machine; nothing is restarted before that.",
    Code.JOIN_URL: "It comes when the first machine has its plan and an address.",
    Code.UNCORDON: "See whether the node may be made schedulable, and who keeps it from that.",
    Code.KUBELET: "See on the host whether the service was restarted with the new version.",
    Code.PRE_BOOTSTRAP: "The manifests that have to come first are being applied.",
    Code.CLUSTER_AGENT: "See whether cattle-cluster-agent runs in cattle-system of the cluster, and reaches this server.",
    Code.AGENT: "Nothing while it is replaced; if that fails, mend what the text says and raise redeploySystemAgentGeneration.",
    Code.UNSUPPORTED: "Take it out of the spec: this server does not offer it yet.",
    Code.REFUSED: "The text says why the API refuses it; it is tried again.",
    Code.LAST_ETCD: "Add another etcd machine, or annotate the Machine with remuda.dev/delete-last-etcd=true and lose its data.",
}


def who(wait: Wait) -> str:
    return _WHO[wait.actor]


def what(code: Code, cluster: str) -> str:
    return _WHAT[code].replace("CLUSTER", cluster)


# Of a machine of a pool that does not go, by who has to act; KIND, WORKSPACE and MACHINE are its own.
_LET_GO: Final = (
    "If it is gone anyway, or you give it up, let it go: kubectl -n WORKSPACE annotate KIND MACHINE FORCE=true. "
    "Then nobody removes it at its provider, where it may go on running and cost money: remuda machine orphans lists such."
)
_STAYS: Final = {
    Actor.USER: "Mend what the text says; it is tried again by itself within five minutes (remuda machine logs MACHINE).",
    Actor.PROVIDER: "Nothing yet: it is tried again by itself every five minutes (remuda machine logs MACHINE).",
}
_GOES: Final = "Nothing, unless it takes long; then see what is being done: remuda machine logs MACHINE --follow."


# Of a host that does not come, by who has to act.
_NOT_COME: Final = {
    Actor.REMUDA: "Nothing: no host can become this machine any more, and its pool replaces it by itself.",
    Actor.PROVIDER: "See at its provider whether the host runs, and on it whether its install script reaches this server.",
}


def about(wait: Wait, cluster: str) -> str:
    """What to do about this very wait. MACHINE stands for the name of what waits: the same is often to be done about many."""
    if wait.code is Code.CHECK_IN and wait.actor in _NOT_COME:
        return _NOT_COME[wait.actor]
    if wait.code is not Code.DELETION or wait.subject.group != MACHINE_GROUP:
        return what(wait.code, cluster)
    if wait.on is not None and wait.on.kind == "Job":
        return _GOES
    text = f"{_STAYS.get(wait.actor, _STAYS[Actor.USER])} {_LET_GO}"
    kind = f"{wait.subject.kind.lower()}.{wait.subject.group}"
    return text.replace("WORKSPACE", wait.subject.namespace).replace("KIND", kind).replace("FORCE", FORCE_REMOVE)
