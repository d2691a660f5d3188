"""What a change would do to the machines of clusters, before it is made: `remuda plan` (docs/plan.md).

:mod:`.engine` does it in four steps: :mod:`.cluster_copy` reads the affected clusters (:mod:`.scope`) at one revision through
any `Client`; :mod:`.rehearsed` loads them into a server in memory, where the real controllers run before simulated hosts on a
virtual clock; :mod:`.changes` makes the change there, as the caller, through the real admission; :mod:`.outcomes` reads in the
records of two rehearsals, one with the change and one without, what happens to each machine, and :mod:`.over_budget` names
those that change budgets hold. The last two are pure, and so is :mod:`.result`.

Nothing here writes to the real server, runs a Job or connects to any place but the given client. Not here: the command and its
table (`cli/commands/plan`, `cli/views/change_plan`), plans of machines (`provisioning/planner`). Read :mod:`.engine` first.
"""
