"""Structural schemas: decode, default and validate objects as kube-apiserver does, from a CRD's OpenAPI schema."""

from __future__ import annotations

from .compiler import CompiledSchema, compile_schema
from .correlated_values import Correlated
from .pruning import DecodeError

__all__ = ["CompiledSchema", "Correlated", "DecodeError", "compile_schema"]
