"""Which objects a cluster's plans are made of besides itself: what the controller reads, and watches for changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from remuda.kube.objects import Key

from . import sources
from .ground import entries, mapping


@dataclass(frozen=True, slots=True)
class Needs:
    secrets: frozenset[Key] = frozenset()
    config_maps: frozenset[Key] = frozenset()


def needs(spec: Mapping[str, Any], namespace: str) -> Needs:
    """The objects that the spec of an RKEControlPlane in a namespace names."""
    secrets = {*_registry_secrets(spec, namespace), *_cloud_secrets(spec, namespace)}
    config_maps = set()
    for entry in entries(spec.get("machineSelectorFiles")):
        for source in entries(entry.get("fileSources")):
            secrets |= _named(mapping(source.get("secret")).get("name"), namespace)
            config_maps |= _named(mapping(source.get("configMap")).get("name"), namespace)
    return Needs(frozenset(secrets), frozenset(config_maps))


def _named(name: Any, namespace: str) -> set[Key]:
    return {Key(namespace, name)} if isinstance(name, str) and name else set()


def _registry_secrets(spec: Mapping[str, Any], namespace: str) -> Iterator[Key]:
    for config in mapping(mapping(spec.get("registries")).get("configs")).values():
        for key in ("authConfigSecretName", "tlsSecretName"):
            yield from _named(mapping(config).get(key), namespace)


def _cloud_secrets(spec: Mapping[str, Any], namespace: str) -> Iterator[Key]:
    """What is named as `namespace:name`: the credential for snapshots, and the cloud provider's configuration."""
    yield from _referred(mapping(mapping(spec.get("etcd")).get("s3")).get("cloudCredentialName"), namespace)
    configs = [spec.get("machineGlobalConfig"), *(entry.get("config") for entry in entries(spec.get("machineSelectorConfig")))]
    for config in configs:
        said = mapping(config).get("cloud-provider-config")
        if isinstance(said, str) and said.startswith(sources.SECRET_SCHEME):
            yield from _referred(said.removeprefix(sources.SECRET_SCHEME), namespace)


def _referred(reference: Any, namespace: str) -> Iterator[Key]:
    if isinstance(reference, str) and reference:
        before, colon, after = reference.partition(":")
        yield Key(before or namespace, after) if colon else Key(namespace, before)
