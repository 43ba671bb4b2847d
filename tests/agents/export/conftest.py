import pytest

from tests.agents.export.made import ZOOMS, exported, hierarchy


@pytest.fixture(scope="session")
def flat(tmp_path_factory):
    """Folder of an exported policy."""
    to = tmp_path_factory.mktemp("exported") / "flat"
    exported("pretrained:flat", to)
    return to


@pytest.fixture(scope="session")
def both_levels(tmp_path_factory):
    """Folder of an exported hierarchy, whose executor was trained to zoom and move too."""
    to = tmp_path_factory.mktemp("exported") / "both"
    exported(hierarchy(trained_on=ZOOMS), to, "hit-mac")
    return to
