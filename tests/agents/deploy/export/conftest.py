import runpy
import sys
from types import SimpleNamespace

import onnxruntime
import pytest
import torch

from hitmac.agents.deploy.export import export_agent
from hitmac.agents.deploy.export import folder as export_folder
from hitmac.agents.deploy.export.networks import parts_of


@pytest.fixture
def card_alone(monkeypatch):
    """Write the card in place of the networks, which takes no time."""
    monkeypatch.setattr(export_folder, "_write", lambda part, path, card: path.write_text(card))


@pytest.fixture
def runner_of(card_alone, tmp_path, monkeypatch):
    """Loads run.py of an agent exported for a scenario; its sessions run the networks by torch."""

    class Session:
        def __init__(self, path, options):
            self.network = networks[path.name]

        @torch.no_grad()
        def run(self, names, inputs):
            return [out.numpy() for out in self.network(*map(torch.as_tensor, inputs.values()))]

    def load(agent, scenario):
        networks.update({f"{part.name}.onnx": part.network.eval() for part in parts_of(agent, scenario)[0]})
        export_agent(agent, tmp_path / "made", scenario, replace=True)
        monkeypatch.syspath_prepend(tmp_path / "made")
        monkeypatch.delitem(sys.modules, "observe", raising=False)
        return SimpleNamespace(**runpy.run_path(str(tmp_path / "made" / "run.py")))

    networks = {}
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    return load
