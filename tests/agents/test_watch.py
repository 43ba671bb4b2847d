"""``hitmac watch``; its page is tested with the replay."""

from hitmac.agents.deploy.watch import main


def test_the_page_is_written_and_opened_on_a_display(tmp_path, monkeypatch, capsys):
    opened, path = [], tmp_path / "watch.html"
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("sys.platform", "linux")
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    main(["still", "nearest,", "--sub-steps", "5", "--seed", "3", "--to", str(path)])
    assert capsys.readouterr().out == f"{path}: still, nearest; {path.stat().st_size / 1000:.0f} kB\n"
    assert '"speed":20.0' in path.read_text()
    assert "<title>hit-mac, seed 3</title>" in path.read_text()
    assert path.read_text().count('"frames":6,"sensors":4') == 2
    assert not opened
    monkeypatch.setenv("DISPLAY", ":0")
    main(["--agents", "still", "--sub-steps", "5", "--no-open", "--to", str(path)])
    assert not opened
    main(["still", "--sub-steps", "5", "--to", str(path)])
    assert opened == [path.as_uri()]


def test_wrong_options_are_named(error_of):
    assert "sub-steps-per-second" in error_of(main, "--sub-steps-per-second", "0")
    assert "--to is 'watch.gif'; its name must end in .html" in error_of(main, "--to", "watch.gif")
