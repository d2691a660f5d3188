"""The client that Rancher's CLI and Terraform's provider are built on, as far as a server notices it.

It begins at a URL, reads the address of the schemas from a header, and from then on does only what schemas and links allow: it
refuses by itself to list, make or change what their methods do not name. Its addresses are those that it was given, absolute.
"""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import urlencode

from tests.api.harness import Answer

from .harness import Person

Obj = dict[str, Any]


class Refused(Exception):
    """The client's own refusal, before anything is sent, or the server's error as the client parses it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code


class RancherClient:
    """`types` are the schemas by their ids."""

    def __init__(self, person: Person, path: str) -> None:
        self.person = person
        self.server = person.gateway.url
        answer = self._sent("GET", f"{self.server}{path}")
        schemas = answer.headers.get("x-api-schemas", "")
        assert answer.status == 200 and schemas.startswith(self.server), (path, answer.status, answer.headers, answer.body)
        self.types: dict[str, Obj] = {each["id"]: each for each in self._answer("GET", schemas)["data"]}

    def _sent(self, method: str, url: str, body: Obj | None = None) -> Answer:
        assert url.startswith(self.server), f"{url} is not absolute"
        basic = base64.b64encode(self.person.token.encode()).decode()
        return self.person.request(method, url.removeprefix(self.server), body, Authorization=f"Basic {basic}")

    def _answer(self, method: str, url: str, body: Obj | None = None) -> Obj:
        answer = self._sent(method, url, body)
        if answer.status >= 400:
            said = answer.json
            assert (said["type"], said["status"]) == ("error", answer.status), said
            raise Refused(answer.status, said["code"], said["message"])
        return dict(answer.json) if answer.raw else {}

    def _allowed(self, type_: str, methods: str, method: str) -> Obj:
        schema = self.types.get(type_)
        if schema is None or method not in schema[methods]:
            raise Refused(0, "NotAllowed", f"{method} {type_}")
        return schema

    # --- what it does -------------------------------------------------------------------------------------------------------

    def list(self, type_: str, **filters: str) -> list[Obj]:
        """All of them, page after page."""
        schema = self._allowed(type_, "collectionMethods", "GET")
        url = schema["links"]["collection"] + (f"?{urlencode(filters)}" if filters else "")
        found: list[Obj] = []
        while url:
            page = self._answer("GET", url)
            found += page["data"]
            url = str((page.get("pagination") or {}).get("next") or "")
        return found

    def get(self, type_: str, identity: str) -> Obj:
        schema = self._allowed(type_, "resourceMethods", "GET")
        return self._answer("GET", f"{schema['links']['collection']}/{identity}")

    def create(self, type_: str, body: Obj) -> Obj:
        schema = self._allowed(type_, "collectionMethods", "POST")
        return self._answer("POST", schema["links"]["collection"], body)

    def update(self, existing: Obj, changes: Obj) -> Obj:
        self._allowed(existing["type"], "resourceMethods", "PUT")
        return self._answer("PUT", existing["links"]["self"], changes)

    def delete(self, existing: Obj) -> None:
        self._allowed(existing["type"], "resourceMethods", "DELETE")
        self._answer("DELETE", existing["links"]["self"])

    def act(self, existing: Obj, action: str, body: Obj | None = None) -> Obj:
        if action not in (existing.get("actions") or {}):
            raise Refused(0, "NotAllowed", f"{action} of {existing.get('id')}")
        return self._answer("POST", existing["actions"][action], body or {})

    def is_gone(self, type_: str, identity: str) -> bool:
        try:
            self.get(type_, identity)
        except Refused as error:
            assert error.status in (403, 404), error
            return True
        return False
