"""As in `tests/api`, through the proxy."""

from tests.api.test_kubectl_write import *  # noqa: F403
