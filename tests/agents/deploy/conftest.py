"""A browser for the tests of pages, and an exported policy."""

import shutil

import pytest

from tests.agents.deploy.export.made import exported
from tests.agents.deploy.replay.browser import Browser


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    if not shutil.which("chromium"):
        pytest.skip("chromium is not installed")
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture
def browser(chromium):
    """A browser whose page must make no error, and ask for nothing but what is under its own address."""
    chromium.errors.clear()
    chromium.requests.clear()
    yield chromium
    address = chromium.opened
    chromium.open("about:blank")
    assert chromium.errors == []
    assert all(one.startswith((address, "data:", "about:", "blob:")) for one in chromium.requests)


@pytest.fixture(scope="session")
def flat(tmp_path_factory):
    """Folder of an exported policy."""
    to = tmp_path_factory.mktemp("exported") / "flat"
    exported("pretrained:flat", to)
    return to
