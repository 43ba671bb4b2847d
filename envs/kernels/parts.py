"""Compilation of functions that only kernels call: their code becomes part of the kernels', and is never loaded itself.

numba optimises every function and makes machine code of it, also of those that are always inlined or that the
interpreter cannot call. For the functions of this package that took more than a third of the time.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering


class _Part(JITCodeLibrary):
    """Code that is linked into that of kernels, in the intermediate language.

    What is inlined everywhere is optimised there, and would gain nothing from being optimised before.
    """

    inlined = False

    def _optimize_final_module(self) -> None:
        if not self.inlined:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "lowering_of_parts"

    def run_pass(self, state: Any) -> bool:
        """Lower a function; callers know it by a key, in place of the function that the interpreter would call."""
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        state.library.inlined = bool(state.flags.forceinline)
        super().run_pass(state)
        key = object()
        state.targetctx.insert_user_function(key, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=key)
        return True


class PartCompiler(CompilerBase):
    """numba's compiler, as ``njit`` takes it in `pipeline_class`."""

    def define_pipelines(self) -> list[PassManager]:
        """Return numba's usual passes, but for the one that makes and loads machine code."""
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [(_Lowering if one is NativeLowering else one, about) for one, about in manager.passes]
        manager.finalize()
        return [manager]
