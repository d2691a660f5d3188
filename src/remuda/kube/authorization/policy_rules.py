"""RBAC policy rules as values: compiled for quick answers, compared for cover, printed as kube-apiserver prints them.

A rule is the JSON object of a Role (`verbs`, `apiGroups`, `resources`, `resourceNames`, `nonResourceURLs`). :mod:`.rbac`
asks :class:`CompiledRules`; :mod:`remuda.apiserver.auth.escalation` and :mod:`remuda.apiserver.auth.bootstrap_policy` ask
:func:`uncovered`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import go_quote

Rule = dict[str, Any]

# Verb, API group, resource (with its subresource after a slash); "*" stands for all of them.
Key = tuple[str, str, str]

_ANY_NAME: frozenset[str] = frozenset()


def resource_keys(verb: str, group: str, resource: str, subresource: str) -> list[Key]:
    """Every key under which a rule for this action may be filed."""
    if subresource:
        resources: tuple[str, ...] = (f"{resource}/{subresource}", f"*/{subresource}", "*")
    else:
        resources = (resource, "*") if resource != "*" else ("*",)
    verbs = (verb, "*") if verb != "*" else ("*",)
    groups = (group, "*") if group != "*" else ("*",)
    return [(v, g, r) for v in verbs for g in groups for r in resources]


class CompiledRules:
    """One role's rules, filed so that an action finds its rule with a few lookups."""

    __slots__ = ("_paths", "_prefixes", "_resources", "rules")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        # The names for which the key is allowed; an empty set means all names.
        self._resources: dict[Key, frozenset[str]] = {}
        self._paths: set[tuple[str, str]] = set()
        self._prefixes: list[tuple[frozenset[str], str]] = []
        for rule in rules:
            self._file(rule)

    def _file(self, rule: Rule) -> None:
        verbs = rule.get("verbs") or ()
        names = frozenset(rule.get("resourceNames") or ())
        for key in ((v, g, r) for v in verbs for g in rule.get("apiGroups") or () for r in rule.get("resources") or ()):
            known = self._resources.get(key)
            open_to_all = not names or (known is not None and not known)
            self._resources[key] = _ANY_NAME if open_to_all else names | (known or _ANY_NAME)
        for url in rule.get("nonResourceURLs") or ():
            self._paths.update((verb, url) for verb in verbs)
            if url.endswith("*"):
                self._prefixes.append((frozenset(verbs), url.rstrip("*")))

    def names(self, keys: Iterable[Key]) -> tuple[bool, frozenset[str]]:
        """True if an action with one of these keys is allowed on any name; otherwise the names on which it is allowed."""
        allowed: frozenset[str] = _ANY_NAME
        for key in keys:
            found = self._resources.get(key)
            if found is None:
                continue
            if not found:
                return True, _ANY_NAME
            allowed |= found
        return False, allowed

    def allows_path(self, verb: str, path: str) -> bool:
        if (verb, path) in self._paths or ("*", path) in self._paths:
            return True
        return any(path.startswith(prefix) and (verb in verbs or "*" in verbs) for verbs, prefix in self._prefixes)


# ---------------------------------------------------------------------------------------------------------------------
# Cover: whether one set of rules allows everything that another one allows.


def uncovered(owner: Iterable[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """The permissions in `wanted` that `owner` does not hold, one verb on one resource (or URL) each."""
    owners = list(owner)
    return [atom for rule in wanted for atom in atoms(rule) if not any(_covers(each, atom) for each in owners)]


def atoms(rule: Rule) -> Iterable[Rule]:
    """The rule split up: at most one verb, resource and name each, so that a single rule covers it or none does."""
    verbs, names = rule.get("verbs") or (), rule.get("resourceNames") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                atom = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
                if not names:
                    yield atom
                for name in names:
                    yield {**atom, "resourceNames": [name]}
    for url in rule.get("nonResourceURLs") or ():
        for verb in verbs:
            yield {"verbs": [verb], "nonResourceURLs": [url]}


def _covers(owner: Rule, atom: Rule) -> bool:
    if not _has(owner.get("verbs"), atom["verbs"][0]):
        return False
    if "nonResourceURLs" in atom:
        # A rule limited to names is a rule about resources; it can't also apply to URLs.
        wanted = atom["nonResourceURLs"][0]
        return not owner.get("resourceNames") and any(_url_covers(url, wanted) for url in owner.get("nonResourceURLs") or ())
    if not _has(owner.get("apiGroups"), atom["apiGroups"][0]):
        return False
    if not _resource_covered(owner.get("resources") or (), atom["resources"][0]):
        return False
    names = owner.get("resourceNames") or ()
    return not names or (bool(atom.get("resourceNames")) and atom["resourceNames"][0] in names)


def _has(values: Sequence[str] | None, wanted: str) -> bool:
    return values is not None and ("*" in values or wanted in values)


def _resource_covered(resources: Sequence[str], wanted: str) -> bool:
    if "*" in resources or wanted in resources:
        return True
    _, slash, subresource = wanted.partition("/")
    return bool(slash) and f"*/{subresource}" in resources


def _url_covers(owner: str, wanted: str) -> bool:
    return owner == wanted or (owner.endswith("*") and wanted.startswith(owner.rstrip("*")))


# ---------------------------------------------------------------------------------------------------------------------
# Texts


def compact(rules: Iterable[Rule]) -> list[Rule]:
    """Rules about one resource (and at most one name) that differ only by verb, joined."""
    joined: dict[tuple[str, str, tuple[str, ...]], Rule] = {}
    rest: list[Rule] = []
    for rule in rules:
        groups: Sequence[str] = rule.get("apiGroups") or ()
        resources: Sequence[str] = rule.get("resources") or ()
        names = tuple(rule.get("resourceNames") or ())
        if len(groups) != 1 or len(resources) != 1 or len(names) > 1 or rule.get("nonResourceURLs"):
            rest.append(rule)
            continue
        key = (groups[0], resources[0], names)
        if key in joined:
            joined[key] = {**joined[key], "verbs": [*joined[key]["verbs"], *rule["verbs"]]}
        else:
            joined[key] = rule
    return [*rest, *joined.values()]


def text(rule: Rule) -> str:
    """A rule as escalation errors print it."""
    shown = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("ResourceNames", "resourceNames"),
        ("Verbs", "verbs"),
    )
    return "{" + ", ".join(f"{word}:{quoted(rule[field])}" for word, field in shown if rule.get(field)) + "}"


def quoted(values: Iterable[str]) -> str:
    """Strings as Go's %q prints a slice of them."""
    return "[" + " ".join(go_quote(value) for value in values) + "]"
