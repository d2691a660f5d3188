"""Requesting an operation on a whole cluster, and following it to its end.

A request is a field of the spec, or an annotation, with a generation that no earlier one had. It is written only over the cluster
that was read, so that of two users who request at the same time each gets a generation of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from remuda.api import provisioning_cattle_io as provisioning
from remuda.client.interface import Client
from remuda.gateway.explain import operations, states
from remuda.gateway.explain.operations import Operation
from remuda.gateway.explain.states import ClusterView
from remuda.kube.clock import SYSTEM_CLOCK, Clock
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, is_being_deleted, name_of, resource_version_of
from remuda.provisioning.etcd import recovery_request
from remuda.provisioning.well_known import RECOVER

from ..exit_codes import Code, Failure
from . import clusters

Obj = dict[str, Any]

_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class OperationRequest:
    cluster: Obj
    field: str
    generation: int


async def request(client: Client, cluster: Obj, field: str, asked: Mapping[str, Any]) -> OperationRequest:
    """`asked` are the fields of the request besides its generation. Raises ApiError, and Failure."""
    for attempt in range(1, _ATTEMPTS + 1):
        sight = await clusters.look(client, cluster)
        why = _refusal(sight, field)
        if why:
            raise Failure(f"{why}: nothing was requested", Code.CONFLICT)
        generation = operations.known_generation(sight.wanted, sight.plane, field) + 1
        patch: Obj = {"metadata": {"resourceVersion": resource_version_of(sight.wanted)}}
        if field == operations.RECOVERY:
            patch["metadata"]["annotations"] = {RECOVER: recovery_request.text_of({**asked, "generation": generation})}
        else:
            # A merge keeps what an earlier request had besides.
            before = dig(sight.wanted, "spec", "rkeConfig", field) or {}
            patch["spec"] = {"rkeConfig": {field: {**dict.fromkeys(before), **asked, "generation": generation}}}
        key = Key.of(sight.wanted)
        try:
            return OperationRequest(await client.patch(provisioning.CLUSTERS, key.name, patch, key.namespace), field, generation)
        except ApiError as error:
            # The controllers, too, write into it.
            if error.code != 409 or attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def _refusal(sight: ClusterView, field: str) -> str:
    name = name_of(sight.wanted)
    if not states.is_administrated(sight.wanted):
        return f"cluster {name} was not made by this server, which manages neither its etcd nor its certificates"
    if is_being_deleted(sight.wanted):
        return f"cluster {name} is being deleted"
    if sight.plane is not None and not operations.was_up(sight.plane):
        title = operations.KINDS[field].title
        return f"cluster {name} was never up, so there is nothing for a {title} (remuda explain {name} says what it waits for)"
    return ""


async def followed(client: Client, request: OperationRequest, stream: TextIO, clock: Clock = SYSTEM_CLOCK) -> Operation:
    """The end of the request, or of a later one that does the same again. Raises ApiError, and Failure if it was replaced."""
    name, title = name_of(request.cluster), operations.KINDS[request.field].title

    def until(sight: ClusterView) -> Operation | None:
        found = None if sight.plane is None else operations.of(sight.wanted, sight.plane, request.field)
        asked = (operations.requested(sight.wanted, request.field) or {}).get("generation")
        if asked is None:
            raise Failure(f"the request of the {title} was withdrawn", Code.CONFLICT)
        if asked != request.generation and request.field in (operations.RESTORE, operations.RECOVERY):
            raise Failure(f"request {asked} has replaced this one of the {title}, which was {request.generation}", Code.CONFLICT)
        return found if found is not None and found.has_ended else None

    ended = await clusters.follow(client, request.cluster, stream, until, clock)
    if ended is None:
        raise Failure(f"cluster {name} was deleted meanwhile", Code.NOT_FOUND)
    return ended


def told(operation: Operation) -> str:
    """The result in words. Raises Failure if it has failed."""
    if operation.word == operations.FAILED:
        raise Failure(f"the {operation.title} has failed: {operation.message or 'the reason is not known'}")
    return operation.message
