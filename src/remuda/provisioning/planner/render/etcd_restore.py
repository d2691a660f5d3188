"""The plans by which hosts restore a snapshot of etcd (docs/reference/operations.md#restore).

Commands, paths and their order are Rancher's; the scripts are ours, and so is the check of the file before anything stops. The
`remuda` distribution does with commands of its own what the others do with kubectl.
Not here: which machine gets which task, and when (`..operations.etcd_snapshot_restore`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from ...etcd.uploaded_files import HOSTS_PATH as UPLOADED_PATH
from ...plans.plan import SHUTDOWN, File, Instruction, Plan
from ...releases.distributions import REMUDA
from ..snapshot import CheckSnapshot, CleanNodes, CleanPods, FindInBucket, ResetMember, RestoreSnapshot, StopForRestore
from . import config, install
from . import idempotent_commands as idempotence
from .context import HostContext

Task = CheckSnapshot | FindInBucket | StopForRestore | RestoreSnapshot | ResetMember | CleanPods | CleanNodes
TASKS = (CheckSnapshot, FindInBucket, StopForRestore, RestoreSnapshot, ResetMember, CleanPods, CleanNodes)
# The directory below which a host notes what it has done for a restore; the first step removes it.
_NOTED = "etcd-restore"


def plan(host: HostContext, task: Task, normal: Plan) -> Plan:
    """`normal` is the host's plan without a task; its files are without S3 for :class:`RestoreSnapshot`."""
    match task:
        case CheckSnapshot():
            fetched = _fetched(host, task, task.sha256) if task.uploaded else ()
            scripts = (*((_script(host, _FETCH),) if fetched else ()), _script(host, _CHECK))
            return Plan((*normal.files, *scripts), (install.without_start(host), *fetched, _check(host, task)))
        case FindInBucket():
            authority, found = _find(host, task)
            # The cluster's own settings may name the same one.
            files = {file.path: file for file in (*normal.files, *authority, _script(host, _FIND))}
            return Plan(tuple(files.values()), (install.without_start(host), found))
        case StopForRestore():
            return Plan(normal.files, tuple(_stop(host, keep=task.keep)))
        case RestoreSnapshot():
            return _restore(host, task, normal.files)
        case ResetMember():
            return _reset_member(host, task, normal.files)
        case CleanPods():
            added, run = _clean_pods(host, task) if host.machine.is_control_plane else ((), ())
        case CleanNodes():
            added, run = _clean_nodes(host, task)
    return _with_more(normal, added, run)


def _with_more(normal: Plan, files: Iterable[File], instructions: Iterable[Instruction]) -> Plan:
    """The normal plan with more to do: its stamps stay, so that what was added restarts nothing when it goes."""
    return Plan(
        (*normal.files, *files),
        (*normal.instructions, *instructions),
        normal.periodicInstructions,
        normal.probes,
        normal.error,
    )


# --- check ----------------------------------------------------------------------------------------------------------------


def _check(host: HostContext, task: CheckSnapshot) -> Instruction:
    directories = host.cluster.directories
    known = (str(task.size), task.sha256)
    # Our own distribution also tries whether etcd can read it, and whether the cluster's token opens what is in it.
    command = (directories.command(REMUDA),) if host.cluster.runtime is REMUDA else ()
    args = (_path(host, _CHECK), _file(host, task), *known, *command)
    return Instruction("check-snapshot", args=args, command="/bin/sh")


def _find(host: HostContext, task: FindInBucket) -> tuple[list[File], Instruction]:
    """The list of the bucket must name the snapshot."""
    cluster = host.cluster
    flags, variables, authority = config.s3_flags(cluster, task.s3)
    args = (_path(host, _FIND), task.file, cluster.directories.command(cluster.runtime), "etcd-snapshot", "ls", *flags)
    return authority, Instruction("check-snapshot", env=variables, args=args, command="/bin/sh")


def _fetched(host: HostContext, task: CheckSnapshot | RestoreSnapshot, sha256: str) -> tuple[Instruction, ...]:
    """The file that was uploaded is put among the host's own, unless it is there already."""
    config = host.cluster.layout.path(_AGENT_CONFIG)
    args = (_path(host, _FETCH), _file(host, task), sha256, config, UPLOADED_PATH)
    return (Instruction("fetch-snapshot", args=args, command="/bin/sh"),)


def _file(host: HostContext, task: CheckSnapshot | RestoreSnapshot) -> str:
    """The absolute path of a snapshot on a host."""
    path = _restore_path(host, task)
    return path if posixpath.isabs(path) else f"{host.cluster.directories.distro}/server/{path}"


def _restore_path(host: HostContext, task: CheckSnapshot | RestoreSnapshot) -> str:
    """The path as Rancher names it, below the server's directory; a file in another directory by its own path."""
    usual = f"db/snapshots/{task.file}"
    path = task.location.removeprefix("file://")
    if not posixpath.isabs(path) or path == f"{host.cluster.directories.distro}/server/{usual}":
        return usual
    return path


# --- shutdown -------------------------------------------------------------------------------------------------------------


def _stop(host: HostContext, *, keep: bool) -> Iterable[Instruction]:
    """A member whose data is to be kept also keeps its certificates, since no snapshot brings others."""
    cluster, machine = host.cluster, host.machine
    server, noted = f"{cluster.directories.distro}/server", f"{cluster.directories.provisioning}/idempotence/{_NOTED}"
    command, args, env = _killall(host)
    yield Instruction(SHUTDOWN, env=env, args=args, command=command)
    if host.is_server and cluster.runtime.runs_static_pods:
        yield Instruction("remove-server-manifests", args=("-c", _without_manifests(host)), command="/bin/sh")
    yield Instruction("remove-etcd-restore-notes", args=("-rf", noted), command="rm")
    if keep:
        return
    if machine.is_etcd:
        # A member that has never started has no directory.
        mark = f"if [ -d {server}/db/etcd ]; then touch {server}/db/etcd/tombstone; fi"
        yield Instruction("create-etcd-tombstone", args=("-c", mark), command="/bin/sh")
    if host.is_server:
        yield Instruction("remove-tls-directory", args=("-rf", f"{server}/tls"), command="rm")
        yield Instruction("remove-cred-directory", args=("-rf", f"{server}/cred"), command="rm")


def _killall(host: HostContext) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Command, arguments and variables that stop all of the distribution, if it is installed."""
    cluster = host.cluster
    name = f"{cluster.runtime.name}-killall.sh"
    text = f"if command -v {name} >/dev/null; then {name}; else echo {cluster.runtime.name} is not installed; fi"
    if cluster.runtime is REMUDA:
        # A host in a directory does not have its own programs on the PATH.
        places = " ".join(cluster.layout.path(f"{prefix}/bin/{name}") for prefix in ("/usr/local", "/opt/remuda"))
        text = f"for script in {places}; do if [ -x $script ]; then exec $script; fi; done; echo remuda is not installed"
    return "/bin/sh", ("-c", text), (f"{cluster.runtime.env_prefix}_DATA_DIR={cluster.directories.distro}",)


def _without_manifests(host: HostContext) -> str:
    return f"rm -rf {host.cluster.directories.distro}/server/manifests/{host.cluster.runtime.name}-*.yaml"


# --- restore --------------------------------------------------------------------------------------------------------------


def _restore(host: HostContext, task: RestoreSnapshot, files: tuple[File, ...]) -> Plan:
    cluster = host.cluster
    found = [_once(host, task.request, SHUTDOWN, *_killall(host))]
    if cluster.runtime.runs_static_pods:
        found.append(_once(host, task.request, "manifest-removal", "/bin/sh", ("-c", _without_manifests(host))))
    found.append(install.without_start(host))
    if task.uploaded:
        found.extend(_fetched(host, task, task.uploaded))
        files = (*files, _script(host, _FETCH))
    found.append(_once(host, task.request, "clean-etcd-dir", "rm", ("-rf", f"{cluster.directories.distro}/server/db/etcd")))
    reset = _reset(host)
    variables: tuple[str, ...] = ()
    if task.s3 is None:
        reset += [f"--cluster-reset-restore-path={_restore_path(host, task)}", "--etcd-s3=false"]
    else:
        flags, variables, authority = config.s3_flags(cluster, task.s3)
        reset += [f"--cluster-reset-restore-path={task.file}", *flags]
        files = (*files, *authority)
    found.append(_once(host, task.request, "restore", cluster.directories.command(cluster.runtime), reset, variables))
    return Plan(files, tuple(found))


def _reset_member(host: HostContext, task: ResetMember, files: tuple[File, ...]) -> Plan:
    """A reset without a snapshot refuses to run again until the note of the last one is gone."""
    cluster = host.cluster
    flag = f"{cluster.directories.distro}/server/db/reset-flag"
    found = [
        _once(host, task.request, SHUTDOWN, *_killall(host)),
        install.without_start(host),
        _once(host, task.request, "remove-reset-flag", "rm", ("-f", flag)),
        _once(host, task.request, "reset", cluster.directories.command(cluster.runtime), [*_reset(host), "--etcd-s3=false"]),
    ]
    return Plan(files, tuple(found))


def _reset(host: HostContext) -> list[str]:
    return [
        "server",
        "--cluster-reset",
        f"--etcd-arg=advertise-client-urls=https://{host.cluster.loopback}:2379",
        "--etcd-disable-snapshots=false",
    ]


def _once(host: HostContext, request: str, name: str, command: str, args: Iterable[str], env: Iterable[str] = ()) -> Instruction:
    return idempotence.instruction(host.cluster.directories, f"{_NOTED}/{name}", request, command, args, env)


# --- clean-up -------------------------------------------------------------------------------------------------------------
#
# The restored state has pods and Nodes of its time. Pods of the system are deleted when the first nodes are ready, so that new
# ones start; Nodes without a Machine are deleted when all servers are back.

_PODS = ("kube-system:k8s-app=kube-dns", "kube-system:k8s-app=kube-dns-autoscaler")
_PODS_OF_RKE2 = (
    "kube-system:app=rke2-metrics-server",
    "tigera-operator:k8s-app=tigera-operator",
    "calico-system:k8s-app=calico-node",
    "calico-system:k8s-app=calico-kube-controllers",
    "calico-system:k8s-app=calico-typha",
    "kube-system:k8s-app=canal",
    "kube-system:k8s-app=cilium",
    "kube-system:app=rke2-multus",
    "kube-system:app.kubernetes.io/name=rke2-ingress-nginx",
)
_OUR_PODS = (
    "cattle-system:app=cattle-cluster-agent",
    "cattle-system:app=kube-api-auth",
    "cattle-system:app=rancher-webhook",
    "cattle-system:upgrade.cattle.io/controller=system-upgrade-controller",
    "cattle-fleet-system:app=fleet-agent",
)
Added = tuple[tuple[File, ...], tuple[Instruction, ...]]


def _clean_pods(host: HostContext, task: CleanPods) -> Added:
    cluster, request = host.cluster, task.request
    pods = (*_PODS, *(_PODS_OF_RKE2 if cluster.runtime.runs_static_pods else ()), *_OUR_PODS)
    if cluster.runtime is REMUDA:
        words = ("restored", "pods", *task.machines, *pods)
        return (), (_once(host, request, "clean-pods", cluster.directories.command(REMUDA), words),)
    kubectl, env = _kubectl(host)
    found = [
        _once(host, request, "wait-for-pod-list", "/bin/sh", (_path(host, _POD_LIST), kubectl), env),
        _once(host, request, "wait-for-ready", "/bin/sh", (_path(host, _READY), kubectl, *task.machines), env),
    ]
    for number, (namespace, _, selector) in enumerate(pod.partition(":") for pod in pods):
        words = ("delete", "pods", "-n", namespace, "-l", selector, "--wait=false")
        found.append(_once(host, request, f"clean-pods-{number}", kubectl, words, env))
    return (_script(host, _POD_LIST), _script(host, _READY)), tuple(found)


def _clean_nodes(host: HostContext, task: CleanNodes) -> Added:
    cluster = host.cluster
    lists = {f"machine-ids-{task.digits}": task.machines, f"node-names-{task.digits}": task.nodes}
    files = [
        File.of(_path(host, name), "".join(f"{line}\n" for line in sorted(lines)), dynamic=True, minor=True)
        for name, lines in lists.items()
    ]
    paths = [file.path for file in files]
    if cluster.runtime is REMUDA:
        words = ("restored", "nodes", *paths)
        return tuple(files), (_once(host, task.request, "clean-nodes", cluster.directories.command(REMUDA), words),)
    kubectl, env = _kubectl(host)
    run = _once(host, task.request, "clean-nodes", "/bin/sh", (_path(host, _NODES), kubectl, *paths), env)
    return (*files, _script(host, _NODES)), (run,)


def _kubectl(host: HostContext) -> tuple[str, tuple[str]]:
    cluster = host.cluster
    runtime, layout = cluster.runtime, cluster.layout
    return cluster.directories.kubectl(runtime, layout), (f"KUBECONFIG={runtime.kubeconfig(layout)}",)


def _path(host: HostContext, name: str) -> str:
    return f"{host.cluster.directories.distro}/capr/etcd-restore/bin/{name}"


def _script(host: HostContext, name: str) -> File:
    return File.of(_path(host, name), _SCRIPTS[name], dynamic=True, minor=True)


_FIND, _FETCH = "find_snapshot.sh", "fetch_snapshot.sh"
# The agent's configuration names the file with the server's address, its CA and the token of the host's plan.
_AGENT_CONFIG = "/etc/rancher/agent/config.yaml"
_CHECK, _POD_LIST, _READY, _NODES = "check_snapshot.sh", "wait_for_pod_list.sh", "wait_for_ready.sh", "clean_up_nodes.sh"
_SCRIPTS = {
    _CHECK: """\
#!/bin/sh
# usage: check_snapshot.sh FILE SIZE SHA256 [COMMAND]
# Checks that a file is a whole snapshot of etcd. A size of 0 and an empty sum are not compared; COMMAND has a check of its own.
fail() {
    echo "$1" >&2
    exit 1
}
hex() { od -An -v -tx1 | tr -d ' \\n'; }
sum() { sha256sum | cut -d ' ' -f 1; }

[ -e "$1" ] || fail "there is no snapshot at $1"
[ -f "$1" ] && [ -r "$1" ] || fail "$1 is no file that can be read"
size="$(($(wc -c < "$1")))"
[ "$size" -gt 0 ] || fail "$1 is empty"
[ "$2" = 0 ] || [ "$2" = "$size" ] || fail "$1 has $size bytes, but had $2 when it was taken"
[ -z "$3" ] || [ "$3" = "$(sum < "$1")" ] || fail "$1 is not the file that was taken: its SHA-256 differs"

case "$(head -c 4 "$1" | hex)" in
    504b0304) ;; # a zip archive
    *)
        [ "$(head -c 20 "$1" | tail -c 4 | hex)" = edda0ced ] || fail "$1 is no snapshot of etcd"
        # etcd puts the SHA-256 of all that is before it at the end.
        if [ "$((size % 512))" = 32 ] && [ "$(head -c "$((size - 32))" "$1" | sum)" != "$(tail -c 32 "$1" | hex)" ]; then
            fail "$1 is damaged: its content has changed since it was taken"
        fi
        ;;
esac
[ -z "$4" ] || exec "$4" etcd-snapshot verify "$1"
""",
    _FETCH: """\
#!/bin/sh
# usage: fetch_snapshot.sh FILE SHA256 AGENT-CONFIG PATH
# Downloads a snapshot from PATH/SHA256 of the management server to FILE, unless it is there. A download that was cut goes on.
fail() {
    echo "$1" >&2
    exit 1
}
is_it() { [ -f "$1" ] && [ "$(sha256sum < "$1" | cut -d ' ' -f 1)" = "$sha256" ]; }
umask 077
file="$1" sha256="$2" part="${1%/*}/.$2.part"
is_it "$file" && exit 0
mkdir -p "${file%/*}" || fail "there is no directory for $file"
connection=$(sed -n 's/^connectionInfoFile: *//p' "$3" | tr -d '"' | head -n 1)
[ -r "$connection" ] || fail "the agent's connection to its server can't be read ($3)"
value() { sed -n 's|.*'"$1"': *\\([][A-Za-z0-9+/=._:-]*\\).*|\\1|p' "$connection" | head -n 1; }
server=$(value server) authority=$(value certificate-authority-data)
[ -n "$server" ] || fail "the agent's connection names no server"
options=
if [ -n "$authority" ]; then
    authorities=$(mktemp) || exit 1
    trap 'rm -f "$authorities"' EXIT
    echo "$authority" | base64 -d > "$authorities" || exit 1
    options="--cacert $authorities"
fi
attempt=0 said=
while [ "$attempt" -lt 10 ]; do
    attempt=$((attempt + 1))
    # The token goes by standard input: all users of the host can read arguments.
    # shellcheck disable=SC2086
    said=$(printf 'header = "Authorization: Bearer %s"\n' "$(value token)" |
        curl -fsS $options --connect-timeout 30 --speed-limit 1 --speed-time 60 -C - -K - -o "$part" "$server$4/$sha256" 2>&1)
    if is_it "$part"; then
        mv "$part" "$file" || exit 1
        exit 0
    fi
    # The hash of a part says nothing; that of a whole file that is not it does.
    case "$said" in
        '' | *416*) rm -f "$part" ;;
    esac
    sleep 3
done
fail "the snapshot can't be fetched from $server: ${said:-its SHA-256 differs}"
""",
    _FIND: """\
#!/bin/sh
# usage: find_snapshot.sh NAME COMMAND...
# Checks that COMMAND, which lists snapshots, names one in a bucket.
name="$1"
shift
listed="$("$@")" || exit 1
while read -r file location rest; do
    case "$location" in
        s3://*) [ "$file" = "$name" ] || [ "${location##*/}" = "$name" ] && exit 0 ;;
    esac
done <<EOF
$listed
EOF
echo "there is no snapshot $name in the bucket" >&2
exit 1
""",
    _POD_LIST: """\
#!/bin/sh
# usage: wait_for_pod_list.sh KUBECTL
# Waits five minutes for the API to list pods.
attempt=0
until "$1" get pods --all-namespaces --request-timeout=10s >/dev/null; do
    attempt=$((attempt + 1))
    if [ "$attempt" -ge 30 ]; then
        echo "the API does not list pods" >&2
        exit 1
    fi
    sleep 10
done
""",
    _READY: """\
#!/bin/sh
# usage: wait_for_ready.sh KUBECTL MACHINE...
# Waits five minutes for the nodes of these Machines, given by uid, to be ready.
kubectl="$1"
shift
column='{range .items[*].status.conditions[?(@.type=="Ready")]}{.status}{end}'
for machine in "$@"; do
    attempt=0
    until [ "$("$kubectl" get nodes -l "rke.cattle.io/machine=$machine" -o "jsonpath=$column")" = True ]; do
        attempt=$((attempt + 1))
        if [ "$attempt" -ge 30 ]; then
            echo "the node of machine $machine is not ready" >&2
            exit 1
        fi
        sleep 10
    done
done
""",
    _NODES: """\
#!/bin/sh
# usage: clean_up_nodes.sh KUBECTL MACHINES NAMES
# Deletes the nodes that are neither in the file NAMES nor of a Machine whose uid is in the file MACHINES.
columns='NAME:.metadata.name,MACHINE:.metadata.labels.rke\\.cattle\\.io/machine'
nodes="$("$1" get nodes --no-headers -o "custom-columns=$columns")" || exit 1
printf '%s\\n' "$nodes" | while read -r name machine; do
    [ -n "$name" ] || continue
    grep -qxF "$name" "$3" && continue
    grep -qxF "$machine" "$2" && continue
    "$1" delete node "$name" --wait=false || exit 1
done
""",
}
CHECK_SCRIPT = _SCRIPTS[_CHECK]
