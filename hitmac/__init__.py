"""Perception and control for directional sensor networks: the open reference implementation of HiT-MAC.

``import hitmac`` registers the environments ``dsn/...`` with gymnasium. The packages are :mod:`hitmac.perception` (the
attention encoder), :mod:`hitmac.envs` (simulator and environments) and :mod:`hitmac.agents` (policies, training,
evaluation). Source: Xu, Zhong, Wang, "Learning Multi-Agent Coordination for Enhancing Target Coverage in Directional
Sensor Networks", NeurIPS 2020.
"""

from hitmac.signals import end_while_imported

end_while_imported()

from importlib.metadata import PackageNotFoundError, version  # noqa: E402
from pathlib import Path  # noqa: E402

_folder = Path(__file__).parent
if not (_folder / "envs").is_dir():  # a checkout on a file system without symbolic links
    __path__.append(str(_folder.parent))

from hitmac import envs  # noqa: E402 - registers the environments
from hitmac.envs import observe  # noqa: E402

try:
    __version__ = version("hitmac")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"

__all__ = ["__version__", "envs", "observe"]
