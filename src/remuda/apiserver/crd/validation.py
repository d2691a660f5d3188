"""Everything kube-apiserver checks on a CustomResourceDefinition itself, in its order and words.

Schemas are :mod:`.structural` and :mod:`.schema_rules`; here is the rest: names, versions, subresources, conversion
(:mod:`.spec_rules`), scale paths and columns (also there), stored versions, and fields that are immutable. An update may keep
errors that were there before a rule was added (:func:`update_options`). Metadata is checked by the verbs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remuda.kube import names as rules
from remuda.kube.errors import FieldError, forbidden_field, invalid_value, not_supported, required

from ..limits import cost_budget
from ..registry.object_meta import IMMUTABLE
from ..schema.formats import recognised
from . import cel_rules, schema_rules, spec_rules
from .conditions import approval_state, is_established, is_protected_group
from .internal_version import (
    Internal,
    Obj,
    dict_of,
    internal,
    list_of,
    schema_of,
    set_fields,
    shown_schema,
    shown_text,
    shown_versions,
)
from .schema_rules import SchemaChecks, default_errors
from .spec_rules import MAX_SELECTABLE_FIELDS
from .structural import conversion_problem, every_schema, structural_errors

Errors = list[FieldError]

APPROVED_ANNOTATION = "api-approved.kubernetes.io"
_ALLOWED_AT_ROOT = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems "
    "MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations"
)


def name_problems(crd: Obj) -> list[str]:
    """The errors in the CRD's own name, besides the rules for any name."""
    spec = dict_of(crd.get("spec"))
    wanted = f"{dict_of(spec.get('names')).get('plural') or ''}.{spec.get('group') or ''}"
    found = dict_of(crd.get("metadata")).get("name") or ""
    return [] if found == wanted else ['must be spec.names.plural+"."+spec.group']


def validate(crd: Obj) -> Errors:
    with cost_budget.BOUNDED:
        return _validate(crd)


def validate_update(crd: Obj, old: Obj) -> Errors:
    with cost_budget.BOUNDED:
        return _validate_update(crd, old)


def _validate(crd: Obj) -> Errors:
    name = dict_of(crd.get("metadata")).get("name") or ""
    errors = [invalid_value("metadata.name", name, why) for why in name_problems(crd)] if name else []
    form = internal(crd)
    errors += _spec_errors(form, SchemaChecks())
    errors += _status_errors(crd, form)
    errors += _approval_errors(crd, None)
    return errors + _preserve_errors(crd, None)


def _validate_update(crd: Obj, old: Obj) -> Errors:
    form, before = internal(crd), internal(old)
    options = update_options(form, old, before)
    errors = _spec_errors(form, options)
    spec, old_spec = form.spec, before.spec
    names, old_names = dict_of(spec.get("names")), dict_of(old_spec.get("names"))
    if options.immutable_names:
        errors += _immutable(spec.get("scope"), old_spec.get("scope"), "spec.scope")
        errors += _immutable(names.get("kind"), old_names.get("kind"), "spec.names.kind")
    errors += _immutable(spec.get("group"), old_spec.get("group"), "spec.group")
    errors += _immutable(names.get("plural"), old_names.get("plural"), "spec.names.plural")
    errors += _status_errors(crd, form)
    errors += _approval_errors(crd, old)
    return errors + _preserve_errors(crd, old)


def validate_status_update(crd: Obj, old: Obj) -> Errors:
    accepted = dict_of(dict_of(crd.get("status")).get("acceptedNames"))
    return _name_errors(accepted, "status.acceptedNames")


def warnings(crd: Obj, old: Obj | None) -> list[str]:
    """Unknown formats are kept, with a warning."""
    if old is not None and old.get("spec") == crd.get("spec"):
        return []
    known = set(_unknown_formats(old)) if old is not None else set()
    return [f'unrecognized format "{name}"' for name in _unknown_formats(crd) if name not in known]


def _unknown_formats(crd: Obj) -> list[str]:
    form = internal(crd)
    found: list[str] = []
    for place in (form.validation, *(version.get("schema") for version in form.versions)):
        for each in every_schema(schema_of(place)):
            name, kind = each.get("format"), each.get("type") or ""
            if name and not recognised(kind, name):
                found.append(name)
    return found


def _immutable(new: Any, old: Any, path: str) -> Errors:
    return [] if (new or "") == (old or "") else [invalid_value(path, new or "", IMMUTABLE)]


# --- spec ------------------------------------------------------------------------------------------------------------


def _spec_errors(form: Internal, options: SchemaChecks) -> Errors:
    spec = form.spec
    errors = _group_errors(spec.get("group") or "")
    errors += _enum_errors("spec.scope", spec.get("scope") or "", ("Cluster", "Namespaced"))
    preserve = bool(spec.get("preserveUnknownFields"))
    demands_structure = options.structural or not preserve
    errors += _missing_schema_errors(form, options, preserve)
    every = [each for schema in schemas(form) for each in every_schema(schema)]
    if any(each.get("default") is not None for each in every):
        demands_structure = True
        if preserve:
            why = "must be false in order to use defaults in the schema"
            errors.append(invalid_value("spec.preserveUnknownFields", True, why))
    if any(_has_extensions(each) for each in every):
        demands_structure = True
    errors += _version_errors(form, options, demands_structure)
    errors += _names_required(dict_of(spec.get("names")))
    errors += _name_errors(dict_of(spec.get("names")), "spec.names")
    status = _has_status(form.subresources) or any(_has_status(each.get("subresources")) for each in form.versions)
    first = form.versions[0].get("name") if form.versions else ""
    unchanged = first in options.unchanged_versions
    errors += _schema_errors(form.validation, "spec.validation", status, options, demands_structure, unchanged)
    errors += spec_rules.subresource_errors(form.subresources, "spec.subresources")
    for index, column in enumerate(form.columns):
        errors += spec_rules.column_errors(dict_of(column), f"spec.additionalPrinterColumns[{index}]")
    if form.selectable:
        errors += spec_rules.top_selectable_errors(form, options)
    conversion = dict_of(spec.get("conversion"))
    if preserve and conversion and conversion.get("strategy") != "None":
        why = "must be None if spec.preserveUnknownFields is true"
        errors.append(invalid_value("spec.conversion.strategy", conversion.get("strategy") or "", why))
    return errors + spec_rules.conversion_errors(spec.get("conversion"), options)


def _has_extensions(schema: Obj) -> bool:
    flags = ("x-kubernetes-embedded-resource", "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys")
    present = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type")
    return (
        any(schema.get(name) for name in flags)
        or any(schema.get(name) is not None for name in present)
        or bool(schema.get("x-kubernetes-validations"))
    )


def _group_errors(group: str) -> Errors:
    if not group:
        return [required("spec.group")]
    problems = rules.dns_subdomain_problems(group)
    if problems:
        return [invalid_value("spec.group", group, ",".join(problems))]
    if "." not in group:
        return [invalid_value("spec.group", group, "should be a domain with at least one dot")]
    return []


def _enum_errors(path: str, value: str, accepted: tuple[str, ...]) -> Errors:
    if not value:
        return [required(path)]
    return [] if value in accepted else [not_supported(path, value, accepted)]


def _missing_schema_errors(form: Internal, options: SchemaChecks, preserve: bool) -> Errors:
    if schema_of(form.validation) is not None:
        return []
    errors: Errors = []
    for index, version in enumerate(form.versions):
        if schema_of(version.get("schema")) is not None:
            continue
        path = f"spec.versions[{index}].schema.openAPIV3Schema"
        if options.schema_required:
            errors.append(required(path))
        elif not preserve and version.get("served"):
            errors.append(required(path, "because otherwise all fields are pruned"))
    return errors


def _version_errors(form: Internal, options: SchemaChecks, structural: bool) -> Errors:
    errors: Errors = []
    for index, version in enumerate(form.versions):
        path = f"spec.versions[{index}]"
        name = version.get("name") or ""
        problems = rules.dns1035_label_problems(name)
        if problems:
            errors.append(invalid_value(f"{path}.name", name, ",".join(problems)))
        errors += _deprecation_errors(version, f"{path}.deprecationWarning")
        own = version.get("subresources")
        status = _has_status(_subresources_of(form, name))
        unchanged = name in options.unchanged_versions
        errors += _schema_errors(version.get("schema"), f"{path}.schema", status, options, structural, unchanged)
        errors += spec_rules.subresource_errors(own, f"{path}.subresources")
        for position, column in enumerate(list_of(version.get("additionalPrinterColumns"))):
            errors += spec_rules.column_errors(dict_of(column), f"{path}.additionalPrinterColumns[{position}]")
        fields = list_of(version.get("selectableFields"))
        if fields:
            schema = schema_of(version.get("schema"))
            if schema is None:
                why = "may only be set when `version.schema.openAPIV3Schema` is not included"
                errors.append(invalid_value(f"{path}.selectableFields", "", why))
            elif problem := conversion_problem(schema):
                errors.append(invalid_value(f"{path}.schema.openAPIV3Schema", "", problem))
                errors += spec_rules.unreadable_selectable_errors(fields, f"{path}.selectableFields")
            else:
                errors += spec_rules.selectable_errors(fields, schema, f"{path}.selectableFields", options, name)
    names = [version.get("name") for version in form.versions]
    if len(set(names)) != len(names):
        why = "must contain unique version names"
        errors.append(invalid_value("spec.versions", shown_versions(form.versions), why))
    if sum(bool(version.get("storage")) for version in form.versions) != 1:
        why = "must have exactly one version marked as storage version"
        errors.append(invalid_value("spec.versions", shown_versions(form.versions), why))
    first = names[0] if names else ""
    if first:
        problems = rules.dns1035_label_problems(str(first))
        if problems:
            errors.append(invalid_value("spec.version", first, ",".join(problems)))
    return errors


def _subresources_of(form: Internal, name: str) -> Any:
    if all(each.get("subresources") is None for each in form.versions):
        return form.subresources
    return next((each.get("subresources") for each in form.versions if (each.get("name") or "") == name), None)


def _deprecation_errors(version: Obj, path: str) -> Errors:
    text = version.get("deprecationWarning")
    if text is None:
        return []
    problems: list[str] = []
    if not version.get("deprecated"):
        problems.append("can only be set for deprecated versions")
    else:
        if len(text.encode()) > 256:
            problems.append("must be <= 256 characters long")
        if not text:
            problems.append("must not be an empty string")
        position = 0
        for char in text:
            if not (char.isprintable() or char == " "):
                what = "non-printable character"
                problems.append(f"must only contain printable UTF-8 characters; {what} found at index {position}")
                break
            position += len(char.encode())
    return [invalid_value(path, shown_text(text), problem) for problem in problems]


def _has_status(subresources: Any) -> bool:
    return "status" in dict_of(subresources)


def _names_required(names: Obj) -> Errors:
    return [required(f"spec.names.{name}") for name in ("plural", "singular", "kind", "listKind") if not names.get(name)]


def _name_errors(names: Obj, path: str) -> Errors:
    errors: Errors = []
    for field in ("plural", "singular"):
        value = names.get(field) or ""
        problems = rules.dns1035_label_problems(value) if value else []
        if problems:
            errors.append(invalid_value(f"{path}.{field}", value, ",".join(problems)))
    for field in ("kind", "listKind"):
        value = names.get(field) or ""
        problems = rules.dns1035_label_problems(value.lower()) if value else []
        if problems:
            why = "may have mixed case, but should otherwise match: " + ",".join(problems)
            errors.append(invalid_value(f"{path}.{field}", value, why))
    errors += _each_label(names, "shortNames", path)
    kind, list_kind = names.get("kind") or "", names.get("listKind") or ""
    if kind and kind == list_kind:
        errors.append(invalid_value(f"{path}.listKind", list_kind, "kind and listKind may not be the same"))
    return errors + _each_label(names, "categories", path)


def _each_label(names: Obj, field: str, path: str) -> Errors:
    errors: Errors = []
    for index, value in enumerate(list_of(names.get(field))):
        problems = rules.dns1035_label_problems(value)
        if problems:
            errors.append(invalid_value(f"{path}.{field}[{index}]", value, ",".join(problems)))
    return errors


# --- schema ------------------------------------------------------------------------------------------------------------


def _schema_errors(holder: Any, path: str, status: bool, options: SchemaChecks, structural: bool, unchanged: bool) -> Errors:
    schema = schema_of(holder)
    if schema is None:
        return []
    path = f"{path}.openAPIV3Schema"
    errors = _root_errors(schema, path) if status else []
    if schema.get("nullable"):
        errors.append(forbidden_field(f"{path}.nullable", "nullable cannot be true at the root"))
    context: cel_rules.Context | None = None
    unreadable: Errors = []
    if structural:
        problem = conversion_problem(schema)
        if problem:
            unreadable = [invalid_value(path, "", problem)]
        else:
            found = structural_errors(schema, path) or default_errors(schema, path, options.pruned_defaults)
            errors += found
            context = None if found else cel_rules.Context.root(schema)
    if unchanged:
        options = replace(options, ignore_rule_cost=True)
    errors += schema_rules.schema_errors(schema, path, options, context)
    if not errors:
        errors = unreadable
    return errors + (cel_rules.total_errors(context, path) if context is not None else [])


def _root_errors(schema: Obj, path: str) -> Errors:
    """Errors of the root: with a status subresource, it may hold little besides the properties."""
    allowed = _ALLOWED_AT_ROOT.split()
    for go_name, name in set_fields(schema):
        if name == "type":
            if schema[name] != "object":
                why = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
                return [invalid_value(f"{path}.type", schema[name], why)]
        elif go_name not in allowed:
            why = f"only [{_ALLOWED_AT_ROOT}] fields are allowed at the root of the schema if the status subresource is enabled"
            return [invalid_value(path, shown_schema(schema), why)]
    return []


# --- status and group approval -----------------------------------------------------------------------------------------


def _status_errors(crd: Obj, form: Internal) -> Errors:
    status = dict_of(crd.get("status"))
    errors = _name_errors(dict_of(status.get("acceptedNames")), "status.acceptedNames")
    return errors + stored_version_errors(status.get("storedVersions"), form.versions)


def stored_version_errors(stored: list[Any] | None, versions: list[Obj]) -> Errors:
    """A version that may still be in the store has to stay in the spec."""
    path = "status.storedVersions"
    if not stored:
        return [invalid_value(path, stored, "must have at least one stored version")]
    errors: Errors = []
    left = {name: index for index, name in enumerate(stored)}
    for version in versions:
        name = version.get("name") or ""
        if version.get("storage") and name not in left:
            errors.append(invalid_value(path, stored, f"must have the storage version {name}"))
        left.pop(name, None)
    for name, index in left.items():
        why = (
            f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a "
            f"storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        )
        errors.append(invalid_value(f"{path}[{index}]", name, why))
    return errors


def _approval_errors(crd: Obj, old: Obj | None) -> Errors:
    if not is_protected_group(dict_of(crd.get("spec")).get("group") or ""):
        return []
    state, why = approval_state(crd)
    if old is not None and approval_state(old)[0] == state:
        return []
    path = f"metadata.annotations[{APPROVED_ANNOTATION}]"
    if state == "missing":
        return [required(path, why)]
    if state == "invalid":
        annotations = dict_of(dict_of(crd.get("metadata")).get("annotations"))
        return [invalid_value(path, annotations.get(APPROVED_ANNOTATION, ""), why)]
    return []


def _preserve_errors(crd: Obj, old: Obj | None) -> Errors:
    if old is not None and dict_of(old.get("spec")).get("preserveUnknownFields"):
        return []
    if not dict_of(crd.get("spec")).get("preserveUnknownFields"):
        return []
    why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
    return [invalid_value("spec.preserveUnknownFields", True, why)]


def schemas(form: Internal) -> list[Obj]:
    places = [form.validation, *(version.get("schema") for version in form.versions)]
    return [schema for schema in map(schema_of, places) if schema is not None]


def update_options(form: Internal, old: Obj, before: Internal) -> SchemaChecks:
    old_schemas = schemas(before)
    every = [each for schema in old_schemas for each in every_schema(schema)]
    has_all = schema_of(before.validation) is not None or all(
        schema_of(version.get("schema")) is not None for version in before.versions
    )
    structural = not any(conversion_problem(schema) or structural_errors(schema, "") for schema in old_schemas)
    webhook = dict_of(dict_of(before.spec.get("conversion")).get("webhook"))
    reviews = list_of(webhook.get("conversionReviewVersions"))
    return SchemaChecks(
        immutable_names=is_established(old),
        schema_required=has_all,
        valid_types=not any(each.get("type") and each["type"] not in schema_rules.TYPES for each in every),
        structural=structural,
        pruned_defaults=not structural or not any(_has_unpruned(schema) for schema in old_schemas),
        atomic_sets=not any(schema_rules.atomic_set_errors(each, "") for each in every),
        sound_map_keys=not any(schema_rules.map_key_errors(each, "") for each in every),
        recognised_review_versions=not reviews or any(each in spec_rules.REVIEW_VERSIONS for each in reviews),
        invalid_ca_bundle_ok=spec_rules.invalid_ca_bundle_ok(old),
        too_many_selectable_ok=_too_many_selectable_ok(form, before),
        unchanged_versions=_unchanged_versions(form, before),
    )


def _has_unpruned(schema: Obj) -> bool:
    return any(error.detail == "must not have unknown fields" for error in default_errors(schema, "", True))


def _version_schema(form: Internal, name: str) -> Any:
    if form.validation is not None:
        return form.validation
    return next((version.get("schema") for version in form.versions if version.get("name") == name), None)


def _unchanged_versions(form: Internal, before: Internal) -> frozenset[str]:
    names = {version.get("name") or "" for version in form.versions}
    known = {version.get("name") or "" for version in before.versions}
    return frozenset(name for name in names & known if _version_schema(form, name) == _version_schema(before, name))


def _too_many_selectable_ok(form: Internal, before: Internal) -> frozenset[str]:
    kept: set[str] = set()
    if len(before.selectable) > MAX_SELECTABLE_FIELDS and form.selectable == before.selectable:
        kept.add("")
    old = {version.get("name"): list_of(version.get("selectableFields")) for version in before.versions}
    for version in form.versions:
        fields = old.get(version.get("name")) or []
        if len(fields) > MAX_SELECTABLE_FIELDS and version.get("selectableFields") == fields:
            kept.add(str(version.get("name")))
    return frozenset(kept)
