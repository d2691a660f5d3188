"""The probes by which a host's agent checks the host's health (docs/reference/node-plan.md#host-probes)."""

from __future__ import annotations

from ...plans.plan import HttpGet, Probe
from . import components
from .context import Config, Ground, Host

_WITH_CALICO = (None, "", "calico", "calico+multus")


def probes(host: Host, config: Config) -> dict[str, Probe]:
    """By name. `config` is the host's own, since it has the ports of components."""
    ground, machine = host.ground, host.machine
    has_pods = ground.runtime.runs_static_pods
    found: dict[str, Probe] = {}
    if machine.is_etcd and has_pods:
        found["etcd"] = _plain(ground, 2381, "health")
    if machine.is_control_plane:
        found["kube-apiserver"] = _api_server(ground)
        for component in components.BOTH:
            port, certificate = components.listening(ground, component, config)
            found[component.name] = _probe(HttpGet(f"https://{ground.loopback}:{port}/healthz", caCert=certificate))
    # An etcd-only k3s server has no kubelet.
    if has_pods or not machine.is_only_etcd:
        found["kubelet"] = _plain(ground, 10248, "healthz")
    if has_pods and not machine.is_only_etcd and _has_calico(ground):
        found["calico"] = _plain(ground, 9099, "liveness")
    return dict(sorted(found.items()))


def _has_calico(ground: Ground) -> bool:
    cni = ground.global_config.get("cni")
    return (cni is None or isinstance(cni, str)) and cni in _WITH_CALICO


def _api_server(ground: Ground) -> Probe:
    return _probe(
        HttpGet(
            f"https://{ground.loopback}:6443/readyz",
            clientCert=ground.tls("client-kube-apiserver.crt"),
            clientKey=ground.tls("client-kube-apiserver.key"),
            caCert=ground.tls("server-ca.crt"),
        )
    )


def _plain(ground: Ground, port: int, path: str) -> Probe:
    return _probe(HttpGet(f"http://{ground.loopback}:{port}/{path}"))


def _probe(get: HttpGet) -> Probe:
    return Probe(initialDelaySeconds=1, timeoutSeconds=5, successThreshold=1, failureThreshold=5, httpGet=get)
