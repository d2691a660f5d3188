"""Conversion between v1beta1, which old clients speak, and v1beta2, which is stored: pure functions on plain objects.

:mod:`.kind_rules` has `convert` and maps the fields, :mod:`.field_rules` has the rules, and :mod:`.v1beta1` and
:mod:`.v1beta2` the structs of each side. Not here: the types (`api/cluster_x_k8s_io`), the webhook (`runtime`).
Read :mod:`.kind_rules` first.
"""

from __future__ import annotations

from .field_rules import ContractVersions
from .kind_rules import DATA_ANNOTATION, V1BETA1, V1BETA2, convert, converter

__all__ = ["DATA_ANNOTATION", "V1BETA1", "V1BETA2", "ContractVersions", "convert", "converter"]
