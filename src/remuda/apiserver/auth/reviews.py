"""The access reviews ("may they?", `kubectl auth can-i`) and the rules review ("what may I?", `can-i --list`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from remuda.kube import names
from remuda.kube.authorization.actions import Action, Authorizer
from remuda.kube.authorization.policy_rules import Rule
from remuda.kube.authorization.rbac import RuleError
from remuda.kube.authorization.users import User
from remuda.kube.clock import Clock, rfc3339
from remuda.kube.encoding.jsonio import dumps_sorted, dumps_text, loads
from remuda.kube.errors import (
    FieldError,
    Verbatim,
    aggregate_text,
    bad_request,
    forbidden_field,
    invalid,
    invalid_value,
    required,
)
from remuda.kube.selectors import SelectorError, parse_fields, parse_labels

from ..registry.object_meta import META_FIELDS
from .authenticator import INVALID_TOKEN, BadCredentials, Chain, Credentials, bearer_token

Obj = dict[str, Any]

_GROUP = "authorization.k8s.io"
_VERSION = f"{_GROUP}/v1"


async def subject_access_review(body: Obj, user: User, services: Services, namespace: str = "") -> Obj:
    problems = _spec_problems(body, subject=True) + _metadata_problems(body, "must be empty", ())
    return _review("SubjectAccessReview", body, _subject(body), services, problems)


async def self_subject_access_review(body: Obj, user: User, services: Services, namespace: str = "") -> Obj:
    problems = _spec_problems(body, subject=False) + _metadata_problems(body, "must be empty", ())
    return _review("SelfSubjectAccessReview", body, user, services, problems)


async def local_subject_access_review(body: Obj, user: User, services: Services, namespace: str = "") -> Obj:
    metadata = body.get("metadata") or {}
    own = metadata.get("namespace") or namespace
    body = {**body, "metadata": {"namespace": own, **metadata}}
    problems = _spec_problems(body, subject=True)
    problems += _metadata_problems(body, "must be empty except for namespace", ("namespace",))
    spec = body.get("spec") or {}
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and (resource.get("namespace") or "") != own:
        value = resource.get("namespace") or ""
        problems.append(invalid_value("spec.resourceAttributes.namespace", value, "must match metadata.namespace"))
    if path is not None:
        problems.append(invalid_value("spec.nonResourceAttributes", _go_path(path), "disallowed on this kind of request"))
    if not problems and not namespace:
        raise bad_request("namespace is required on this type: ")
    if not problems and namespace != own:
        raise bad_request(f"spec.resourceAttributes.namespace must match namespace: {namespace}")
    return _review("LocalSubjectAccessReview", body, _subject(body), services, problems)


async def self_subject_rules_review(body: Obj, user: User, services: Services, namespace: str = "") -> Obj:
    wanted = (body.get("spec") or {}).get("namespace") or ""
    if not wanted:
        raise bad_request("no namespace on request")
    rules, errors = services.authorizer.rules_for(user, wanted)
    about_resources = ("verbs", "apiGroups", "resources", "resourceNames")
    about_paths = ("verbs", "nonResourceURLs")
    status: Obj = {
        "resourceRules": [_picked(rule, about_resources) for rule in rules if rule.get("resources")],
        "nonResourceRules": [_picked(rule, about_paths) for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }
    if errors:
        status["evaluationError"] = aggregate_text(list(dict.fromkeys(map(str, errors))))
    # The answer has no spec, as upstream's.
    return answer("SelfSubjectRulesReview", _VERSION, {}, status)


def _picked(rule: Obj, fields: tuple[str, ...]) -> Obj:
    return {field: rule[field] for field in fields if rule.get(field)}


def _subject(body: Obj) -> User:
    spec = body.get("spec") or {}
    return User(spec.get("user") or "", spec.get("uid") or "", tuple(spec.get("groups") or ()), dict(spec.get("extra") or {}))


def _review(kind: str, body: Obj, subject: User, services: Services, problems: list[FieldError]) -> Obj:
    if problems:
        # Upstream's error has no kind either.
        raise invalid(_GROUP, "", "", problems)
    spec = body["spec"]
    resource = spec.get("resourceAttributes")
    errors: list[str] = []
    if resource is None:
        path = spec["nonResourceAttributes"]
        action = Action.on_path(subject, path.get("verb") or "", path.get("path") or "")
    else:
        errors = _selector_errors(resource)
        action = _resource_action(subject, resource)
    decision = services.authorizer.authorize(action)
    status: Obj = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    if errors:
        status["evaluationError"] = "; ".join(errors)
    return answer(kind, _VERSION, body, status)


def _resource_action(subject: User, attributes: Obj) -> Action:
    return Action(
        subject,
        attributes.get("verb") or "",
        attributes.get("group") or "",
        attributes.get("version") or "*",
        attributes.get("resource") or "",
        attributes.get("subresource") or "",
        attributes.get("namespace") or "",
        attributes.get("name") or "",
        field_selector=(attributes.get("fieldSelector") or {}).get("rawSelector") or "",
        label_selector=(attributes.get("labelSelector") or {}).get("rawSelector") or "",
    )


# ---------------------------------------------------------------------------------------------------------------------
# Validation


def _spec_problems(body: Obj, *, subject: bool) -> list[FieldError]:
    spec = body.get("spec") or {}
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    problems: list[FieldError] = []
    if resource is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        problems.append(invalid_value("spec.nonResourceAttributes", _go_path(path), why))
    if resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        problems.append(invalid_value("spec.resourceAttributes", None, why))
    if subject and not spec.get("user") and not spec.get("groups"):
        problems.append(invalid_value("spec.user", "", "at least one of user or group must be specified"))
    if resource is not None:
        for field, check in (("fieldSelector", _field_problems), ("labelSelector", _label_problems)):
            if resource.get(field) is not None:
                problems += _selector_problems(resource[field], f"spec.resourceAttributes.{field}")
                for index, requirement in enumerate(resource[field].get("requirements") or ()):
                    problems += check(requirement, f"spec.resourceAttributes.{field}.requirements[{index}]")
    return problems


def _go_path(attributes: Obj) -> Obj:
    """Non-resource attributes as upstream's internal type is printed."""
    return {"Path": attributes.get("path") or "", "Verb": attributes.get("verb") or ""}


def _metadata_problems(body: Obj, why: str, allowed: tuple[str, ...]) -> list[FieldError]:
    metadata = body.get("metadata") or {}
    found = any(value not in (None, "", [], {}) for key, value in metadata.items() if key not in ("managedFields", *allowed))
    return [invalid_value("metadata", Verbatim(dumps_text(_in_order(metadata))), why)] if found else []


# Field errors show a struct's fields as it declares them.
_ENTRY_ORDER = ("manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource")


def _sorted(value: Any) -> Any:
    return loads(dumps_sorted(value)) if isinstance(value, dict) else value


def _in_order(metadata: Obj) -> Obj:
    shown = {name: metadata[name] for name in META_FIELDS if metadata.get(name)}
    if entries := shown.get("managedFields"):
        shown["managedFields"] = [{name: _sorted(entry[name]) for name in _ENTRY_ORDER if name in entry} for entry in entries]
    return shown


def _selector_problems(selector: Obj, path: str) -> list[FieldError]:
    raw, requirements = selector.get("rawSelector") or "", selector.get("requirements") or ()
    if raw and requirements:
        return [invalid_value(f"{path}.rawSelector", raw, "may not specified at the same time as requirements")]
    if not raw and not requirements:
        return [required(f"{path}.requirements", f"when {path} is specified, requirements or rawSelector is required")]
    return []


def _operator_problems(requirement: Obj, path: str) -> list[FieldError]:
    # Unknown operators pass: a newer client may know more, and ignoring one only widens the review.
    operator, values = requirement.get("operator") or "", requirement.get("values") or ()
    if operator in ("In", "NotIn") and not values:
        return [required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")]
    if operator in ("Exists", "DoesNotExist") and values:
        return [forbidden_field(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")]
    return []


def _field_problems(requirement: Obj, path: str) -> list[FieldError]:
    missing = [] if requirement.get("key") else [required(f"{path}.key", "must be specified")]
    return missing + _operator_problems(requirement, path)


def _label_problems(requirement: Obj, path: str) -> list[FieldError]:
    problems = _operator_problems(requirement, path)
    key = requirement.get("key") or ""
    problems += [invalid_value(f"{path}.key", key, why) for why in names.qualified_name_problems(key)]
    for index, value in enumerate(requirement.get("values") or ()):
        problems += [invalid_value(f"{path}.values[{index}]", value, why) for why in names.label_value_problems(value)]
    return problems


# ---------------------------------------------------------------------------------------------------------------------
# Selectors that can't be parsed are ignored, and the answer says so


class _Parsed(NamedTuple):
    kept: int
    failed: bool


def _selector_errors(attributes: Obj) -> list[str]:
    errors: list[str] = []
    for field, parse in (("fieldSelector", _parse_fields), ("labelSelector", _parse_labels)):
        parsed = parse(attributes.get(field) or {})
        if parsed.failed:
            how = "partially ignored" if parsed.kept else "ignored"
            errors.append(f"spec.resourceAttributes.{field} {how} due to parse error")
    return errors


def _parse_fields(selector: Obj) -> _Parsed:
    if raw := selector.get("rawSelector"):
        try:
            return _Parsed(len(parse_fields(raw).requirements), False)
        except SelectorError:
            return _Parsed(0, True)
    requirements = selector.get("requirements") or ()
    good = [each for each in requirements if each.get("operator") in ("In", "NotIn") and len(each.get("values") or ()) == 1]
    return _Parsed(len(good), len(good) < len(requirements))


def _parse_labels(selector: Obj) -> _Parsed:
    if raw := selector.get("rawSelector"):
        try:
            return _Parsed(len(parse_labels(raw).requirements), False)
        except SelectorError:
            return _Parsed(0, True)
    requirements = selector.get("requirements") or ()
    good = [each for each in requirements if each.get("operator") in ("In", "NotIn", "Exists", "DoesNotExist")]
    return _Parsed(len(good), len(good) < len(requirements))


# --- review services ------------------------------------------------------------------------------------------------------
#
# The review APIs: objects that are answered and never stored.
#
# Each handler takes the decoded body, the user and :class:`Services`, and gives the object to answer with (201) or
# raises an ApiError. They expect a body that passed the built-in codec (known fields, right types) and keep its metadata, to
# which the write path has added managedFields, as in kube-apiserver's answers.


class RuleHolder(Authorizer, Protocol):
    """An authorizer that can also list what a user may do; :class:`~remuda.kube.authorization.rbac.Rbac` is one."""

    def rules_for(self, user: User, namespace: str) -> tuple[list[Rule], list[RuleError]]: ...


@dataclass(frozen=True, slots=True)
class Services:
    chain: Chain
    authorizer: RuleHolder
    clock: Clock


# Body, user, services and the namespace of the request's path ("" for cluster-scoped reviews).
Handler = Callable[[Obj, User, Services, str], Awaitable[Obj]]


def handlers() -> dict[tuple[str, str], Handler]:
    """The handlers by API group and resource."""

    return {
        ("authentication.k8s.io", "tokenreviews"): token_review,
        ("authentication.k8s.io", "selfsubjectreviews"): self_subject_review,
        ("authorization.k8s.io", "subjectaccessreviews"): subject_access_review,
        ("authorization.k8s.io", "localsubjectaccessreviews"): local_subject_access_review,
        ("authorization.k8s.io", "selfsubjectaccessreviews"): self_subject_access_review,
        ("authorization.k8s.io", "selfsubjectrulesreviews"): self_subject_rules_review,
    }


def answer(kind: str, api_version: str, body: Obj, status: Obj) -> Obj:
    """The review object with its status."""
    return {
        "kind": kind,
        "apiVersion": api_version,
        "metadata": body.get("metadata") or {},
        "spec": body.get("spec") or {},
        "status": status,
    }


# --- TokenReview, SelfSubjectReview ---------------------------------------------------------------------------------------
#
# TokenReview ("whose token is this?") and SelfSubjectReview ("who am I?", `kubectl auth whoami`).


_IDENTITY_VERSION = "authentication.k8s.io/v1"


async def token_review(body: Obj, user: User, services: Services, namespace: str = "") -> Obj:
    spec = body.get("spec") or {}
    text = spec.get("token") or ""
    if not text:
        raise bad_request("token is required for TokenReview in authentication")
    # Parsed like a request's header: text after a space is not part of the token.
    credentials = Credentials(bearer=bearer_token(f"Bearer {text}"), audiences=tuple(spec.get("audiences") or ()))
    status: Obj = {"user": {}}
    try:
        identity = await services.chain.identify(credentials)
    except BadCredentials as error:
        return answer("TokenReview", _IDENTITY_VERSION, body, {**status, "error": error.why})
    if identity is None:
        return answer(
            "TokenReview", _IDENTITY_VERSION, body, {**status, "error": INVALID_TOKEN} if credentials.bearer else status
        )
    status = {"authenticated": True, "user": identity.user.info()}
    if identity.audiences:
        status["audiences"] = list(identity.audiences)
    return answer("TokenReview", _IDENTITY_VERSION, body, status)


async def self_subject_review(body: Obj, user: User, services: Services, namespace: str = "") -> Obj:
    return {
        "kind": "SelfSubjectReview",
        "apiVersion": _IDENTITY_VERSION,
        "metadata": {"creationTimestamp": rfc3339(services.clock.time())},
        "status": {"userInfo": user.info()},
    }
