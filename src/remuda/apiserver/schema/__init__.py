"""Structural schemas: decode, default and validate objects as kube-apiserver does, from a CRD's OpenAPI schema."""

from __future__ import annotations

from .cleaning import DecodeError
from .compiler import CompiledSchema, compile_schema
from .ratchet import Correlated

__all__ = ["CompiledSchema", "Correlated", "DecodeError", "compile_schema"]
