"""Command line ``hitmac export``: a learned policy as ONNX or a ``torch.export`` program, with a runner."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hitmac.agents.command_line import stop_on_bad_input
from hitmac.agents.export.folder import export_agent
from hitmac.signals import end_on_signal

PROGRAM = "hitmac export"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Export a learned policy, to run where neither torch nor hitmac is."
    )
    parser.add_argument("agent", help="directory of a run or checkpoint, pretrained:NAME, or COORDINATOR:EXECUTOR")
    parser.add_argument(
        "--to",
        required=True,
        metavar="PATH",
        help="a folder, for the networks with a runner that needs numpy and onnxruntime only; or a file, OUT.onnx or "
        "OUT.pt2, for the network alone (of a hierarchy, OUT-coordinator.onnx and OUT-executor.onnx)",
    )
    parser.add_argument("--scenario", help="preset or YAML file of the site (the scenario of the training)")
    parser.add_argument("--replace", action="store_true", help="replace what was exported to this name before")
    options = parser.parse_args(arguments)
    with end_on_signal(PROGRAM), stop_on_bad_input(PROGRAM):
        files = export_agent(options.agent, options.to, options.scenario, replace=options.replace)
    for file in files:
        print(file)
    if Path(options.to).is_dir():
        print(f"try it: {Path(sys.executable).name} {Path(options.to) / 'run.py'}")


if __name__ == "__main__":
    main()
