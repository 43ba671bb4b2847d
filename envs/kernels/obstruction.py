"""Obstacles in a line of sight. Compiled by numba."""

from hitmac.envs.kernels.compiled import inlined


@inlined
def disc_blocks(x, y, to_x, to_y, disc_x, disc_y, radius):
    """Return True if the line of sight from (x, y) to (to_x, to_y) passes a disc's centre at less than its radius."""
    dx = to_x - x
    dy = to_y - y
    squared = dx * dx + dy * dy
    along = ((disc_x - x) * dx + (disc_y - y) * dy) / squared if squared > 0.0 else 0.0
    along = min(max(along, 0.0), 1.0)
    off_x = disc_x - x - along * dx
    off_y = disc_y - y - along * dy
    return off_x * off_x + off_y * off_y < radius * radius


@inlined
def wall_blocks(x, y, to_x, to_y, wall):
    """Return True if the line of sight from (x, y) to (to_x, to_y) meets a wall (x1, y1, x2, y2)."""
    dx = to_x - x
    dy = to_y - y
    wall_x = wall[2] - wall[0]
    wall_y = wall[3] - wall[1]
    cross = dx * wall_y - dy * wall_x
    sight = (wall[0] - x) * wall_y - (wall[1] - y) * wall_x  # / cross: position of the meeting on the line of sight
    place = (wall[0] - x) * dy - (wall[1] - y) * dx  # / cross: position of the meeting on the wall
    sight = sight if cross > 0.0 else -sight
    place = place if cross > 0.0 else -place
    length = abs(cross)
    return (length > 0.0) & (sight >= 0.0) & (sight <= length) & (place >= 0.0) & (place <= length)
