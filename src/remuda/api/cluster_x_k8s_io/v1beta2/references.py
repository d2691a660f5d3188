"""How v1beta2 names other objects (without a version: contract labels of their CRDs tell it), and labels those it makes."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...kubernetes import API_VERSION, KIND_NAME
from ...schema import AtLeast, Doc, Int32, Length, MinProperties, Pattern, rules
from ..shared_types import Subdomain, TemplateLabels

_Kind = Annotated[str, Doc("The kind of the object."), Length(1, 63), Pattern(KIND_NAME)]
_Name = Annotated[Subdomain, Doc("The name of the object.")]
Seconds = Annotated[Int32, AtLeast(0)]


class Reference(TypedDict, total=False):
    """An object in the same namespace; its version follows from the contract labels of its CRD."""

    apiGroup: Required[Annotated[Subdomain, Doc("The API group of the object.")]]
    kind: Required[_Kind]
    name: Required[_Name]


class TemplateReference(TypedDict, total=False):
    """A template in the same namespace."""

    apiVersion: Required[Annotated[str, Doc("The template's group and version."), Length(1, 317), Pattern(API_VERSION)]]
    kind: Required[_Kind]
    name: Required[_Name]


@rules(MinProperties(1))
class ObjectMeta(TemplateLabels, total=False):
    """Labels and annotations for what is made from this."""
