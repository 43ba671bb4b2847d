"""Parts of a scene: each file has one idea, with its parameters and checks, its arrays, its kernels and its shapes.

A part is a module with

- ``Parameters``, a dataclass from which :class:`hitmac.envs.Scenario` inherits its fields and checks;
- ``allocate(scenario, num_envs, padded)``, if it has arrays: those of ``num_envs`` scenes by their names in
  :class:`hitmac.envs.base.state.KernelState`, none where the scenario does not have the part; an axis of scenes has
  the length ``padded``;
- ``DECISION``, if its sensors decide on something: a :class:`~hitmac.envs.parts.arena.Decision`;
- ``shapes(scenario)``, if it is drawn: its :class:`~hitmac.envs.parts.arena.Shape` in pictures;
- kernels, which :mod:`hitmac.envs.kernels.step` calls.

:class:`hitmac.envs.Scenario` lists them as its bases, and :data:`hitmac.envs.kernels.step.PARTS_OF` those that a kernel
of a start needs.
"""
