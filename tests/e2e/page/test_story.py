"""The page from the first visit to the last, in a real browser on a real server: what is seen is what the server has, at once."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e.access.harness import CLUSTERS, PASSWORD, Gateway, Obj

from .browser import PATIENCE, Visitor

pytestmark = [pytest.mark.real, pytest.mark.story, pytest.mark.timeout(900)]

expect.set_options(timeout=PATIENCE)

NEW = f"{PASSWORD} indeed"


def custom(name: str) -> Obj:
    """A cluster that waits for its hosts."""
    spec = {"kubernetesVersion": "v1.34.1+remuda1", "rkeConfig": {}}
    return {"kind": "Cluster", "metadata": {"name": name, "namespace": "fleet-default"}, "spec": spec}


async def log_in(page: Page, password: str) -> None:
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Log in").click()


async def test_from_the_first_login_to_a_machine_and_through_a_restart(gateway: Gateway, browser: Browser) -> None:
    visitor = await Visitor.arrive(browser)
    page = visitor.page

    # The first visit: a wrong password, the first one, and a new one.
    await page.goto(f"{gateway.url}/")
    await expect(page).to_have_url(f"{gateway.url}/dashboard/")
    await log_in(page, "wrong")
    await expect(page.get_by_test_id("wrong")).to_be_visible()
    await visitor.check_view("login")
    await log_in(page, PASSWORD)
    await page.get_by_label("Current password").fill(PASSWORD)
    await page.get_by_label("New password", exact=True).fill(NEW)
    await page.get_by_label("once more").fill(NEW)
    await visitor.check_view("password")
    await page.get_by_role("button", name="Set the password").click()

    # A cluster that somebody declares appears without a reload; filter and sorting are in the address.
    await expect(page.get_by_test_id("summary")).to_contain_text("1 cluster")
    await page.get_by_role("navigation", name="Main navigation").get_by_role("link", name="Clusters").click()
    rows = page.get_by_test_id("row")
    await expect(rows).to_have_count(1)
    await asyncio.to_thread(gateway.made, CLUSTERS, custom("ranch"))
    await expect(rows).to_have_count(2)
    await expect(rows.filter(has_text="ranch")).to_contain_text("v1.34.1+remuda1")
    await page.get_by_role("button", name="Age").click()
    await page.get_by_test_id("filter").fill("ran")
    await expect(rows).to_have_count(1)
    await expect(page).to_have_url(re.compile(r"\?(?=.*sort=age)(?=.*filter=ran)"))
    await page.reload()
    await expect(rows).to_have_count(1)
    await visitor.check_view("clusters")

    # Its command, and a host that uses it.
    await page.get_by_role("link", name="ranch").click()
    await expect(page.get_by_test_id("operation")).to_contain_text("waiting for at least one")
    await visitor.check_view("now, without machines")
    await page.get_by_test_id("tab-register").click()
    await page.get_by_test_id("role-worker").uncheck()
    command = page.get_by_test_id("command")
    await expect(command).to_contain_text("--etcd --controlplane")
    await visitor.check_view("register")
    said = await command.inner_text()
    token = re.search(r"--token (\S+)", said)
    assert token and "--worker" not in said, said
    await page.get_by_test_id("tab-now").click()
    headers = {"X_Cattle_Role_Etcd": "true", "X_Cattle_Role_Control_Plane": "true", "X_Cattle_Node_Name": "pony"}
    asked = gateway.nobody().request
    answer = await asyncio.to_thread(
        asked, "GET", "/v3/connect/agent", Authorization=f"Bearer {token[1]}", X_Cattle_Id="1a2b3c4d5e6f" * 5, **headers
    )
    assert answer.status == 200, (answer.status, answer.body)
    machine = page.get_by_test_id("machine")
    await expect(machine).to_have_count(1)
    await expect(machine).to_contain_text("etcd, control plane")
    await visitor.check_view("now, with a machine")
    await page.get_by_test_id("tab-related").click()
    await expect(page.get_by_role("cell", name="management.cattle.io.cluster")).to_be_visible()
    await visitor.check_view("related")

    # The server goes away: what is shown stays, and says how old it is. It comes back: the page catches up by itself.
    await page.get_by_test_id("tab-now").click()
    await expect(machine).to_have_count(1)
    assert await asyncio.to_thread(gateway.stop) == 0
    await expect(page.get_by_test_id("stale")).to_contain_text("lost")
    await expect(machine).to_have_count(1)
    await visitor.check_view("stale")
    await asyncio.to_thread(gateway.start)
    await expect(page.get_by_test_id("stale")).to_have_count(0)
    await asyncio.to_thread(gateway.made, CLUSTERS, custom("meadow"))
    await page.get_by_role("navigation", name="Main navigation").get_by_role("link", name="Clusters").click()
    await expect(rows.filter(has_text="meadow")).to_have_count(1)

    # An address that leads nowhere, and the end.
    await page.goto(f"{gateway.url}/dashboard/clusters/fleet-default/nothing/now")
    await expect(page.get_by_test_id("problem")).to_contain_text("This does not exist")
    await visitor.check_view("missing")
    await page.get_by_test_id("logout").click()
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    await log_in(page, NEW)
    await expect(page.get_by_test_id("problem")).to_be_visible()
    cookies = {each["name"]: each for each in await page.context.cookies()}
    assert cookies["R_SESS"]["httpOnly"] and cookies["R_SESS"]["secure"] and cookies["R_SESS"]["sameSite"] == "Strict"
    assert await page.evaluate("Object.keys(localStorage).length + Object.keys(sessionStorage).length") == 0
    assert [each for each in visitor.complaints if "404" not in each] == []
