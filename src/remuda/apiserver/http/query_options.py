"""Query parameters to options, with kube-apiserver's errors for bad ones."""

from __future__ import annotations

from typing import Any

from remuda.kube import errors
from remuda.kube.encoding.go_format import IntegerError, parse_int
from remuda.kube.errors import FieldError, not_supported

from ..registry.object_meta import field_manager_errors
from ..verbs import delete
from ..verbs.context import IGNORE, STRICT, WARN, DeleteOptions, ListOptions
from .paths import Query

Obj = dict[str, Any]


def _flag(query: Query, name: str) -> bool | None:
    text = query.get(name)
    if text is None:
        return None
    return text.lower() not in ("false", "0")


def _integer(query: Query, name: str) -> int:
    text = query.get(name)
    if text is None:
        return 0
    try:
        return parse_int(text)
    except IntegerError as error:
        raise errors.bad_request(str(error)) from None


def list_options(query: Query) -> ListOptions:
    if not query:
        return ListOptions()
    found = ListOptions(
        labels=query.get("labelSelector", ""),
        fields=query.get("fieldSelector", ""),
        limit=_integer(query, "limit"),
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        watch=bool(_flag(query, "watch")),
        bookmarks=bool(_flag(query, "allowWatchBookmarks")),
        send_initial_events=_flag(query, "sendInitialEvents"),
        timeout_seconds=_integer(query, "timeoutSeconds"),
    )
    if (
        found.watch
        and found.resource_version in ("", "0")
        and found.send_initial_events is None
        and not found.resource_version_match
    ):
        # The meaning of a watch without a version, in today's parameters.
        found.send_initial_events, found.resource_version_match = True, "NotOlderThan"
    return found


class WriteOptions:
    __slots__ = ("dry_run", "field_manager", "field_validation", "force")

    def __init__(self, query: Query, kind: str) -> None:
        self.dry_run = False
        self.field_manager = ""
        self.field_validation = ""
        self.force: bool | None = None
        if not query:
            return
        self.field_manager = query.get("fieldManager", "")
        found = field_manager_errors(self.field_manager, "fieldManager")
        dry_run = query.all("dryRun")
        found.extend(_dry_run_errors(dry_run))
        self.dry_run = bool(dry_run)
        validation = query.get("fieldValidation", "")
        if validation not in ("", STRICT, WARN, IGNORE):
            found.append(not_supported("fieldValidation", validation, ("", IGNORE, STRICT, WARN)))
        self.field_validation = validation or ""
        self.force = _flag(query, "force")
        if found:
            raise errors.invalid("meta.k8s.io", kind, "", found)


def _dry_run_errors(given: list[str]) -> list[FieldError]:
    return [not_supported("dryRun", given, ("All",))] if given and set(given) != {"All"} else []


def delete_options(query: Query, body: Obj | None) -> tuple[DeleteOptions, bool]:
    """DeleteOptions from the body if there is one, else from the query; and whether it is a dry run."""
    found = DeleteOptions()
    policy: str | None
    if body is not None:
        found.grace_seconds = body.get("gracePeriodSeconds")
        policy = body.get("propagationPolicy")
        found.orphan_dependents = body.get("orphanDependents")
        preconditions = body.get("preconditions") or {}
        found.uid = preconditions.get("uid") or ""
        found.resource_version = preconditions.get("resourceVersion") or ""
        dry_run = body.get("dryRun") or []
    else:
        found.grace_seconds = _integer(query, "gracePeriodSeconds") if "gracePeriodSeconds" in query else None
        policy = query.get("propagationPolicy")
        found.orphan_dependents = _flag(query, "orphanDependents")
        dry_run = query.all("dryRun")
    problems = delete.option_errors(policy, found.orphan_dependents) + _dry_run_errors(dry_run)
    if problems:
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", problems)
    found.propagation = policy or ""
    return found, bool(dry_run)
