"""Ratcheting: an update of a CRD may keep errors that were there before a rule was added."""

from __future__ import annotations

from typing import Any

from . import schema_rules, spec_rules
from .conditions import is_established
from .default_rules import default_errors
from .internal_version import Internal, Obj, dict_of, list_of, schema_of
from .schema_rules import Options
from .spec_rules import MAX_SELECTABLE_FIELDS
from .structural import conversion_problem, every_schema, structural_errors


def schemas(form: Internal) -> list[Obj]:
    places = [form.validation, *(version.get("schema") for version in form.versions)]
    return [schema for schema in map(schema_of, places) if schema is not None]


def update_options(form: Internal, old: Obj, before: Internal) -> Options:
    old_schemas = schemas(before)
    every = [each for schema in old_schemas for each in every_schema(schema)]
    has_all = schema_of(before.validation) is not None or all(
        schema_of(version.get("schema")) is not None for version in before.versions
    )
    structural = not any(conversion_problem(schema) or structural_errors(schema, "") for schema in old_schemas)
    webhook = dict_of(dict_of(before.spec.get("conversion")).get("webhook"))
    reviews = list_of(webhook.get("conversionReviewVersions"))
    return Options(
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
