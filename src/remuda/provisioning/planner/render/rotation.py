"""The plans by which a host rotates certificates and encryption keys (docs/reference/operations.md#rotation-of-certificates).

They install nothing: the distribution's program is there, and its version must not change now. Names, paths and the order of
instructions are Rancher's, since a host records by them what it has done; the scripts are ours. A plan that restarts the service
has the host's probes: only they tell whether it works then.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...plans.plan import File, Instruction, PeriodicInstruction, Plan
from ..snapshot import RestartServer, RotateCertificates, RotateKeys, Rotation
from . import components
from . import idempotent_commands as idempotence
from .components import CONTROLLER_MANAGER, SCHEDULER, Component
from .context import Config, HostContext, strings

# The instruction whose output has the stage of the rotation of keys.
STATUS = "secrets-encrypt-status"

_STATUS_PERIOD = 5
_ENDPOINT = "CONTAINER_RUNTIME_ENDPOINT=unix:///var/run/k3s/containerd/containerd.sock"


def plan(host: HostContext, task: Rotation, files: Iterable[File], config: Config) -> Plan:
    match task:
        case RotateCertificates():
            return Plan(tuple(files), _certificates(host, task, config), probes=components.probes(host, config))
        case RotateKeys():
            added = (_script(host, _WAIT_FOR_STATUS), _script(host, _STATUS_SCRIPT), *_rotate_keys_script(host, task))
            return Plan((*files, *added), _keys(host, task), (_reported(host, task),))
        case RestartServer():
            restart, added = _restart(host, task)
            periodic = (_reported(host, task),) if host.machine.is_control_plane else ()
            return Plan((*files, *added), restart, periodic, components.probes(host, config))


# --- certificates -----------------------------------------------------------------------------------------------------------


def _certificates(host: HostContext, task: RotateCertificates, config: Config) -> tuple[Instruction, ...]:
    directories, runtime, value = host.cluster.directories, host.cluster.runtime, str(task.generation)
    restart = idempotence.restart(directories, "certificate-rotation/restart", value, runtime.unit(host.is_server))
    if not host.is_server:
        return restart
    services = (word for service in task.services for word in ("-s", service))
    words = ["certificate", "rotate", *directories.option(runtime), *services]
    found = [
        idempotence.stop(directories, "certificate-rotation/stop", value, runtime.server_unit),
        idempotence.instruction(directories, "certificate-rotation/rotate", value, directories.command(runtime), words),
    ]
    if host.machine.is_control_plane:
        for component, name, service in ((CONTROLLER_MANAGER, "kcm", "controller-manager"), (SCHEDULER, "ks", "scheduler")):
            if not task.services or service in task.services:
                found += _own_certificate(host, component, name, value, config)
    if runtime.runs_static_pods:
        found.append(idempotence.remove_manifests(directories, "certificate-rotation/manifest-removal", value, runtime))
    return (*found, *restart)


def _own_certificate(host: HostContext, component: Component, name: str, value: str, config: Config) -> Iterable[Instruction]:
    """Removal of the certificate that a component signs itself, for the probes; it makes another when it starts."""
    cluster = host.cluster
    arguments = strings(config.get(component.argument))
    directory = components.value(arguments, "cert-dir")
    if not directory or components.value(arguments, "tls-cert-file"):
        return
    removed = {"cert": f"{directory}/{component.name}.crt", "key": f"{directory}/{component.name}.key"}
    if cluster.runtime.runs_static_pods:
        removed["spm"] = f"{cluster.directories.distro}/agent/pod-manifests/{component.name}.yaml"
    for what, path in removed.items():
        yield idempotence.instruction(cluster.directories, f"certificate-rotation/rm-{name}-{what}", value, "rm", ("-f", path))


# --- encryption keys --------------------------------------------------------------------------------------------------------
#
# The status of a server that has just started fails for a while, so that scripts wait for it. `rotate-keys` answers when all
# Secrets are written anew; its client may give up before that, so that a script of ours then looks whether it goes on.

_WAIT_FOR_UNIT = "wait_for_systemctl_status.sh"
_WAIT_FOR_STATUS = "wait_for_secrets_encrypt_status.sh"
_STATUS_SCRIPT = "secrets_encrypt_status.sh"
_ROTATE_KEYS = "rotate_keys.sh"
_ONE_STEP = "rotate-keys"

_SCRIPTS = {
    _WAIT_FOR_UNIT: """\
#!/bin/sh
# usage: wait_for_systemctl_status.sh UNIT
# Waits five minutes for a unit to be active.
for attempt in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    systemctl is-active "$1" && exit 0
    sleep 10
done
echo "$1 is not active" >&2
exit 1
""",
    _WAIT_FOR_STATUS: """\
#!/bin/sh
# usage: wait_for_secrets_encrypt_status.sh COMMAND [OPTION...]
# Waits for an answer about the encryption of Secrets.
command="$1"
shift
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    "$command" secrets-encrypt status "$@" && exit 0
    sleep 10
done
exit 1
""",
    _STATUS_SCRIPT: """\
#!/bin/sh
# usage: secrets_encrypt_status.sh COMMAND [STAGE [OPTION...]]
# Waits for an answer about the encryption of Secrets, and for a stage of the rotation.
command="$1"
stage="$2"
shift "$(($# < 2 ? $# : 2))"
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    if found="$("$command" secrets-encrypt status "$@")"; then
        case "$found" in *"$stage"*) exit 0 ;; esac
    fi
    sleep 10
done
echo "the rotation of encryption keys is not at ${stage:-any stage}: $found" >&2
exit 1
""",
    _ROTATE_KEYS: """\
#!/bin/sh
# usage: rotate_keys.sh COMMAND [OPTION...]
# Rotates the encryption keys. A client that gave up while the server goes on counts as success.
command="$1"
shift
status() { "$command" secrets-encrypt status "$@"; }
active() { status "$@" | grep '^ *\\*'; }

before="$(active "$@")"
"$command" secrets-encrypt rotate-keys "$@" && exit 0
code=$?
case "$(status "$@")" in
    *": reencrypt_request"* | *": reencrypt_active"*) exit 0 ;;
esac
now="$(active "$@")"
if [ -n "$before" ] && [ -n "$now" ] && [ "$before" != "$now" ]; then
    exit 0
fi
exit $code
""",
}


def _keys(host: HostContext, task: RotateKeys) -> tuple[Instruction, ...]:
    directories = host.cluster.directories
    command, option = directories.command(host.cluster.runtime), directories.option(host.cluster.runtime)
    args: tuple[str, ...] = ("secrets-encrypt", task.command, *option)
    if task.command == _ONE_STEP:
        command, args = "/bin/sh", (_path(host, _ROTATE_KEYS), command, *option)
    identifier = f"encryption-key-rotation/{task.phase.lower()}"
    run = idempotence.instruction(directories, identifier, str(task.generation), command, args)
    return (run, *_status(host, task))


def _rotate_keys_script(host: HostContext, task: RotateKeys) -> tuple[File, ...]:
    return (_script(host, _ROTATE_KEYS),) if task.command == _ONE_STEP else ()


def _restart(host: HostContext, task: RestartServer) -> tuple[tuple[Instruction, ...], tuple[File, ...]]:
    cluster = host.cluster
    directories, runtime, value, phase = cluster.directories, cluster.runtime, str(task.generation), task.phase.lower()
    found: list[Instruction] = []
    if runtime.runs_static_pods:
        identifier = f"encryption-key-rotation/manifest-cleanup/{phase}"
        found.append(idempotence.remove_manifests(directories, identifier, value, runtime))
    found += idempotence.restart(directories, f"encryption-key-rotation/restart/{phase}", value, runtime.server_unit)
    env = (_ENDPOINT, *_marks(task))
    waiting = ("-x", _path(host, _WAIT_FOR_UNIT), runtime.server_unit)
    found.append(Instruction("wait-for-systemctl-status", env=env, args=waiting, command="sh"))
    if not host.machine.is_control_plane:
        return tuple(found), (_script(host, _WAIT_FOR_UNIT),)
    answering = ("-x", _path(host, _WAIT_FOR_STATUS), directories.command(runtime), *directories.option(runtime))
    found.append(Instruction("wait-for-secrets-encrypt-status", env=env, args=answering, command="sh", saveOutput=True))
    scripts = (_WAIT_FOR_UNIT, _STATUS_SCRIPT, _WAIT_FOR_STATUS)
    return (*found, *_status(host, task, task.stage)), tuple(_script(host, name) for name in scripts)


def _status(host: HostContext, task: RotateKeys | RestartServer, stage: str = "") -> tuple[Instruction, Instruction]:
    directories, runtime = host.cluster.directories, host.cluster.runtime
    option = directories.option(runtime)
    awaited = (stage, *option) if stage or option else ()
    args = ("-x", _path(host, _STATUS_SCRIPT), directories.command(runtime), *awaited)
    command, words = _asked_for_status(host)
    return (
        Instruction("secrets-encrypt-status-script", env=_marks(task), args=args, command="sh"),
        Instruction(STATUS, env=_marks(task), args=words, command=command, saveOutput=True),
    )


def _reported(host: HostContext, task: RotateKeys | RestartServer) -> PeriodicInstruction:
    command, words = _asked_for_status(host)
    return PeriodicInstruction(STATUS, env=_marks(task), args=words, command=command, periodSeconds=_STATUS_PERIOD)


def _asked_for_status(host: HostContext) -> tuple[str, tuple[str, ...]]:
    directories, runtime = host.cluster.directories, host.cluster.runtime
    return directories.command(runtime), ("secrets-encrypt", "status", *directories.option(runtime))


def _marks(task: RotateKeys | RestartServer) -> tuple[str, str]:
    """Variables without an effect but that plans of different phases differ, and are run."""
    return f"ENCRYPTION_KEY_ROTATION_STAGE={task.phase}", f"ENCRYPTION_KEY_ROTATION_GENERATION={task.generation}"


def _path(host: HostContext, name: str) -> str:
    return f"{host.cluster.directories.distro}/capr/encryption-key-rotation/bin/{name}"


def _script(host: HostContext, name: str) -> File:
    return File.of(_path(host, name), _SCRIPTS[name])
