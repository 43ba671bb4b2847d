"""Page of a logged run."""

import json

import numpy as np

from hitmac.agents.evaluate.logs import read_log
from hitmac.agents.replay.logged import record_log
from hitmac.agents.watch import main
from tests.agents.evaluate.test_logs import header, step, written
from tests.agents.replay.made import unpacked


def test_the_record_of_a_log_has_its_tracks_and_cameras(tmp_path):
    two = [[100.0, -50.0, 4.0, 1.0, 9.0, 0.9, 7.0], [-500.0, 0.0, 2500.0, 0.0, 2500.0, 0.25, 9.0]]
    lines = [
        header(),
        step(0),
        step(1, tracks=two, detections=[[1, 99.0, 0.0]]),
        step(2, tracks=[], heading=[None, 90]),
    ]
    record = record_log(read_log(written(tmp_path / "run.jsonl", lines)))
    assert (record["agent"], record["frames"], record["sensors"], record["targets"]) == ("still", 3, 2, 0)
    found = {name: unpacked(packed) for name, packed in record["tracks"].items()}
    assert found["tracks"].ravel().tolist() == [1, 2, 0]
    np.testing.assert_allclose(found["track y"], [[0, 0], [-50, 0], [0, 0]], atol=0.02)
    np.testing.assert_allclose(found["track yy"], [[4, 0], [9, 2500], [0, 0]], atol=0.05)
    np.testing.assert_allclose(found["track existence"], [[0.9, 0], [0.9, 0.25], [0, 0]], atol=1e-4)
    assert found["detections"].ravel().tolist() == [0, 1, 0]
    np.testing.assert_allclose(found["detection x"].ravel(), [0, 99, 0], atol=0.02)
    assert found["working"].tolist() == [[1, 1], [1, 1], [0, 1]]
    assert found["turned"].ravel().tolist() == [1]
    np.testing.assert_allclose(found["coverage"].ravel(), 0.5, atol=1e-4)


def test_watch_shows_a_log(tmp_path, capsys):
    log, page = written(tmp_path / "run.jsonl", [header(), step(0), step(1)]), tmp_path / "run.html"
    main([str(log), "--no-open", "--to", str(page)])
    assert capsys.readouterr().out == f"{page}: still; {page.stat().st_size / 1000:.0f} kB\n"
    assert json.dumps("track xx") in page.read_text()
