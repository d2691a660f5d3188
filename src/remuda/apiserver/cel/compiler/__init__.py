"""From CEL source to closures: lexer, parser, macros, checker, cost estimate, planner.

`..programs` calls them in this order: `parser`, `checker`, `literals`, `cost_estimate`, `planner`.
Not here: functions that an expression may call (`../library/`), values at run time (`..values`, `..views`).
Begin with `syntax_tree`, then `planner`.
"""
