"""Names without ``hitmac.`` in a checkout: there ``import envs`` gives the module ``hitmac.envs`` itself."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType

PACKAGES = ("agents", "envs", "perception")


class _ShortNames(MetaPathFinder, InspectLoader):
    """Finder that hands on ``hitmac.x`` for ``x``, so that no module is loaded twice."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module in the three packages; ``__main__``, which is run, is left to other finders."""
        parts = fullname.split(".")
        if parts[0] not in PACKAGES or parts[-1] == "__main__":
            return None
        known = find_spec(f"hitmac.{fullname}")
        return known and ModuleSpec(fullname, self, is_package=known.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module of the long name."""
        module = importlib.import_module(f"hitmac.{spec.name}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back its own spec: it has run under its long name."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of a module, which ``python -m`` runs."""
        known = find_spec(f"hitmac.{fullname}")
        assert known is not None
        assert isinstance(known.loader, InspectLoader)
        return known.loader.get_code(f"hitmac.{fullname}")

    def get_source(self, fullname: str) -> str | None:
        """Return the source of a module."""
        known = find_spec(f"hitmac.{fullname}")
        assert known is not None
        assert isinstance(known.loader, InspectLoader)
        return known.loader.get_source(f"hitmac.{fullname}")


def use_short_names(package: str) -> None:
    """Make a package that is being imported by its short name, and everything after it, the modules of ``hitmac``."""
    if not any(isinstance(finder, _ShortNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ShortNames())
    sys.modules[package] = importlib.import_module(f"hitmac.{package}")
