"""The batch group: jobs and cron jobs."""
