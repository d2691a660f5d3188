"""CEL, the expression language of Kubernetes: validation rules of CRDs, match conditions of webhooks, admission policies.

`programs` compiles an expression: `compiler/` has the steps from text to closures, `library/` the functions. `schema_types`
makes types from OpenAPI schemas, `static_types` and `values` are types and run-time values, `timestamps` their times, `views`
shows objects to expressions. `validation_rules` runs all rules of a schema over an object. Not here: the rules allowed in a CRD
(`crd/cel_rules`), match conditions of webhooks (`admission/match_conditions`). Begin with `programs`, then `compiler/planner`.

    rule = compile_rule("self.replicas <= self.max", schema)
    rule.evaluate({"replicas": 3, "max": 5}, None, Budget())
"""

from __future__ import annotations

from .errors import CelError, CompileError, CostExceeded, EvalError
from .library.kubernetes import Authorizer, AuthorizerValue, Check, Decision
from .programs import (
    MATCH_CONDITION_VARIABLES,
    MATCH_CONDITIONS_BUDGET,
    NAMESPACE,
    POLICY_VARIABLES,
    REQUEST,
    RUNTIME_BUDGET,
    Budget,
    BudgetExceeded,
    CompiledCondition,
    CompiledMessage,
    CompiledRule,
    compile_condition,
    compile_message,
    compile_rule,
)
from .schema_types import SchemaNode, escape, node_for, unescape
from .static_types import (
    AUTHORIZER,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    RESOURCE_CHECK,
    STRING,
    TIMESTAMP,
    CelType,
    list_of,
    map_of,
    optional_of,
    struct,
)
from .validation_rules import RuleTree, compile_schema_rules, unchanged

__all__ = [
    "AUTHORIZER",
    "BOOL",
    "BYTES",
    "DOUBLE",
    "DURATION",
    "DYN",
    "INT",
    "MATCH_CONDITIONS_BUDGET",
    "MATCH_CONDITION_VARIABLES",
    "NAMESPACE",
    "POLICY_VARIABLES",
    "REQUEST",
    "RESOURCE_CHECK",
    "RUNTIME_BUDGET",
    "STRING",
    "TIMESTAMP",
    "Authorizer",
    "AuthorizerValue",
    "Budget",
    "BudgetExceeded",
    "CelError",
    "CelType",
    "Check",
    "CompileError",
    "CompiledCondition",
    "CompiledMessage",
    "CompiledRule",
    "CostExceeded",
    "Decision",
    "EvalError",
    "RuleTree",
    "SchemaNode",
    "compile_condition",
    "compile_message",
    "compile_rule",
    "compile_schema_rules",
    "escape",
    "list_of",
    "map_of",
    "node_for",
    "optional_of",
    "struct",
    "unchanged",
    "unescape",
]
