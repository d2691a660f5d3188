"""The authorized cluster endpoint: the API server asks a webhook on its own host for the user of a Rancher token."""

from __future__ import annotations

from remuda.kube.encoding import yamlio

from ...plans.plan import File
from .context import Config, Ground, Host, mapping, strings

_API_SERVER = "kube-apiserver-arg"


def is_on(host: Host) -> bool:
    return host.is_server and bool(mapping(host.ground.spec.get("localClusterAuthEndpoint")).get("enabled"))


def add(host: Host, config: Config) -> None:
    if is_on(host):
        argument = f"authentication-token-webhook-config-file={_path(host.ground)}"
        config[_API_SERVER] = [*strings(config.get(_API_SERVER)), argument]


def files(host: Host) -> list[File]:
    if not is_on(host):
        return []
    name = "kube-api-auth"
    content = yamlio.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": f"http://{host.ground.loopback}:6440/v1/authenticate"}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )
    return [File.of(_path(host.ground), content)]


def _path(ground: Ground) -> str:
    return f"{ground.directories.distro}/kube-api-authn-webhook.yaml"
