"""The secrets of clusters in a cache: those with a cluster's label, and only kubeconfigs keep their data.

Other secrets are read live. A management cluster has many secrets, and most of them are not needed here.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from remuda.kube.objects import GroupVersionResource, name_of
from remuda.runtime import Informer, Informers
from remuda.runtime.informer import without_managed_fields

from .well_known import CLUSTER_NAME, kubeconfig_secret

Obj = dict[str, Any]

SECRETS = GroupVersionResource("", "v1", "secrets")
KUBECONFIG_KEY = "value"
_KUBECONFIG = kubeconfig_secret("")


def only_kubeconfigs(secret: Obj) -> Obj:
    """A secret without its data, unless it is a kubeconfig."""
    secret = without_managed_fields(secret)
    if name_of(secret).endswith(_KUBECONFIG):
        return secret
    return {key: value for key, value in secret.items() if key != "data"}


def cluster_secrets(informers: Informers, namespace: str = "") -> Informer:
    """The one cache of them, shared by all callers."""
    return informers.of(SECRETS, namespace, labels=CLUSTER_NAME, transform=only_kubeconfigs)


def data_of(secret: Obj, key: str) -> bytes | None:
    """One value, decoded; None when it is missing or no base64."""
    found = (secret.get("data") or {}).get(key)
    if not isinstance(found, str):
        return None
    try:
        return base64.b64decode(found, validate=True)
    except (binascii.Error, ValueError):
        return None
