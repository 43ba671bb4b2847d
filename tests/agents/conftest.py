"""A browser for the tests of pages."""

import shutil

import pytest

from tests.agents.deploy.replay.browser import Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if not shutil.which("chromium"):
        pytest.skip("chromium is not installed")
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
