"""`/v1-remuda/snapshots/NAMESPACE/CLUSTER/SHA256`: users upload snapshots of a cluster; `/v3/connect/snapshots/SHA256`: its hosts
with etcd get them (docs/reference/operations.md#upload).

For users who may change the cluster: `GET` says how much is here, `PUT` adds a piece, and `POST` has the file checked and makes
its ETCDSnapshot. A host shows the token of its plan. The files are on this server's own disk
(:mod:`remuda.provisioning.etcd.uploaded_files`), so that only a server that has the management API for itself takes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.client.idempotent import find, make
from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError, bad_request, forbidden, internal, not_found
from remuda.kube.objects import dig, labels_of, name_of, namespace_of, owner_references_of, uid_of
from remuda.provisioning.etcd.import_request import UploadedSnapshot, refusal, uploaded
from remuda.provisioning.etcd.snapshot_content import InvalidSnapshot
from remuda.provisioning.etcd.snapshot_reports import is_snapshot_name
from remuda.provisioning.etcd.snapshot_sets import SERVER, storage_of
from remuda.provisioning.etcd.uploaded_files import HOSTS_PATH, Upload, UploadedFiles, upload_of
from remuda.provisioning.nodes.host_registration import HostRegistrations
from remuda.provisioning.well_known import ETCD_ROLE
from remuda.runtime import logger

from ..server import norman
from ..server.dependencies import Services
from ..server.routing import Access, RequestContext
from .node_registration import WrongTokens, bearer_of

log = logger(__name__)

Obj = dict[str, Any]

PATH: Final = "/v1-remuda/snapshots/{namespace}/{name}/{sha256}"
LARGEST_PIECE: Final = 8 << 20
MANAGER: Final = "etcd-snapshot-uploads"
_LARGEST_METADATA: Final = 1 << 20
_TIDIED: Final = 3600.0


@dataclass(frozen=True, slots=True)
class _Request:
    """What is to be imported, when it is found to be valid."""

    wanted: Obj
    upload: Upload
    file: str
    size: int
    metadata: Obj
    other_cluster: bool


@dataclass(slots=True)
class _Check:
    """`outcome` is the name of the ETCDSnapshot, or the reason why there is none."""

    request: _Request
    outcome: str | ApiError | None = None


class SnapshotUploads:
    """`files` is None on a server that keeps none."""

    def __init__(self, services: Services, hosts: HostRegistrations, wrong: WrongTokens, files: UploadedFiles | None) -> None:
        self.files = files
        self._services = services
        self._hosts = hosts
        self._wrong = wrong
        self._writing: set[Upload] = set()
        self._checks: dict[Upload, _Check] = {}
        self._due: asyncio.Queue[_Check] = asyncio.Queue()
        add = services.routes.add
        add("GET", PATH, self.received, Access.USER, largest=0, quiet=True)
        add("PUT", PATH, self.add, Access.USER, largest=LARGEST_PIECE, quiet=True)
        add("POST", PATH, self.finish, Access.USER, largest=_LARGEST_METADATA)
        add("GET", f"{HOSTS_PATH}/{{sha256}}", self.sent, Access.PUBLIC, largest=0)
        services.beside += [self.check, self.tidy]

    # --- users -----------------------------------------------------------------------------------------------------------

    async def received(self, asked: RequestContext) -> web.StreamResponse:
        files, _, upload = await self._place(asked)
        return norman.shown({"received": await asyncio.to_thread(files.received, upload)})

    async def add(self, asked: RequestContext) -> web.StreamResponse:
        """`?offset=N&size=N`: the body is the piece of the file from `offset` on; `size` is that of the whole file."""
        files, _, upload = await self._place(asked)
        said = norman.parameters_of(asked)
        offset, size = _number(said, "offset"), _number(said, "size")
        piece = await asked.request.read()
        running = self._checks.get(upload)
        if upload in self._writing or (running is not None and running.outcome is None):
            raise ApiError(409, "Conflict", "another upload of this file is running")
        self._writing.add(upload)
        try:
            return norman.shown({"received": await asyncio.to_thread(files.add, upload, offset, size, piece)})
        finally:
            self._writing.discard(upload)

    async def finish(self, asked: RequestContext) -> web.StreamResponse:
        """`?file=NAME&size=N`, and `&otherCluster=true`; the body is the metadata of the snapshot, a JSON object. The answer has
        the name of the ETCDSnapshot, or `checking` while it is not known: ask again."""
        files, wanted, upload = await self._place(asked)
        said = norman.parameters_of(asked)
        file, size, other = said.get("file", ""), _number(said, "size"), said.get("otherCluster") == "true"
        if not is_snapshot_name(file):
            raise bad_request("file must be the name of a file")
        request = _Request(wanted, upload, file, size, await _metadata_in(asked), other)
        check = self._checks.get(upload)
        if check is None or (check.outcome is not None and check.request != request):
            here = await asyncio.to_thread(files.received, upload)
            if here != size or not size:
                raise ApiError(409, "Conflict", f"{here} bytes of it are here: go on from there")
            check = self._checks[upload] = _Check(request)
            self._due.put_nowait(check)
        if check.outcome is None:
            return norman.shown({"checking": True})
        del self._checks[upload]
        if isinstance(check.outcome, ApiError):
            raise check.outcome
        return norman.shown({"snapshot": check.outcome})

    async def check(self) -> None:
        """Check files one at a time: each check reads a whole database."""
        while True:
            check = await self._due.get()
            try:
                check.outcome = await self._imported(check.request)
            except ApiError as error:
                check.outcome = error
            except OSError as error:
                log.warning("an uploaded snapshot can't be checked: %s", error)
                check.outcome = internal("the file can't be checked: the server's log has the reason")

    async def _imported(self, request: _Request) -> str:
        """The name of its ETCDSnapshot. Raises ApiError, and OSError."""
        assert self.files is not None
        wanted, other = request.wanted, request.other_cluster
        try:
            contents = await asyncio.to_thread(self.files.check, request.upload)
        except InvalidSnapshot as error:
            raise ApiError(422, "Invalid", f"it is not valid: {error}") from None
        plane = await find(self._services.client, rke.RKE_CONTROL_PLANES, name_of(wanted), namespace_of(wanted))
        cluster_id = str(dig(plane or {}, "status", "clusterID") or "")
        if why := refusal(contents.cluster_id, cluster_id, other_cluster=other):
            raise ApiError(409, "Conflict", why)
        found = UploadedSnapshot(request.file, request.upload.sha256, request.size, contents, request.metadata)
        snapshot = uploaded(wanted, found, cluster_id, self._services.clock.time(), other_cluster=other)
        await self._make(snapshot)
        return name_of(snapshot)

    async def _make(self, snapshot: Obj) -> None:
        """One that is listed already stays, and was checked anew."""
        client, name, namespace = self._services.client, name_of(snapshot), namespace_of(snapshot)
        await make(client, rke.ETCD_SNAPSHOTS, snapshot, MANAGER)
        status = {"status": snapshot["status"]}
        await client.patch(rke.ETCD_SNAPSHOTS, name, status, namespace, subresource="status", field_manager=MANAGER)
        log.info("%s was uploaded", name)

    async def _place(self, asked: RequestContext) -> tuple[UploadedFiles, Obj, Upload]:
        """The files of the cluster, which the caller may change. Raises ApiError."""
        namespace, name = asked.parameters["namespace"], asked.parameters["name"]
        action = Action(asked.user, "patch", *provisioning.CLUSTERS, namespace=namespace, name=name)
        if not await self._services.access.allowed(action):
            raise forbidden_action(action)
        wanted = await find(self._services.client, provisioning.CLUSTERS, name, namespace)
        if wanted is None:
            raise not_found(provisioning.GROUP, provisioning.CLUSTERS.resource, name)
        asked.cluster = str(dig(wanted, "status", "clusterName") or "")
        if self.files is None:
            text = "there may be several management servers, and a file would be on one of them alone: copy it to a bucket"
            raise ApiError(409, "Conflict", text)
        return self.files, wanted, upload_of(uid_of(wanted), asked.parameters["sha256"])

    # --- hosts -----------------------------------------------------------------------------------------------------------

    async def sent(self, asked: RequestContext) -> web.StreamResponse:
        """The file, or the part of it that is asked for: to machines with etcd of its cluster, which have all of this anyway."""
        token = bearer_of(asked)
        self._wrong.check(asked)
        machine = await self._hosts.of_plan_token(token)
        if machine is None:
            raise self._wrong.refuse(asked, "this token belongs to no plan")
        if labels_of(machine).get(ETCD_ROLE) != "true":
            raise forbidden("", "", "", "only machines with etcd get snapshots")
        cluster = str(dig(machine, "spec", "clusterName") or "")
        wanted = await find(self._services.client, provisioning.CLUSTERS, cluster, namespace_of(machine))
        asked.cluster = str(dig(wanted or {}, "status", "clusterName") or "")
        sha256 = asked.parameters["sha256"]
        path = self.files.path(upload_of(uid_of(wanted), sha256)) if wanted is not None and self.files is not None else None
        if path is None:
            raise not_found("", "snapshots", sha256)
        return web.FileResponse(path, headers={"Content-Type": "application/octet-stream", "Cache-Control": "no-store"})

    # --- upkeep ----------------------------------------------------------------------------------------------------------

    async def tidy(self) -> None:
        """Remove the files of snapshots that are no longer listed, from time to time."""
        files = self.files
        while files is not None:
            if not await asyncio.to_thread(files.is_empty):
                found = await self._services.client.list(rke.ETCD_SNAPSHOTS)
                kept = {_upload_of(each) for each in found.get("items") or () if storage_of(each) == SERVER}
                await asyncio.to_thread(files.forget_all_but, kept)
            await self._services.clock.sleep(_TIDIED)


def _upload_of(snapshot: Obj) -> Upload:
    owners = owner_references_of(snapshot)
    cluster = next((str(owner.get("uid")) for owner in owners if owner.get("kind") == "Cluster"), "")
    return Upload(cluster, str(dig(snapshot, "status", "sha256") or ""))


async def _metadata_in(asked: RequestContext) -> Obj:
    try:
        found = jsonio.loads(await asked.request.read() or b"{}")
    except jsonio.JsonError:
        raise bad_request("the body is not JSON") from None
    if not isinstance(found, dict):
        raise bad_request("the body must be a JSON object")
    return found


def _number(said: Mapping[str, str], name: str) -> int:
    text = said.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise bad_request(f"{name} must be a number")
    return int(text)
