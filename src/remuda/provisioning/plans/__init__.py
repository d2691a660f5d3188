"""A plan and the Secret that carries it to a host and its results back.

`plan` is the document, `machine_plan_secret` the Secret's keys and states, `agent_report` the agent's report about
itself.
`plansecret` is the controller that reads results; `host_write_rules` lists a host's allowed writes.
Not here: the content of a plan (`planner.render`).
Read :mod:`.plan` first.
"""
