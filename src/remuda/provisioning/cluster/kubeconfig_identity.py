"""Who controllers are in a cluster, and the kubeconfig by which they get there (capr.md §6.5). Pure; names as Rancher's.

Each cluster has a user of its own, whose name follows from the cluster's: it owns that cluster and nothing else, and its token is
good at that cluster's address only.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from remuda.access.clusters.server_settings import ServerFacts
from remuda.access.users.token_hashes import hashed_secret
from remuda.access.users.tokens import CONTROLLERS_KIND, SECRET_LENGTH, Wish, make_token
from remuda.access.users.user_objects import user_manifest
from remuda.api.management_cattle_io import API_VERSION
from remuda.capi.well_known import CLUSTER_NAME, kubeconfig_secret
from remuda.kube.clock import Entropy
from remuda.kube.encoding import yamlio
from remuda.kube.objects import Key, name_of, namespace_of
from remuda.kube.owners import reference
from remuda.kube.safe_names import safe_concat
from remuda.kube.wrangler import marks

from .names import FROM_WANTED

Obj = dict[str, Any]

OWNER_TEMPLATE = "cluster-owner"
SECRET_TYPE = "Opaque"
_HASHED = "hashed-principal-name"


def principal_of(cluster: Key) -> str:
    return f"system://provisioning/{cluster.namespace}/{cluster.name}"


def user_name(cluster: Key) -> str:
    digest = hashlib.sha256(principal_of(cluster).encode()).digest()
    return f"u-{base64.b32encode(digest).decode()[:10].lower()}"


def principal_label(cluster: Key) -> str:
    """The label of the user by which Rancher finds it from its principal."""
    return base64.b32hexencode(principal_of(cluster).encode()).decode().rstrip("=")[:63]


def user_of(wanted: Obj) -> Obj:
    cluster = Key.of(wanted)
    labels, annotations = marks(FROM_WANTED, wanted)
    made = user_manifest(
        user_name(cluster),
        "",
        display_name=f"System account for cluster {cluster}",
        labels={principal_label(cluster): _HASHED, **labels},
    )
    made["metadata"]["annotations"] = annotations
    made["principalIds"] = [principal_of(cluster), *made["principalIds"]]
    return made


def new_secret(entropy: Entropy) -> str:
    return entropy.token_text(SECRET_LENGTH)


def token_of(wanted: Obj, managed: str, secret: str, now: float, entropy: Entropy) -> Obj:
    """The Token of that user, for this secret."""
    cluster = Key.of(wanted)
    name = user_name(cluster)
    labels, annotations = marks(FROM_WANTED, wanted)
    principal = {"metadata": {"name": principal_of(cluster)}, "provider": "system", "principalType": "user", "me": True}
    wish = Wish(
        name,
        0,
        CONTROLLERS_KIND,
        f"controllers' access to cluster {cluster}",
        cluster=managed,
        name=name,
        labels=labels,
        principal=principal,
    )
    made = make_token(wish, now, entropy).manifest
    made["token"] = hashed_secret(secret, entropy)
    made["metadata"]["annotations"].update(annotations)
    return made


def binding_of(wanted: Obj, managed: str) -> Obj:
    """Makes that user an owner of the cluster."""
    labels, annotations = marks(FROM_WANTED, wanted)
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterRoleTemplateBinding",
        "metadata": {
            "name": safe_concat(managed, namespace_of(wanted), "owner"),
            "namespace": managed,
            "labels": labels,
            "annotations": annotations,
        },
        "clusterName": managed,
        "roleTemplateName": OWNER_TEMPLATE,
        "userName": user_name(Key.of(wanted)),
    }


def kubeconfig(managed: str, token: str, facts: ServerFacts) -> str:
    cluster: Obj = {"server": f"{facts.internal_url}/k8s/clusters/{managed}"}
    if ca := facts.internal_ca.strip():
        cluster["certificate-authority-data"] = base64.b64encode(ca.encode()).decode()
    return yamlio.dumps(
        {
            "apiVersion": "v1",
            "clusters": [{"cluster": cluster, "name": "cluster"}],
            "contexts": [{"context": {"cluster": "cluster", "user": "user"}, "name": "default"}],
            "current-context": "default",
            "kind": "Config",
            "preferences": {},
            "users": [{"name": "user", "user": {"token": token}}],
        }
    )


def secret_of(wanted: Obj, managed: str, token: str, facts: ServerFacts) -> Obj:
    data = {"value": kubeconfig(managed, token, facts), "token": token}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": SECRET_TYPE,
        "metadata": {
            "name": kubeconfig_secret(name_of(wanted)),
            "namespace": namespace_of(wanted),
            "labels": {CLUSTER_NAME: name_of(wanted)},
            "ownerReferences": [reference(wanted)],
        },
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }
