"""Parts of a scene: each file has one idea, with its parameters and checks, its arrays, its kernels and its shapes.

A part is a module with

- ``Parameters``, a dataclass from which :class:`hitmac.envs.Scenario` inherits its fields and checks;
- ``allocate(scenario, num_envs, padded)``, if it has arrays: those of ``num_envs`` scenes by their names in
  :class:`hitmac.envs.base.state.KernelState`, none where the scenario does not have the part; an axis of scenes has
  the length ``padded``;
- ``DECISION``, if its sensors decide on something: a :class:`~hitmac.envs.parts.arena.Decision`;
- ``shapes(scenario)``, if it is drawn: its :class:`~hitmac.envs.parts.arena.Shape` in pictures;
- kernels, which :mod:`hitmac.envs.kernels.step` calls. Numba omits code under ``is not None`` only where the part is an
  argument of its own.

The bases of :class:`hitmac.envs.Scenario` list them. A part is None for kernels that do not list it: at a start in
:data:`hitmac.envs.kernels.step.PARTS_OF`, for features in :data:`hitmac.envs.base.state.OBSERVED`.

A formula that features or measured positions need is in :mod:`hitmac.envs.features`, its name in
:mod:`hitmac.envs.base.formulas`, and the parameters that it reads in ``_SITE`` of ``agents/deploy/export/folder.py``.
What hides a target is in both ways of :func:`hitmac.envs.parts.obstacles.see`, in ``noticed`` of
:mod:`hitmac.envs.deployment`, and for agents in ``in_view`` of ``agents/tracking/sight.py`` and ``_mark`` of
``agents/planning/views.py``.
"""
