import pytest

from hitmac.agents.export import export_agent
from tests.agents.export.made import ZOOMS, hierarchy


@pytest.fixture(scope="session")
def flat(tmp_path_factory):
    """Folder of an exported policy."""
    to = tmp_path_factory.mktemp("exported") / "flat"
    export_agent("pretrained:flat", to)
    return to


@pytest.fixture(scope="session")
def both_levels(tmp_path_factory):
    """Folder of an exported hierarchy, whose executor was trained to zoom and move too."""
    to = tmp_path_factory.mktemp("exported") / "both"
    export_agent(hierarchy(trained_on=ZOOMS), to, "hit-mac")
    return to
