"""NodeDriver: one kind of place where machines come from; DynamicSchema: the fields that such a kind has
(docs/reference/machines.md)."""

from __future__ import annotations

from typing import Annotated, TypedDict

from ..cattle import Condition, Text
from ..schema import Doc, Object


class NodeDriverSpec(TypedDict, total=False):
    """The source of the driver, and whether it may be used."""

    active: Annotated[bool, Doc("Machine pools can be made with it. Its kinds go when it is not active and nothing uses them.")]
    addCloudCredential: Annotated[bool, Doc("Cloud credentials can be made for it, also while it is not active.")]
    builtin: Annotated[bool, Doc("It came with the server.")]
    checksum: Annotated[Text, Doc("The SHA-256 of what `url` gives; required for everything that is downloaded.")]
    description: Annotated[Text, Doc("Its purpose.")]
    displayName: Annotated[Text, Doc("The driver's own name, of which the names of its kinds are made.")]
    externalId: Annotated[Text, Doc("The origin of the driver, for the administration of many.")]
    uiUrl: Annotated[Text, Doc("The URL of the form for its options.")]
    url: Annotated[Text, Doc("local:// for one that the server has; else an https address that it is downloaded from.")]
    whitelistDomains: Annotated[list[str] | None, Doc("Hosts that a page may ask through the server.")]


class NodeDriverStatus(TypedDict, total=False):
    """The observed state."""

    appliedChecksum: Annotated[Text, Doc("The checksum that its fields were last read for.")]
    appliedDockerMachineVersion: Annotated[Text, Doc("The version of the program that its fields were last read from.")]
    appliedURL: Annotated[Text, Doc("The address that its fields were last read for.")]
    conditions: Annotated[list[Condition] | None, Doc("Downloaded, Installed, Active, Inactive.")]


class NodeDriver(Object, total=False):
    """One kind of place where machines come from."""

    spec: NodeDriverSpec
    status: NodeDriverStatus


class Values(TypedDict, total=False):
    """A default; which of these counts follows from the field's type."""

    boolValue: Annotated[bool, Doc("For a boolean.")]
    intValue: Annotated[int, Doc("For an int.")]
    stringSliceValue: Annotated[list[str] | None, Doc("For an array[string].")]
    stringValue: Annotated[str, Doc("For a string or a password.")]


class Field(TypedDict, total=False):
    """One field of a schema."""

    create: Annotated[bool, Doc("It can be said when an object is made.")]
    default: Annotated[Values, Doc("The default.")]
    description: Annotated[Text, Doc("Its purpose.")]
    dynamicField: Annotated[bool, Doc("It came with a driver.")]
    invalidChars: Annotated[Text, Doc("Characters that must not be in it.")]
    max: Annotated[int, Doc("The largest number.")]
    maxLength: Annotated[int, Doc("The maximum length.")]
    min: Annotated[int, Doc("The smallest number.")]
    minLength: Annotated[int, Doc("The minimum length.")]
    nullable: Annotated[bool, Doc("It may be null.")]
    options: Annotated[list[str] | None, Doc("The allowed values.")]
    required: Annotated[bool, Doc("It must be said.")]
    type: Annotated[Text, Doc("string, password, boolean, int, array[string], …, or the name of another schema.")]
    unique: Annotated[bool, Doc("No two objects have the same.")]
    update: Annotated[bool, Doc("It can be changed.")]
    validChars: Annotated[Text, Doc("Characters that alone may be in it.")]


class Action(TypedDict, total=False):
    """Something that can be done with an object."""

    input: Annotated[Text, Doc("The schema of what it takes.")]
    output: Annotated[Text, Doc("The schema of what it gives.")]


class Filter(TypedDict, total=False):
    """The filters of a list for one field."""

    modifiers: Annotated[list[str] | None, Doc("Ways to compare.")]


class DynamicSchemaSpec(TypedDict, total=False):
    """The names of the schema, its fields and its actions."""

    collectionActions: Annotated[dict[str, Action] | None, Doc("The actions on a list.")]
    collectionFields: Annotated[dict[str, Field] | None, Doc("The fields of a list besides its items.")]
    collectionFilters: Annotated[dict[str, Filter] | None, Doc("The filters of a list.")]
    collectionMethods: Annotated[list[str] | None, Doc("HTTP methods for a list.")]
    dynamicSchemaVersion: Annotated[Text, Doc("The version of the program that the fields were read from.")]
    embed: Annotated[bool, Doc("Its fields are added to those of another schema.")]
    embedType: Annotated[Text, Doc("That other schema.")]
    includeableLinks: Annotated[list[str] | None, Doc("The objects that can be included with an object.")]
    pluralName: Annotated[Text, Doc("The plural name.")]
    resourceActions: Annotated[dict[str, Action] | None, Doc("The actions on an object.")]
    resourceFields: Annotated[dict[str, Field] | None, Doc("The fields of an object, by name.")]
    resourceMethods: Annotated[list[str] | None, Doc("HTTP methods for an object.")]
    schemaName: Annotated[Text, Doc("Its name, where that differs from the object's.")]


class DynamicSchemaStatus(TypedDict, total=False):
    """Nothing; it is there because Rancher has it."""

    fake: Annotated[Text, Doc("Not used.")]


class DynamicSchema(Object, total=False):
    """The fields of a kind that is made while the server runs."""

    spec: DynamicSchemaSpec
    status: DynamicSchemaStatus
