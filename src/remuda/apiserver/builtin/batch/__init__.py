"""The batch group: jobs and cron jobs.

Defaults, validation and columns. Not here: the controller of jobs (`kcm/workloads/job`). Begin with `job`.
"""
