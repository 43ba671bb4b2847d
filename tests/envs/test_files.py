"""Files: written whole or not at all, errors that name them, and YAML in one line."""

import os

import pytest

from hitmac.envs.files import check_output, dump_yaml, parse_yaml, whole_file, working_folder, write_text


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), whole_file(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_flushed_by_a_handle_that_may_write(tmp_path, monkeypatch):
    """Windows refuses others."""
    monkeypatch.setattr(os, "fsync", lambda file: os.write(file, b""))
    write_text(tmp_path / "file.txt", "text")
    assert (tmp_path / "file.txt").read_text() == "text"


def test_links_and_permissions_stay(tmp_path):
    real, link, usual, own = (tmp_path / name for name in ("real.txt", "link.txt", "usual", "own"))
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_text(link, "new")
    assert (link.is_symlink(), real.read_text()) == (True, "new")
    usual.touch()
    with whole_file(own) as temporary:
        temporary.chmod(0o600)  # as some writers do
    assert [path.stat().st_mode & 0o777 for path in (real, own)] == [0o640, usual.stat().st_mode & 0o777]
    assert sorted(tmp_path.iterdir()) == sorted((real, link, usual, own))


def test_errors_name_the_file_that_was_asked_for(tmp_path, monkeypatch):
    path = tmp_path / "absent" / "file.txt"
    with pytest.raises(FileNotFoundError) as raised:
        write_text(path, "text")
    assert str(raised.value) == f"[Errno 2] No such file or directory: '{path}'"

    def fails(source, target):
        raise PermissionError(13, "Permission denied", str(source), None, str(target))

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(PermissionError) as raised:
        write_text(tmp_path / "file.txt", "text")
    assert str(raised.value) == f"[Errno 13] Permission denied: '{tmp_path / 'file.txt'}'"
    assert not list(tmp_path.iterdir())


def test_a_working_folder_is_empty_and_beside_its_path(tmp_path):
    folder = working_folder(tmp_path / "runs" / "one")
    (folder / "left").touch()
    assert working_folder(tmp_path / "runs" / "one") == folder
    assert not list(folder.iterdir())
    assert folder.parent == tmp_path / "runs"
    (tmp_path / "plain").touch()
    with pytest.raises(NotADirectoryError, match=r"plain is a file, so that .*plain/run cannot be made"):
        working_folder(tmp_path / "plain" / "run")


def test_yaml_is_read_without_surprises():
    assert parse_yaml("") is None
    numbers = "[1e3, 1.5e3, -2E-3, .5e+1, 7.e0]"
    assert parse_yaml(numbers) == [1000, 1500, -0.002, 5, 7]
    texts = ["1e3", "1.5e-3", "e3", "1e", "5e12:30", "12e4a", "run-1e3"]
    assert parse_yaml(dump_yaml(texts)) == texts
    assert parse_yaml(dump_yaml([1e-5, 1e22, 1e3])) == [1e-5, 1e22, 1000]
    assert parse_yaml("a: &a [1, 2]\nb: [*a, *a]\nc: &c {x: 1}\nd: {<<: *c, y: 2}") == {
        "a": [1, 2], "b": [[1, 2], [1, 2]], "c": {"x": 1}, "d": {"x": 1, "y": 2},
    }  # fmt: skip
    for text, says in (
        ("a: 1\nb: [\n2\n", "^line 4: expected .* flow sequence, from line 2$"), ("a: 2020-13-45", "month"),
        ("!!python/name:os.system", "could not determine"),
        ("a: {x: 1, x: 2}", "^line 1: key 'x' is given twice$"), ("[" * 1_000, "recursion"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=says) as raised:
            parse_yaml(text)
        assert "\n" not in str(raised.value)


def test_an_output_that_cannot_be_made_is_refused_before_the_work(tmp_path):
    check_output("--to", tmp_path / "a.PNG", ".png")
    check_output("--json", tmp_path / "any")
    with pytest.raises(ValueError, match=r"--to is 'a.jpg'; its name must end in .png or .gif"):
        check_output("--to", "a.jpg", ".png", ".gif")
    with pytest.raises(FileNotFoundError, match=r"--json is .*; there is no folder .*nodir"):
        check_output("--json", tmp_path / "nodir/o.json")
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        check_output("--json", tmp_path / "file/o.json")
