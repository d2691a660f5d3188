"""The batch group: jobs and cron jobs.

Defaults, validation and columns only; the job controller is `kcm/workloads/job`. Begin with `job`.
"""
