"""As in `tests/api`, through the proxy."""

from tests.api.test_kubectl_discover import *  # noqa: F403
