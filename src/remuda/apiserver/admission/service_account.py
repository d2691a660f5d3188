"""ServiceAccount: a pod runs as an existing account, and gets that account's token mounted and its pull secrets.

:mod:`remuda.kcm.serviceaccounts` creates the account `default` a moment after its namespace, so a pod that is created
earlier waits for it for a second or two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from remuda.kube.admission_attributes import CREATE, UPDATE, Attributes, Obj
from remuda.kube.clock import Clock, Rng
from remuda.kube.objects import ObjectSource, annotations_of, name_of

TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME_PREFIX = "kube-api-access-"
MIRROR = "kubernetes.io/config.mirror"
ENFORCE_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"
# An hour and seven seconds: kube-apiserver's marker for tokens that may live longer.
TOKEN_SECONDS = 3607

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_ATTEMPTS = 10


class ServiceAccounts:
    name = "ServiceAccount"
    resources = frozenset((("", "pods"),))

    def __init__(self, source: ObjectSource, clock: Clock, rng: Rng) -> None:
        self._source = source
        self._clock = clock
        self._rng = rng

    async def admit(self, attributes: Attributes) -> None:
        pod = attributes.obj
        if attributes.operation != CREATE or attributes.subresource or pod is None:
            return
        if MIRROR in annotations_of(pod):
            return
        spec = dict(pod.get("spec") or {})
        name = spec.get("serviceAccountName") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = await self._account(attributes, name)
        if _automounts(account, spec):
            mount_token(spec, lambda: VOLUME_PREFIX + self._rng.name_suffix())
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [{"name": ref.get("name", "")} for ref in account["imagePullSecrets"]]
        attributes.obj = {**pod, "spec": spec}

    async def validate(self, attributes: Attributes) -> None:
        pod = attributes.obj
        if pod is None:
            return
        ephemeral = attributes.operation == UPDATE and attributes.subresource == "ephemeralcontainers"
        if not ephemeral and (attributes.operation != CREATE or attributes.subresource):
            return
        if not ephemeral and MIRROR in annotations_of(pod):
            _check_mirror(attributes, pod)
            return
        spec = pod.get("spec") or {}
        name = spec.get("serviceAccountName")
        if not name:
            raise attributes.forbidden(f"no service account specified for pod {attributes.namespace}/{name_of(pod)}")
        account = await self._account(attributes, name)
        if annotations_of(account).get(ENFORCE_MOUNTABLE) in _TRUE:
            _check_references(attributes, account, spec, ephemeral)

    async def _account(self, attributes: Attributes, name: str) -> Obj:
        wait = 0.0
        for _ in range(_ATTEMPTS if name == "default" else 1):
            if wait:
                await self._clock.sleep(wait)
            wait = wait or self._rng.uniform(0.1, 0.2)
            account = self._source.get("", "serviceaccounts", attributes.namespace, name)
            if account is not None:
                return account
        why = f'error looking up service account {attributes.namespace}/{name}: serviceaccount "{name}" not found'
        raise attributes.forbidden(why)


def _automounts(account: Obj, spec: Obj) -> bool:
    for holder in (spec, account):
        if (wanted := holder.get("automountServiceAccountToken")) is not None:
            return bool(wanted)
    return True


def token_volume(name: str) -> Obj:
    """The projected volume with token, CA and namespace that every pod gets."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "name": name,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [namespace]}},
            ],
            "defaultMode": 420,
        },
    }


def mount_token(spec: Obj, new_name: Callable[[], str]) -> None:
    """Mount the token into every container that has nothing at its path yet; `spec` is ours, its children are not."""
    volumes = spec.get("volumes") or []
    existing = next((v["name"] for v in volumes if v.get("name", "").startswith(VOLUME_PREFIX)), "")
    name = existing or new_name()
    needed = False
    for field in ("initContainers", "containers"):
        if containers := spec.get(field):
            mounted = [_mounted(container, name) for container in containers]
            needed = needed or any(new is not old for new, old in zip(mounted, containers, strict=True))
            spec[field] = mounted
    if needed and not existing:
        spec["volumes"] = [*volumes, token_volume(name)]


def _mounted(container: Obj, volume: str) -> Obj:
    mounts = container.get("volumeMounts") or []
    if any(mount.get("mountPath") == TOKEN_PATH for mount in mounts):
        return container
    return {**container, "volumeMounts": [*mounts, {"name": volume, "readOnly": True, "mountPath": TOKEN_PATH}]}


def _check_mirror(attributes: Attributes, pod: Obj) -> None:
    spec = pod.get("spec") or {}
    if spec.get("serviceAccountName"):
        raise attributes.forbidden("a mirror pod may not reference service accounts")
    if _uses_secrets(spec):
        raise attributes.forbidden("a mirror pod may not reference secrets")
    for volume in spec.get("volumes") or ():
        for projection in (volume.get("projected") or {}).get("sources") or ():
            if projection.get("serviceAccountToken"):
                raise attributes.forbidden("a mirror pod may not use ServiceAccountToken volume projections")


def _uses_secrets(spec: Obj) -> bool:
    if spec.get("imagePullSecrets"):
        return True
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            if any(_container_secrets(container)):
                return True
    for volume in spec.get("volumes") or ():
        if volume.get("secret"):
            return True
        if any(source.get("secret") for source in (volume.get("projected") or {}).get("sources") or ()):
            return True
        if any(isinstance(source, dict) and source.get("secretRef") for source in volume.values()):
            return True
    return False


def _container_secrets(container: Obj) -> Iterator[tuple[str, str]]:
    """References of a container to secrets: the referring field (text for the error) and the secret's name."""
    for env in container.get("env") or ():
        reference = (env.get("valueFrom") or {}).get("secretKeyRef")
        if reference:
            yield f"envVar {env.get('name', '')}", reference.get("name", "")
    for source in container.get("envFrom") or ():
        if source.get("secretRef"):
            yield "envFrom", source["secretRef"].get("name", "")


def _check_references(attributes: Attributes, account: Obj, spec: Obj, ephemeral: bool) -> None:
    allowed = {ref.get("name") for ref in account.get("secrets") or ()}
    owner = name_of(account)
    suffix = f"is not allowed because service account {owner} does not reference that"
    kinds = {"ephemeralContainers": "ephemeral container"}
    if not ephemeral:
        for volume in spec.get("volumes") or ():
            secret = (volume.get("secret") or {}).get("secretName")
            if secret is not None and secret not in allowed:
                raise attributes.forbidden(f'volume with secret.secretName="{secret}" {suffix} secret')
        kinds = {"initContainers": "init container", "containers": "container"}
    for field, words in kinds.items():
        for container in spec.get(field) or ():
            for what, secret in _container_secrets(container):
                if secret not in allowed:
                    where = f"{words} {container.get('name', '')} with {what}"
                    raise attributes.forbidden(f'{where} referencing secret.secretName="{secret}" {suffix} secret')
    if ephemeral:
        return
    pullable = {ref.get("name") for ref in account.get("imagePullSecrets") or ()}
    for index, ref in enumerate(spec.get("imagePullSecrets") or ()):
        if ref.get("name") not in pullable:
            raise attributes.forbidden(f'imagePullSecrets[{index}].name="{ref.get("name")}" {suffix} imagePullSecret')
