"""As in `tests/api`, through the proxy."""

from tests.api.test_kubectl_access import *  # noqa: F403
