"""Commands that are refused."""

import pytest


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
