"""Attention, and the tabs of a cluster that show and change machines and snapshots: as the server explains and permits them."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.access.harness import CLUSTERS, Gateway

from .browser import PATIENCE, Visitor
from .test_story import custom

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

expect.set_options(timeout=PATIENCE)

PASSWORD = "a password for tests"


async def arrive(gateway: Gateway, browser: Browser) -> Visitor:
    await asyncio.to_thread(gateway.user, "rider", "admin", password=PASSWORD)
    visitor = await Visitor.arrive(browser)
    await visitor.page.goto(f"{gateway.url}/dashboard/")
    await visitor.page.get_by_label("User name").fill("rider")
    await visitor.page.get_by_label("Password").fill(PASSWORD)
    await visitor.page.get_by_role("button", name="Log in").click()
    return visitor


async def test_a_cluster_without_hosts_is_a_problem_with_its_command(gateway: Gateway, browser: Browser) -> None:
    visitor = await arrive(gateway, browser)
    page = visitor.page
    await expect(page.get_by_test_id("summary")).to_contain_text("1 cluster")
    await visitor.check_view("attention, with nothing to do")

    for name in ("ranch", "meadow"):
        await asyncio.to_thread(gateway.made, CLUSTERS, custom(name))
    card = page.get_by_test_id("problem-card").filter(has_text="Roles")
    await expect(card).to_have_count(1)
    await expect(card.get_by_test_id("case")).to_have_count(2)
    await expect(card).to_contain_text("remuda cluster registration-command ranch -n fleet-default")
    await visitor.check_view("attention, with a problem")

    # The same cluster by itself, and its other tabs while there is nothing in them.
    await card.get_by_role("link", name="ranch").click()
    await expect(page.get_by_test_id("why")).to_contain_text("To do:")
    await expect(page.get_by_test_id("wait").first).to_contain_text("ranch")
    await visitor.check_view("now, with what it waits for")
    await page.get_by_test_id("tab-machines").click()
    await expect(page.get_by_test_id("empty")).to_contain_text("No machine yet")
    await visitor.check_view("machines, without any")
    await page.get_by_test_id("tab-snapshots").click()
    await expect(page.get_by_test_id("empty")).to_contain_text("There are no snapshots")
    await visitor.check_view("snapshots, without any")
    await page.get_by_test_id("take").click()
    dialog = page.get_by_test_id("confirm")
    await visitor.check_view("a question")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(dialog).to_have_count(0)
    declared = await asyncio.to_thread(lambda: gateway.endpoint.request("GET", f"{CLUSTERS}/ranch").json)
    assert "etcdSnapshotCreate" not in declared["spec"]["rkeConfig"]
    await page.get_by_test_id("tab-access").click()
    async with page.expect_download() as loaded:
        await page.get_by_test_id("kubeconfig").click()
    assert (await loaded.value).suggested_filename == "ranch.yaml"
    await visitor.check_view("access")

    # Lists of all clusters.
    await page.get_by_role("navigation", name="Main navigation").get_by_role("link", name="Machines").click()
    await expect(page.get_by_test_id("empty")).to_contain_text("There are no Machines")
    await visitor.check_view("machines of all clusters, without any")
    assert visitor.complaints == []
