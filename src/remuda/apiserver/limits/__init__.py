"""Limits on what a caller or an object may use: places and bytes (`caller_caps`), turns (`flow_control`), work (`cost_budget`).

Connections are limited in `http/connection_limits`, logins in `gateway/server/rate_limit`; the cost of CEL is
`cel/compiler/cost_estimate`.
Begin with `flow_control`.
"""
