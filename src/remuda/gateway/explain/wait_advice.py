"""Advice on a wait, by its code and the party that can end it: sentences, and commands that can be run as they are. Pure.

The words of docs/waits.md and docs/troubleshooting.md. :mod:`.wait_chain` finds the waits that are worth an advice.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Any, Final

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import rke_cattle_io as rke
from remuda.capi.well_known import DEPLOYMENT_NAME
from remuda.kube import conditions
from remuda.kube.objects import dig, labels_of, name_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.machines.machineprovision.well_known import FORCE_REMOVE
from remuda.provisioning.planner.waits import ETCD_REPLACED
from remuda.provisioning.well_known import (
    CONTROL_PLANE_ROLE,
    ETCD_ROLE,
    MACHINE_GROUP,
    POST_DRAIN,
    PRE_DRAIN,
    WORKER_ROLE,
    plan_name,
)

from . import spec_advice
from .operations import CERTIFICATES, CREATE, KINDS, RECOVERY, RESTORE
from .spec_advice import Advice, workspace_of
from .states import ClusterView, is_administrated

Obj = dict[str, Any]


_WHO: Final = {
    Actor.USER: "you",
    Actor.REMUDA: "remuda (automatic)",
    Actor.PROVIDER: "the infrastructure provider",
    Actor.MACHINE: "the host (automatic)",
    Actor.OTHER_CONTROLLER: "another controller",
}

_AGENT: Final = "rancher-system-agent"
_WHAT: Final = {
    Code.FINALIZERS: "The controller that set the finalizers removes them; check that it runs.",
    Code.NAMESPACE_CONTENT: "The objects left in the namespace are deleted automatically, or wait for their own finalizers.",
    Code.CONTENT: "Add the missing content to the object that is waited for; without a server-url, set that setting.",
    Code.DEPENDENTS: "Its dependents have to be deleted first; look at their finalizers.",
    Code.PAUSED: "Remove the pause.",
    Code.REFERENCE: "Create the object that is referred to, or refer to another one.",
    Code.PROVISIONING: "Look at the attempts (remuda machine attempts CLUSTER), or at the infrastructure object's conditions.",
    Code.MALFORMED: "Correct the value that can't be used; the text says what is wrong.",
    Code.CONNECTION: "Check that the pods of cattle-cluster-agent run in cattle-system of the cluster, and reach this server.",
    Code.NODE: "Check on the host that the kubelet runs, and that it registered under the expected name.",
    Code.HOOK: "The program that set the hook removes it when it is done; check that it runs.",
    Code.DRAIN: "Look for pods that a PodDisruptionBudget keeps, or change the drain options.",
    Code.VOLUMES: "The volumes have to be detached; look at the VolumeAttachments of the node.",
    Code.DELETION: "It has to be deleted first; look at its finalizers and its events.",
    Code.MACHINES: "Look at the machines that are missing or not available.",
    Code.BUDGET: "Too many machines are unhealthy for an automatic repair: look for what they have in common, or replace them.",
    Code.PREFLIGHT: "It continues when the control plane is stable and of the right version.",
    Code.RELEASE: "Choose a kubernetesVersion that exists: remuda versions lists those that this server knows.",
    Code.ROLES: "Register hosts: run the output of the command on each host; the options are its roles.",
    Code.INIT_NODE: "See why no machine with the role etcd is ready yet (remuda machine attempts CLUSTER), or register a host.",
    Code.RESTORE: "Correct what the text says, then request the restore again, of this or another snapshot.",
    Code.SNAPSHOT: "Correct what the text says: it is tried again. Or go on without, as it says; then there is no way back.",
    Code.STEP: "Nothing: the next step follows at once.",
    Code.CHECK_IN: "Check on the host that its agent runs and reaches this server (journalctl -u rancher-system-agent).",
    Code.PLAN: "Nothing, unless it takes long; then look at the host (journalctl -u rancher-system-agent).",
    Code.PLAN_FAILED: "Mend on the host what the output of the plan says; it is tried again automatically, later each time.",
    Code.RENDER: "Correct the values that its plan can't be made of; the text says what is missing.",
    Code.PROBES: "See on the host why the probed services are not healthy (journalctl -u of its server or node unit).",
    Code.TIER: "Nothing: machines of other roles come first.",
    Code.TURN: "Nothing, unless the machine before it has failed: repair that one.",
    Code.QUORUM: "Bring the member or its agent back, or delete its machine; nothing is restarted before that.",
    Code.JOIN_URL: "Nothing: it follows when the first machine has applied its plan and has an address.",
    Code.UNCORDON: "See whether the node may be made schedulable, and which program prevents that.",
    Code.KUBELET: "Check on the host that the service was restarted with the new version.",
    Code.PRE_BOOTSTRAP: "Nothing: the manifests that have to come first are being applied.",
    Code.CLUSTER_AGENT: "Check that the pods of cattle-cluster-agent run in cattle-system of the cluster, and reach this server.",
    Code.AGENT: "Nothing while it is replaced; if that fails, correct the cause and raise redeploySystemAgentGeneration.",
    Code.UNSUPPORTED: "Remove it from the spec: this server does not support it yet.",
    Code.WITHOUT_EFFECT: "Nothing waits for it. Remove it from the spec, or change it as the text says.",
    Code.REFUSED: "The text says why the API refuses it; it is tried again.",
    Code.FAILED: "The text is the error of the last try; it is tried again automatically. The server's log has the details.",
    Code.SILENT: f"Start the host if it is off. Else, on it: journalctl -u {_AGENT}, then systemctl restart {_AGENT}.",
    Code.OPERATION: "Correct what the text says, and request it again. The cluster goes on meanwhile.",
    Code.LAST_ETCD: "Add another etcd machine, or annotate the Machine with remuda.dev/delete-last-etcd=true and lose its data.",
}


def who(wait: Wait) -> str:
    return _WHO[wait.actor]


def about(wait: Wait, sight: ClusterView) -> Advice:
    """The advice on this wait."""
    found = _particular(wait, sight) or Advice(_WHAT[wait.code])
    return Advice(found.text.replace("CLUSTER", name_of(sight.wanted)), found.commands)


def _particular(wait: Wait, sight: ClusterView) -> Advice | None:
    """The advice for this case of the code; None where the general one says it all."""
    match wait.code:
        case Code.CHECK_IN:
            return _NOT_COME.get(wait.actor)
        case Code.DELETION if wait.subject.group == MACHINE_GROUP:
            return _removal(wait)
        case Code.PROVISIONING if wait.subject.group == MACHINE_GROUP:
            return _creation(wait)
        case Code.PAUSED:
            return _pause(wait)
        case Code.ROLES:
            return Advice(_WHAT[wait.code], (_registration(sight, _missing_roles(wait.evidence)),))
        case Code.CLUSTER_AGENT if not is_administrated(sight.wanted):
            return Advice("Run the output of the command where kubectl reaches the cluster.", (_registration(sight),))
        case Code.CONNECTION if wait.actor is Actor.USER and wait.subject.group == management.GROUP:
            return _disconnected()
        case Code.RELEASE:
            return spec_advice.version(wait, sight, _WHAT[wait.code])
        case Code.REFERENCE:
            return spec_advice.reference(wait, sight)
        case Code.RENDER:
            return spec_advice.unauthorized(wait)
        case Code.FAILED | Code.REFUSED | Code.MALFORMED:
            return _webhook(wait)
        case Code.PLAN_FAILED:
            return spec_advice.refused_value(wait, sight)
        case Code.HOOK:
            return _hook(wait, sight)
        case Code.FINALIZERS if wait.subject.kind == "Machine":
            return _finalizers(wait)
        case Code.LAST_ETCD:
            return _last_etcd(wait, sight)
        case Code.BUDGET:
            return _budget(wait, sight)
        case Code.SILENT:
            return _silent(wait, sight)
        case Code.RESTORE:
            return _restore(wait, sight)
        case Code.OPERATION:
            return _operation(wait, sight)
        case Code.TURN if wait.subject.kind == "RKEControlPlane" and wait.on is None:
            return _QUEUED
    return None


# --- machines ---------------------------------------------------------------------------------------------------------------

# Of a host that does not come, by the party that has to act.
_NOT_COME: Final = {
    Actor.REMUDA: Advice("Nothing: no host can become this machine any more, and its pool replaces it automatically."),
    Actor.PROVIDER: Advice("Check at its provider that the host runs, and on it that its install script reaches this server."),
}

# Of a machine of a pool that can't be removed, by the party that has to act.
_LET_GO: Final = (
    "If it no longer exists, or you give it up, the command skips its removal. Then it is not removed at its provider, where it "
    "may go on running and cost money: remuda machine orphans lists such."
)
_STAYS: Final = {
    Actor.USER: "Correct what the text says; it is tried again automatically within five minutes (remuda machine logs MACHINE).",
    Actor.PROVIDER: "Nothing yet: it is tried again automatically every five minutes (remuda machine logs MACHINE).",
}
_GOES: Final = Advice("Nothing, unless it takes long; then see what is being done: remuda machine logs MACHINE --follow.")


def _removal(wait: Wait) -> Advice:
    job = wait.on is not None and wait.on.kind == "Job"
    if job and wait.actor is not Actor.USER:
        return _GOES
    if wait.actor in (Actor.PROVIDER, Actor.REMUDA, Actor.MACHINE):
        return Advice(_STAYS[Actor.PROVIDER])
    machine = f"{_typed(wait.subject)} {wait.subject.name}"
    command = f"kubectl -n {wait.subject.namespace} annotate {machine} {FORCE_REMOVE}=true"
    return Advice(f"{_STAYS[Actor.USER]} {_LET_GO}", (command,))


_LOGS: Final = "remuda machine logs MACHINE has the whole output, remuda machine attempts CLUSTER the earlier tries."
# By the reason of the driver's error (docs/troubleshooting.md#a-machine-of-a-pool-is-not-made).
_REASONS: Final = (
    (("AuthFailed", "PermissionDenied"), "Correct the cloud credential, or give its account the permission that the text names."),
    (("QuotaExceeded", "OutOfCapacity"), "Request a higher quota, or choose another zone, region or size in the machine config."),
    (("Invalid", "NotFound", "Conflict"), "Correct the field of the machine config that the text names."),
    (("Throttled", "Unavailable", "TimedOut"), "Nothing: it is tried again automatically."),
    (("Elsewhere",), "Make the server that the text names the leader."),
    (("MissingProgram",), "Install what the text names on the server's machine."),
    (("BootstrapFailed",), "Check that the machine reaches the server-url; its script's output is in the log."),
)
_REASON = re.compile(r"\b([A-Z][A-Za-z]+): ")


def _creation(wait: Wait) -> Advice | None:
    named = set(_REASON.findall(wait.evidence))
    text = next((text for reasons, text in _REASONS if named & set(reasons)), "")
    return Advice(f"{text} {_LOGS}") if text else None


_UNHEALTHY = re.compile(r"; unhealthy: ([a-z0-9.-]+(?:, [a-z0-9.-]+)*)")


_CHANGE_BUDGET: Final = "change budget"
_ALLOW: Final = (
    "Wait for the budget's next window, or for the machines that take it up. To allow the change now, edit the annotation "
    "remuda.dev/change-budget of the object that the text names."
)


def _budget(wait: Wait, sight: ClusterView) -> Advice | None:
    named = _UNHEALTHY.search(wait.evidence)
    if _CHANGE_BUDGET in wait.evidence:
        return Advice(_ALLOW)
    if named is None:
        return None
    return Advice(_WHAT[wait.code], tuple(_delete_machine(sight, name) for name in named[1].split(", ")))


_RESTART: Final = "'$(command -v sudo) systemctl restart rancher-system-agent'"


def _silent(wait: Wait, sight: ClusterView) -> Advice | None:
    machine = next((each for each in sight.machines if name_of(each) == wait.subject.name), None)
    labels = labels_of(machine or {})
    if DEPLOYMENT_NAME not in labels:
        # The server has no way into a registered host.
        return None
    # A pool replaces a machine; one with state or the API is not to be given up so lightly.
    keeps = "true" in (labels.get(ETCD_ROLE), labels.get(CONTROL_PLANE_ROLE))
    if not keeps and not conditions.is_true(machine or {}, "NodeReady"):
        text = f"{_WHAT[wait.code]} If the host is gone, delete its machine: its pool makes another."
        return Advice(text, (_delete_machine(sight, wait.subject.name),))
    # Its node is up, so that the host can be entered.
    return Advice(_WHAT[wait.code], (f"remuda ssh {wait.subject.name} -n {workspace_of(sight)} -- {_RESTART}",))


def _delete_machine(sight: ClusterView, name: str) -> str:
    return f"remuda machine delete {name} -n {workspace_of(sight)}"


_HOLDING = re.compile(r"finalizers of other programs hold it: ([a-z0-9./_-]+(?:, [a-z0-9./_-]+)*)$", re.IGNORECASE)


def _finalizers(wait: Wait) -> Advice | None:
    named = _HOLDING.search(wait.evidence)
    if named is None:
        return None
    # Only these: one that another program has added meanwhile stays.
    at = "/metadata/finalizers"
    patch = [{"op": "test", "path": at, "value": named[1].split(", ")}, {"op": "remove", "path": at}]
    where = f"kubectl -n {wait.subject.namespace} patch {_typed(wait.subject)} {wait.subject.name}"
    text = "The program that set the finalizer removes it; check that it runs. If there is none any more, remove the finalizer."
    return Advice(text, (f"{where} --type json -p {shlex.quote(json.dumps(patch))}",))


def _last_etcd(wait: Wait, sight: ClusterView) -> Advice | None:
    """Another one is made by its pool, or registered by the user."""
    names = {ref.name for ref in (wait.subject, wait.on) if ref is not None and ref.kind == "Machine"}
    labels = next((labels_of(each) for each in sight.machines if name_of(each) in names), {})
    if not labels or DEPLOYMENT_NAME in labels:
        return None
    roles = {"etcd": ETCD_ROLE, "control plane": CONTROL_PLANE_ROLE, "worker": WORKER_ROLE}
    options = [_OPTIONS[role] for role, label in roles.items() if labels.get(label) == "true"]
    text = f"{_WHAT[wait.code]} The output of the command registers a host that takes its place."
    return Advice(text, (_registration(sight, options),))


_DRAIN_HOOK = re.compile(r"(pre|post)-drain hook ([A-Za-z0-9._/-]+)$")
_DELETE_HOOK = re.compile(r"\bpre-(?:drain|terminate)\.delete\.hook\.machine\.cluster\.x-k8s\.io/[A-Za-z0-9._-]+")


def _hook(wait: Wait, sight: ClusterView) -> Advice | None:
    if wait.subject.kind != "Machine":
        return None
    deleting = _DELETE_HOOK.findall(wait.evidence)
    if deleting:
        marks = " ".join(f"{each}-" for each in deleting)
        where = f"kubectl -n {wait.subject.namespace} annotate {_typed(wait.subject)} {wait.subject.name}"
        text = "The program that set the hook removes it when it is done; if that does not run any more, remove the hook."
        return Advice(text, (f"{where} {marks}",))
    asked = _DRAIN_HOOK.search(wait.evidence)
    machine = next((each for each in sight.machines if name_of(each) == wait.subject.name), None)
    bootstrap = str(dig(machine or {}, "spec", "bootstrap", "configRef", "name") or "")
    if asked is None or not bootstrap:
        return None
    secret = f"kubectl -n {wait.subject.namespace} get secret {plan_name(bootstrap)}"
    path = "{.metadata.annotations." + (PRE_DRAIN if asked[1] == "pre" else POST_DRAIN).replace(".", "\\.") + "}"
    command = f"{secret.replace(' get ', ' annotate ')} {asked[2]}=\"$({secret} -o jsonpath='{path}')\""
    text = f"The program that the hook is for sets the annotation {asked[2]} on the plan Secret; if it does not run, set it."
    return Advice(text, (command,))


# --- clusters ---------------------------------------------------------------------------------------------------------------


def _pause(wait: Wait) -> Advice:
    subject, commands = wait.subject, []
    if "spec.paused" in wait.evidence and (subject.group, subject.kind) == (capi.GROUP, "Cluster"):
        patch = shlex.quote('{"spec":{"paused":false}}')
        commands.append(f"kubectl -n {subject.namespace} patch {_typed(subject)} {subject.name} --type merge -p {patch}")
    elif "annotation" in wait.evidence or (subject.group == rke.GROUP and wait.on is None):
        commands.append(f"kubectl -n {subject.namespace} annotate {_typed(subject)} {subject.name} cluster.x-k8s.io/paused-")
    return Advice(_WHAT[wait.code], tuple(commands))


_MISSING = re.compile(r"\(missing: ([^)]*)\)")
_OPTIONS: Final = {"etcd": "--etcd", "control plane": "--controlplane", "worker": "--worker"}


def _missing_roles(evidence: str) -> Iterable[str]:
    named = _MISSING.search(evidence)
    return [_OPTIONS[role] for role in named[1].split(", ") if role in _OPTIONS] if named else ()


def _registration(sight: ClusterView, options: Iterable[str] = ()) -> str:
    return " ".join(["remuda cluster registration-command", name_of(sight.wanted), "-n", workspace_of(sight), *options])


def _disconnected() -> Advice:
    commands = (
        "kubectl -n cattle-system get pods -l app=cattle-cluster-agent",
        "kubectl -n cattle-system logs -l app=cattle-cluster-agent --tail 50",
    )
    return Advice(f"See in the cluster why its agent does not reach this server: {'; '.join(commands)}.")


# Its tokens open its snapshots, and are deleted with it; so deleting the cluster is never the advice.
_LOST: Final = (
    "Start a lost etcd host again: it comes back with the state. If none exists, recover the cluster from a snapshot, which also "
    "restores it on new machines (docs/recover.md). Keep the cluster: its snapshots can't be used without its tokens."
)
_QUEUED: Final = Advice("Nothing: it begins when the operation that the text names has ended.")


def _restore(wait: Wait, sight: ClusterView) -> Advice:
    if ETCD_REPLACED in wait.evidence:
        return Advice(_LOST, (*_restoring(sight)[:1], _recovering(sight)))
    return Advice(_WHAT[wait.code], _restoring(sight))


_HARMLESS = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def _restoring(sight: ClusterView) -> tuple[str, ...]:
    """The commands to choose a snapshot and to restore it; the last one again, if there was one. It asks before it begins."""
    target, last = name_of(sight.wanted), str(dig(sight.plane or {}, "status", "etcdSnapshotRestore", "name") or "")
    listing = f"remuda snapshot ls {target} -n {workspace_of(sight)}"
    if not _HARMLESS.fullmatch(last):
        return (listing,)
    return listing, f"remuda snapshot restore {target} {last} -n {workspace_of(sight)}"


def _recovering(sight: ClusterView) -> str:
    """Without more words it says what it can begin with."""
    return f"remuda cluster recover {name_of(sight.wanted)} -n {workspace_of(sight)}"


# The command that requests it again, by the title of an operation.
_AGAIN: Final = {
    KINDS[CREATE].title: "remuda snapshot create",
    KINDS[RECOVERY].title: "remuda cluster recover",
    KINDS[CERTIFICATES].title: "remuda cluster rotate-certificates",
}


def _operation(wait: Wait, sight: ClusterView) -> Advice:
    if wait.evidence.startswith(KINDS[RESTORE].title):
        return Advice(_WHAT[wait.code], _restoring(sight))
    command = next((command for title, command in _AGAIN.items() if wait.evidence.startswith(title)), "")
    return Advice(_WHAT[wait.code], (f"{command} {name_of(sight.wanted)} -n {workspace_of(sight)}",) if command else ())


_DENIED: Final = re.compile(r'admission webhook "[^"]+" denied the request')


def _webhook(wait: Wait) -> Advice | None:
    if wait.on is None:
        return None
    kind, name = wait.on.kind.lower(), wait.on.name
    names_it = f"kubectl get {kind} {name} -o yaml names"
    if wait.on.kind == "CustomResourceDefinition" and wait.evidence.startswith("conversion webhook"):
        return Advice(f"Start the service that converts objects of this kind: {names_it} it (spec.conversion).")
    if wait.on.group != "admissionregistration.k8s.io":
        return None
    if "failed calling webhook" not in wait.evidence or _DENIED.search(wait.evidence):
        # It answers: a policy is not to be removed because it says no.
        return Advice(f"Change what the webhook denies (the text says why), or its policy: {names_it} its service.")
    text = (
        f"Start the service of the webhook: {names_it} it. "
        "If it is not needed any more, delete its configuration; requests are not checked by it then."
    )
    return Advice(text, (f"kubectl delete {kind} {name}",))


def _typed(ref: Ref) -> str:
    """The kind as kubectl takes it."""
    return f"{ref.kind}.{ref.group}".lower() if ref.group else ref.kind.lower()
