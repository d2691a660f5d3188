"""Mutating and validating webhooks as the last two plug-ins of the chain.

Mutating webhooks are called one after the other, each with the object that the previous one returned; validating webhooks
all at once. :mod:`.webhook_matching` selects them; request and response are in :mod:`.webhook_reviews`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from remuda.kube.admission_attributes import Attributes, Obj
from remuda.kube.authorization.actions import Authorizer
from remuda.kube.clock import Entropy
from remuda.kube.encoding import jsonio, jsonpatch
from remuda.kube.errors import ApiError, bad_request, go_quote, internal
from remuda.kube.objects import ObjectSource

from ..webhook_client import CallError, WebhookClient, no_object
from .chain import reinvocation_of
from .webhook_matching import Candidate, KindRegistry, Webhook, WebhookIndex, selects
from .webhook_reviews import (
    JSON_PATCH,
    InvalidResponse,
    Response,
    Undecodable,
    denied,
    kind_of,
    read_response,
    request_of,
    review_of,
    review_version,
)

log = logging.getLogger(__name__)


class CallFailed(Exception):
    """The webhook gave no usable response; the failure policy decides what that means."""

    def __init__(self, webhook: str, why: str) -> None:
        super().__init__(f"failed calling webhook {go_quote(webhook)}: {why}")


class _Webhooks:
    """Common part of both plug-ins: find the webhooks of a write and call one of them."""

    def __init__(
        self,
        resource: str,
        source: ObjectSource,
        kinds: KindRegistry,
        client: WebhookClient,
        entropy: Entropy,
        authorizer: Authorizer | None,
    ) -> None:
        self.index = WebhookIndex(source, resource, kinds)
        self.source = source
        self.kinds = kinds
        self._client = client
        self._entropy = entropy
        self._authorizer = authorizer

    async def question(self, candidate: Candidate, attributes: Attributes) -> Obj | None:
        """The review's request, or None when the webhook need not be called."""
        webhook = candidate.webhook
        if not selects(webhook, attributes, self.source):
            return None
        kind, obj, old = candidate.kind, attributes.obj, attributes.old
        if kind is None:
            kind = kind_of(attributes)
        else:
            obj = await self.kinds.convert(obj, kind) if obj is not None else None
            old = await self.kinds.convert(old, kind) if old is not None else None
        uid = self._entropy.uuid()
        request = request_of(attributes, uid, resource=candidate.resource, kind=kind, obj=obj, old=old)
        if webhook.conditions is not None and not webhook.conditions.hold(attributes, request, self._authorizer):
            return None
        return request

    async def ask(self, webhook: Webhook, attributes: Attributes, request: Obj, mutating: bool) -> Response:
        if attributes.dry_run and webhook.side_effects not in ("None", "NoneOnDryRun"):
            if not webhook.side_effects:
                raise CallFailed(webhook.name, "Webhook SideEffects is nil")
            raise bad_request(f"admission webhook {go_quote(webhook.name)} does not support dry run")
        version = review_version(webhook.review_versions)
        if version is None:
            unknown = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise CallFailed(webhook.name, f"could not create admission objects: {unknown}")
        if isinstance(webhook.endpoint, str):
            raise CallFailed(webhook.name, f"could not get REST client: {webhook.endpoint}")
        try:
            answer = await self._client.post(webhook.endpoint, review_of(request, version), webhook.timeout)
            response = read_response(answer, request["uid"], version, mutating)
        except (CallError, Undecodable) as error:
            raise CallFailed(webhook.name, f"failed to call webhook: {error}") from None
        except InvalidResponse as error:
            raise CallFailed(webhook.name, f"received invalid webhook response: {error}") from None
        for key, value in response.annotations.items():
            attributes.annotations.setdefault(f"{webhook.name}/{key}", value)
        attributes.warnings.extend(response.warnings)
        return response

    @staticmethod
    def tolerate(webhook: Webhook, attributes: Attributes, failure: CallFailed, prefix: str, place: str) -> None:
        """Ignore the failure or raise, according to the webhook's failure policy."""
        if not webhook.fail_open:
            log.warning("Failed calling webhook, failing closed %s: %s", webhook.name, failure)
            raise internal(str(failure)) from None
        log.warning("Failed calling webhook, failing open %s: %s", webhook.name, failure)
        attributes.annotations.setdefault(f"failed-open.{prefix}.webhook.admission.k8s.io/{place}", webhook.name)


class MutatingWebhooks:
    name = "MutatingAdmissionWebhook"

    def __init__(
        self,
        source: ObjectSource,
        kinds: KindRegistry,
        client: WebhookClient,
        entropy: Entropy,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`authorizer` is for match conditions."""
        self._webhooks = _Webhooks("mutatingwebhookconfigurations", source, kinds, client, entropy, authorizer)

    async def validate(self, attributes: Attributes) -> None:
        pass

    async def admit(self, attributes: Attributes) -> None:
        candidates = self._webhooks.index.candidates(attributes)
        if not candidates:
            return
        again = reinvocation_of(attributes)
        if again.second_round and again.output != attributes.obj:
            # In-process plug-ins changed the object after the last webhook call.
            again.require()
        for candidate in candidates:
            webhook = candidate.webhook
            request = await self._webhooks.question(candidate, attributes)
            # A webhook that was not called in the first round is not called in the second either.
            if request is None or (again.second_round and webhook.uid not in again.again):
                continue
            if await self._mutate(candidate, attributes, request):
                again.require()
                again.wanted = True
            if webhook.reinvoke:
                again.invoked.add(webhook.uid)
        again.output = attributes.obj

    async def _mutate(self, candidate: Candidate, attributes: Attributes, request: Obj) -> bool:
        webhook = candidate.webhook
        second = attributes.reinvocation is not None and attributes.reinvocation.second_round
        place = f"round_{int(second)}_index_{webhook.index}"
        changed = False
        try:
            response = await self._webhooks.ask(webhook, attributes, request, mutating=True)
            if not response.allowed:
                raise denied(webhook.name, response.result)
            changed = await self._apply(candidate, attributes, request, response)
        except CallFailed as failure:
            self._webhooks.tolerate(webhook, attributes, failure, "mutation", place)
        finally:
            noted = {"configuration": webhook.configuration, "webhook": webhook.name, "mutated": changed}
            attributes.annotations.setdefault(f"mutation.webhook.admission.k8s.io/{place}", jsonio.dumps_text(noted))
        return changed

    async def _apply(self, candidate: Candidate, attributes: Attributes, request: Obj, response: Response) -> bool:
        webhook = candidate.webhook
        if response.patch_error:
            why = f"received undecodable patch in webhook response: {response.patch_error}"
            raise CallFailed(webhook.name, why)
        if not response.patch:
            return False
        before = request["object"]
        if before is None:
            quoted = go_quote(webhook.name)
            raise internal(
                f"admission webhook {quoted} attempted to modify the object, which is not supported for this operation"
            )
        if response.patch_type != JSON_PATCH:
            raise CallFailed(webhook.name, f"unsupported patch type {go_quote(response.patch_type)}")
        after = self._patched(before, response.patch)
        after = self._webhooks.kinds.default(jsonio.copy(after), candidate.resource, attributes.subresource)
        if after == before:
            return False
        attributes.obj = after if candidate.kind is None else await self._webhooks.kinds.convert(after, kind_of(attributes))
        return True

    @staticmethod
    def _patched(obj: Obj, patch: list[Any]) -> Obj:
        try:
            patched = jsonpatch.apply(obj, patch)
        except jsonpatch.JsonPatchError as error:
            raise internal(str(error)) from None
        if not isinstance(patched, dict):
            raise internal(no_object(patched))
        return patched


class ValidatingWebhooks:
    name = "ValidatingAdmissionWebhook"

    def __init__(
        self,
        source: ObjectSource,
        kinds: KindRegistry,
        client: WebhookClient,
        entropy: Entropy,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`authorizer` is for match conditions."""
        self._webhooks = _Webhooks("validatingwebhookconfigurations", source, kinds, client, entropy, authorizer)

    async def admit(self, attributes: Attributes) -> None:
        pass

    async def validate(self, attributes: Attributes) -> None:
        candidates = self._webhooks.index.candidates(attributes)
        if not candidates:
            return
        asked = [(candidate.webhook, await self._webhooks.question(candidate, attributes)) for candidate in candidates]
        relevant = [(webhook, request) for webhook, request in asked if request is not None]
        if not relevant:
            return
        calls = (self._check(index, webhook, attributes, request) for index, (webhook, request) in enumerate(relevant))
        if len(relevant) == 1:
            await next(calls)
            return
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._outcome(call)) for call in calls]
        for task in tasks:
            if (error := task.result()) is not None:
                raise error

    @staticmethod
    async def _outcome(call: Any) -> ApiError | None:
        """The error of one call, returned so that the other calls run to their end."""
        try:
            await call
        except ApiError as error:
            return error
        return None

    async def _check(self, index: int, webhook: Webhook, attributes: Attributes, request: Obj) -> None:
        try:
            response = await self._webhooks.ask(webhook, attributes, request, mutating=False)
        except CallFailed as failure:
            self._webhooks.tolerate(webhook, attributes, failure, "validating", f"round_0_index_{index}")
            return
        if not response.allowed:
            raise denied(webhook.name, response.result)
