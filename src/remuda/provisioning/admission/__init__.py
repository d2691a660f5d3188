"""Admission of clusters.provisioning.cattle.io and the objects made from them: defaults and refusals.

One module per subject: clusters, provider objects, machine pools, versions, machines that must stay, change budgets, references.
All are functions of one write; `app.admission` registers them.
Not here: rules of node drivers and machine configs (`machines.admission`).
Read :mod:`.clusters`, then :mod:`.provider_objects`.
"""
