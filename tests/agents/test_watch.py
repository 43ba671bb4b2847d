"""Command line ``hitmac watch``; the page that it writes is tested with the replay."""

import pytest

from hitmac.agents.watch import main


def test_what_is_wrong_is_named_in_one_line(capsys):
    for arguments, words in (
        (["nobody"], "unknown agent 'nobody'"),
        (["--sub-steps-per-second", "0"], "sub-steps-per-second"),
        (["--to", "watch.gif"], "--to is 'watch.gif'; its name must end in .html"),
    ):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2
        assert words in capsys.readouterr().err
