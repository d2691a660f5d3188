"""As in `tests/api`, through the proxy."""

from tests.api.test_kubectl_custom import *  # noqa: F403
