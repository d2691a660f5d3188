"""A repository of clusterctl: metadata, components and cluster templates of the core and of our providers, as files.

The layout is that of clusterctl's local repositories, `<provider>/<version>/<file>`. `remuda clusterctl repository` writes it,
and the gateway serves it, so that clusterctl asks no other place for what this server is.

On `remuda serve` there is nothing to install, so components are the namespace alone. For another Kubernetes they are the objects
of `remuda manifests`, those of the controllers with the core and those of the gateway with the infrastructure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from remuda.api.cluster_x_k8s_io import VERSION as CONTRACT
from remuda.api.clusterctl_cluster_x_k8s_io import API_VERSION
from remuda.kube.encoding import yamlio

from .providers import CORE, OURS, ClusterctlProvider, ProviderType

Obj = dict[str, Any]

METADATA: Final = "metadata.yaml"
CONFIG: Final = "clusterctl.yaml"
# The name that clusterctl gives the template of no flavour.
TEMPLATE: Final = "cluster-template.yaml"
NAMESPACE: Final = "remuda-system"
_COMPONENTS: Final = {
    ProviderType.CORE: "core-components.yaml",
    ProviderType.BOOTSTRAP: "bootstrap-components.yaml",
    ProviderType.CONTROL_PLANE: "control-plane-components.yaml",
    ProviderType.INFRASTRUCTURE: "infrastructure-components.yaml",
}
_PREFIX: Final = "cluster-template-"


@cache
def templates() -> Mapping[str, str]:
    """The cluster templates by their names as files: one without a flavour, and one for each."""
    found = (resources.files(__package__) / "templates").iterdir()
    return {each.name: each.read_text(encoding="utf-8") for each in sorted(found, key=lambda each: each.name)}


def flavors() -> list[str]:
    """The words for `clusterctl generate cluster --flavor`."""
    return [name.removeprefix(_PREFIX).removesuffix(".yaml") for name in templates() if name != TEMPLATE]


def files(components: Mapping[ProviderType, Sequence[Obj]] | None = None) -> dict[str, str]:
    """The repository's files by their paths; `components` are the objects to install besides the namespace."""
    made: dict[str, str] = {}
    for provider in (CORE, *OURS):
        directory = directory_of(provider)
        objects = [_namespace(), *(components or {}).get(provider.type, ())]
        made[f"{directory}/{METADATA}"] = yamlio.dumps(_metadata(provider))
        made[f"{directory}/{_COMPONENTS[provider.type]}"] = documents(objects)
        if provider.type is ProviderType.INFRASTRUCTURE:
            made |= {f"{directory}/{name}": text for name, text in templates().items()}
    return made


def documents(objects: Iterable[Obj]) -> str:
    return "---\n".join(map(yamlio.dumps, objects))


def directory_of(provider: ClusterctlProvider) -> str:
    return f"{provider.label}/{provider.version}"


def config(directory: Path) -> str:
    """clusterctl's configuration for the repository in this directory, which is absolute."""
    listed = [
        {
            "name": provider.name,
            "type": provider.type.value,
            "url": f"{directory}/{directory_of(provider)}/{_COMPONENTS[provider.type]}",
        }
        for provider in (CORE, *OURS)
    ]
    return yamlio.dumps({"providers": listed})


def _metadata(provider: ClusterctlProvider) -> Obj:
    major, minor = provider.version.removeprefix("v").split(".")[:2]
    series = {"major": int(major), "minor": int(minor), "contract": CONTRACT}
    return {"apiVersion": API_VERSION, "kind": "Metadata", "releaseSeries": [series]}


def _namespace() -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
