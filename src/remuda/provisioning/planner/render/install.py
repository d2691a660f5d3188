"""The instruction that installs the distribution, and the stamps by which a host detects that it must restart
(docs/reference/node-plan.md#install-instruction).

Two hashes over almost the same input: RESTART_STAMP changes with all input that a running host would not notice, DRAIN_HASH
only with changes that justify moving pods. A change of the server to join restarts a node, but does not drain it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from remuda.kube.encoding import gojson

from ... import well_known
from ...plans.plan import INSTALL, File, Instruction, PeriodicInstruction
from ...releases.distributions import REMUDA
from .context import ClusterContext, Config, HostContext, entries

RESTART_STAMP, DRAIN_HASH = "RESTART_STAMP", "DRAIN_HASH"
_NOT_WORTH_A_DRAIN = ("server", "cluster-init")


def image(cluster: ClusterContext) -> str:
    """The installer's image, from the cluster's registry; our own distribution's by default from our built-in registry."""
    tag = cluster.facts.release.version.replace("+", "-")
    ours = cluster.facts.built_in_registry if cluster.runtime == REMUDA else None
    registry = cluster.private_registry or (ours.host if ours is not None else "")
    return resolved(f"{cluster.facts.installer_prefix}{cluster.runtime.name}:{tag}", registry)


def resolved(name: str, registry: str) -> str:
    """The name of an image in a registry; a name that has a registry already stays."""
    first, slash, _ = name.partition("/")
    if not registry or name.startswith(f"{registry}/") or (slash and ("." in first or ":" in first or first == "localhost")):
        return name
    return f"{registry}/{name}" if slash else f"{registry}/rancher/{name}"


def instruction(host: HostContext, files: Iterable[File], drain_content: Mapping[str, str]) -> Instruction:
    """Install, start, and restart when relevant input has changed.

    `drain_content` has, by path, the content that the drain hash uses instead of a file's own.
    """
    counted = [file for file in files if not file.dynamic]
    from_image = image(host.cluster)
    restart = _stamp(host.cluster, from_image, [part for file in counted for part in (file.path, file.content)])
    taken = [part for file in counted for part in (file.path, drain_content.get(file.path, file.content))]
    drain = _stamp(host.cluster, from_image, taken)
    return _install(host, from_image, (f"{RESTART_STAMP}={restart}", f"{DRAIN_HASH}={drain}"))


def without_start(host: HostContext) -> Instruction:
    """Install only, for a plan whose task needs the distribution's programs: nothing is started or restarted."""
    return _install(host, image(host.cluster), (f"INSTALL_{host.cluster.runtime.env_prefix}_SKIP_START=true",))


def worth_a_drain(config: Config) -> str:
    """The part of a host's configuration whose change affects pods."""
    return gojson.dumps_indented({name: value for name, value in config.items() if name not in _NOT_WORTH_A_DRAIN}).decode()


def _install(host: HostContext, from_image: str, stamps: tuple[str, ...]) -> Instruction:
    cluster = host.cluster
    prefix = cluster.runtime.env_prefix
    env = [*stamps]
    env += [
        f"{said['name']}={said['value']}"
        for said in entries(cluster.spec.get("agentEnvVars"))
        if said.get("name") and said.get("value")
    ]
    env.append(f"{prefix}_DATA_DIR={cluster.directories.distro}")
    if cluster.layout.root != "/":
        env.append(f"{prefix}_ROOT={cluster.layout.root}")
    if not host.is_server:
        env.append(f"INSTALL_{prefix}_EXEC=agent")
    return Instruction(INSTALL, from_image, tuple(env), ("-c", "run.sh"), "sh")


def _stamp(cluster: ClusterContext, from_image: str, parts: Iterable[str]) -> str:
    text = "".join((str(_generation(cluster)), from_image, *parts, str(cluster.control_plane.config_generation)))
    return hashlib.sha256(text.encode()).hexdigest()


def _generation(cluster: ClusterContext) -> int:
    said = cluster.spec.get("provisionGeneration")
    return said if isinstance(said, int) else 0


# --- periodic -------------------------------------------------------------------------------------------------------------
#
# Reports of a first server without an API: its address, which others need to join it
# (docs/reference/node-plan.md#install-instruction).
#
# Such a machine has no Node, so only the host knows its address. :mod:`..election` reads the output of these instructions.

CAPTURE_ADDRESS, ETCD_NAME = "capture-address", "etcd-name"
_PERIOD = 600


def instructions(host: HostContext) -> tuple[PeriodicInstruction, ...]:
    machine, cluster = host.machine, host.cluster
    if not host.join.init or not machine.is_only_etcd or well_known.JOIN_URL_AUTOSET_DISABLED in host.annotations:
        return ()
    ask = (
        f"curl -f --retry 100 --retry-delay 5 --cacert {cluster.tls('server-ca.crt')} "
        f"https://{cluster.layout.loopback}:{cluster.runtime.supervisor_port}/db/info | grep 'clientURLs'"
    )
    return (
        PeriodicInstruction(CAPTURE_ADDRESS, args=("-c", ask), command="sh", periodSeconds=_PERIOD),
        PeriodicInstruction(
            ETCD_NAME, args=("-c", f"cat {cluster.directories.distro}/server/db/etcd/name"), command="sh", periodSeconds=_PERIOD
        ),
    )
