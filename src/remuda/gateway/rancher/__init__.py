"""The façade for Rancher's own clients: its Dashboard, CLI and Terraform provider.

Steve, the API `/v1`, shows all kinds of the management API in one form: :mod:`.steve` has its routes. Pure parts: :mod:`.kinds`
and :mod:`.schemas` (what there is, and what a caller may do with it), :mod:`.query` and :mod:`.collections` (filter, sort, page),
:mod:`.resources`, :mod:`.resource_state` and :mod:`.relationships` (the form of one object). :mod:`.reading` reads objects and
:mod:`.counts` counts them, always with the caller's own client (:mod:`.requests`). :mod:`.live` has live updates,
:mod:`.own_user` what belongs to the caller alone, :mod:`.login_page` what callers without a credential see, :mod:`.releases` the
versions of distributions, :mod:`.kubeconfig_objects` kubeconfigs. Norman, the older API `/v3`, is in :mod:`.norman`. Not here:
parts of Norman that other modules need, in `auth` and `registration`. Read :mod:`.steve` first. docs/rancher-clients.md says
which clients work.
"""
