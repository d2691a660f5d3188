"""Query parameters to options, with kube-apiserver's complaints about bad ones."""

from __future__ import annotations

from typing import Any

from remuda.kube import errors
from remuda.kube.errors import FieldError, invalid_value, not_supported

from ..calls import IGNORE, STRICT, WARN, DeleteOptions, ListOptions

Obj = dict[str, Any]


def _flag(query: dict[str, str], name: str) -> bool | None:
    text = query.get(name)
    if text is None:
        return None
    return text.lower() not in ("false", "0")


def _integer(query: dict[str, str], name: str) -> int:
    text = query.get(name, "")
    if not text:
        return 0
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def list_options(query: dict[str, str]) -> ListOptions:
    if not query:
        return ListOptions()
    return ListOptions(
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


class WriteOptions:
    __slots__ = ("dry_run", "field_manager", "field_validation", "force")

    def __init__(self, query: dict[str, str], kind: str) -> None:
        self.dry_run = False
        self.field_manager = ""
        self.field_validation = WARN
        self.force: bool | None = None
        if not query:
            return
        found: list[FieldError] = []
        if "dryRun" in query:
            if query["dryRun"] == "All":
                self.dry_run = True
            else:
                found.append(not_supported("dryRun", [query["dryRun"]], ("All",)))
        self.field_manager = query.get("fieldManager", "")
        found.extend(_manager_errors(self.field_manager))
        validation = query.get("fieldValidation", "")
        if validation not in ("", STRICT, WARN, IGNORE):
            found.append(not_supported("fieldValidation", validation, ("", IGNORE, STRICT, WARN)))
        self.field_validation = validation or WARN
        self.force = _flag(query, "force")
        if found:
            raise errors.invalid("meta.k8s.io", kind, "", found)


def _manager_errors(manager: str) -> list[FieldError]:
    found = [errors.too_long("fieldManager", 128)] if len(manager) > 128 else []
    for index, char in enumerate(manager):
        if not char.isprintable():
            found.append(
                invalid_value("fieldManager", manager, f"invalid character {errors.go_quote(char)} (at position {index})")
            )
    return found


def delete_options(query: dict[str, str], body: Any) -> tuple[DeleteOptions, bool]:
    """From the body if there is one, else from the query; and whether it is a dry run."""
    found = DeleteOptions()
    dry_run: list[str] = []
    if isinstance(body, dict) and body:
        grace = body.get("gracePeriodSeconds")
        found.grace_seconds = grace if isinstance(grace, int) else None
        found.propagation = body.get("propagationPolicy") or ""
        orphan = body.get("orphanDependents")
        found.orphan_dependents = orphan if isinstance(orphan, bool) else None
        preconditions = body.get("preconditions") or {}
        found.uid = preconditions.get("uid") or ""
        found.resource_version = preconditions.get("resourceVersion") or ""
        dry_run = body.get("dryRun") or []
    if query:
        if "gracePeriodSeconds" in query and found.grace_seconds is None:
            found.grace_seconds = _integer(query, "gracePeriodSeconds")
        found.propagation = found.propagation or query.get("propagationPolicy", "")
        if found.orphan_dependents is None:
            found.orphan_dependents = _flag(query, "orphanDependents")
        if "dryRun" in query and not dry_run:
            dry_run = [query["dryRun"]]
    if dry_run and dry_run != ["All"]:
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [not_supported("dryRun", dry_run, ("All",))])
    return found, bool(dry_run)
