"""A real browser: Debian's Chromium, driven by Playwright; and axe, which looks for what keeps people from using a view."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright

from tests.real import need

ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
# A busy machine has time: nothing here is about speed.
PATIENCE = 90_000
# Browsers tell of each request that fails; the page asks who is logged in, and some tests take the server away.
_EXPECTED = ("status of 401", "net::ERR_CONNECTION_REFUSED", "WebSocket connection to", "net::ERR_EMPTY_RESPONSE")


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        need.absent("no `chromium` is on PATH (make test-deps installs it)")
    return found


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    program = chromium()
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Visitor:
    """One person at the page. `complaints` is all that the browser finds wrong: errors of scripts, refusals of the policy."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    views: list[str] = field(default_factory=list)

    @classmethod
    async def arrive(cls, browser: Browser, width: int = 1280) -> Visitor:
        context = await browser.new_context(ignore_https_errors=True, viewport={"width": width, "height": 800})
        context.set_default_timeout(PATIENCE)
        visitor = cls(await context.new_page())
        visitor.page.on("pageerror", lambda error: visitor.complaints.append(f"pageerror: {error}"))
        visitor.page.on("console", lambda said: visitor._heard(said.type, said.text))
        return visitor

    def _heard(self, kind: str, text: str) -> None:
        if kind == "error" and not any(part in text for part in _EXPECTED):
            self.complaints.append(text)

    async def check_view(self, name: str) -> None:
        """axe finds nothing wrong with what is shown, in either theme."""
        self.views.append(name)
        for theme in ("light", "dark"):
            await self.page.emulate_media(color_scheme=theme)
            found = (await Axe().run(self.page)).response["violations"]
            told = [(each["id"], each["help"], [node["html"][:200] for node in each["nodes"]][:3]) for each in found]
            assert told == [], f"{name} in the {theme} theme: {told}"
        await self.page.emulate_media(color_scheme="light")
