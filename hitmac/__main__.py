"""Command line ``hitmac``, the same as ``python -m hitmac``."""

import difflib
import importlib
import sys
from pathlib import Path

from hitmac import __version__
from hitmac.signals import end_on_signal

COMMANDS = {
    "train": ("hitmac.train", "train a policy, or HiT-MAC's two levels, and evaluate it"),
    "evaluate": ("hitmac.agents.evaluate.command", "compare agents on the same new episodes: tables and figures"),
    "benchmark": ("hitmac.agents.evaluate.benchmark", "evaluate an agent on a frozen suite of scenes; compare results"),
    "watch": ("hitmac.agents.deploy.watch", "watch agents play an episode, on a page in the browser"),
    "export": ("hitmac.agents.deploy.export.folder", "write a learned policy as ONNX, with a runner without torch"),
    "run": ("hitmac.agents.deploy.run.command", "turn real cameras: from detections to orders"),
    "scenarios": ("hitmac.agents.scenarios", "list the scenarios; show, film or draw one"),
    "site": ("hitmac.agents.deploy.site.command", "make a site from a plan, cameras and recordings; check it"),
}
"""Module and description of each command."""

ROOT = Path(__file__).resolve().parents[1]
if (ROOT / "tools" / "publish.py").is_file():  # in a checkout
    COMMANDS["pretrained"] = "tools.publish", "add the policy of a run to the pretrained ones"


def main() -> None:
    """Run the command named by the first argument with the other arguments."""
    name, *rest = sys.argv[1:] or ["--help"]
    with end_on_signal(f"hitmac {name}"):
        if name in ("-h", "--help"):
            print("usage: hitmac COMMAND [OPTIONS]\n\ncommands (hitmac COMMAND --help explains its options)")
            print("\n".join(f"  {command:<10}  {about}" for command, (_, about) in COMMANDS.items()))
        elif name == "--version":
            print(f"hitmac {__version__}")
        elif name in COMMANDS:
            sys.argv, module = [f"hitmac {name}", *rest], COMMANDS[name][0]
            if module.startswith("tools."):
                sys.path.insert(0, str(ROOT))
            importlib.import_module(module).main()
        else:
            hint = "".join(f" (did you mean {near}?)" for near in difflib.get_close_matches(name, COMMANDS, n=1))
            print(f"hitmac: error: unknown command {name!r}{hint}: known are {', '.join(COMMANDS)}", file=sys.stderr)
            sys.exit(2)


if __name__ == "__main__":
    main()
