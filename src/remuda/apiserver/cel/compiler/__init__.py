"""From CEL source to closures: lexer, parser, macros, checker, cost estimate, planner.

`..programs` calls them in this order: `parser`, `checker`, `literals`, `cost_estimate`, `planner`.
Functions that an expression may call are `../library/`; values at run time are `..values` and `..views`.
Begin with `syntax_tree`, then `planner`.
"""
