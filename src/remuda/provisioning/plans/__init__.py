"""A plan and the Secret that carries it to a host and its results back.

`plan` is the document, `machine_plan_secret` the Secret's keys and states, `agent_report` what the agent says of
itself.
`plansecret` is the controller that reads results; `host_write_rules` lists what a host may write.
Not here: what goes into a plan (`planner.render`).
Read :mod:`.plan` first.
"""
