"""Limits on what a caller or an object may use: places and bytes (`caller_caps`), turns (`flow_control`), work (`cost_budget`).

Not here: limits of connections (`http/connection_limits`) and logins (`gateway/server/rate_limit`), the cost of CEL
(`cel/compiler/cost_estimate`).
Begin with `flow_control`.
"""
