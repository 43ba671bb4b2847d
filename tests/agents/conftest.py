"""A browser for the tests of pages, and commands that are refused."""

import shutil

import pytest

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


@pytest.fixture
def error_of(tmp_path, monkeypatch, capsys):
    """Runs a command that is refused, in one line and before it writes a file; returns the line."""
    monkeypatch.chdir(tmp_path)

    def run(main, *arguments):
        files = sorted(tmp_path.rglob("*"))
        with pytest.raises(SystemExit) as end:
            main([*map(str, arguments)])
        (line,) = capsys.readouterr().err.splitlines()
        assert (end.value.code, sorted(tmp_path.rglob("*"))) == (2, files)
        return line

    return run
