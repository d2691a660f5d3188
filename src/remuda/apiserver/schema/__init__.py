"""Structural schemas: decode, default and validate objects as kube-apiserver does, from a CRD's OpenAPI schema.

`node` is the parsed schema, `compiler` the entry; `pruning` (with defaults), `validation` and `list_types` do the steps.
Not here: whether a definition may have such a schema (`crd/`), schemas of built-in kinds (`scheme/`).
Begin with `compiler`.
"""

from __future__ import annotations

from .compiler import CompiledSchema, compile_schema
from .correlated_values import Correlated
from .pruning import DecodeError

__all__ = ["CompiledSchema", "Correlated", "DecodeError", "compile_schema"]
