"""Inputs for :mod:`tools.fuzz`: junk, and valid input with a few changes."""

import json

import numpy as np
import yaml
from hypothesis import strategies as st

from hitmac.envs import Scenario, load_scenario, presets
from hitmac.envs.validation import field_types
from tests.envs.scenes import scenarios

EXTREMES = [
    0, 1, -1, 2, 3, 0.5, -0.0, 5e-324, 1e-300, 1e-30, 1e9, 1e30, 1e31, 1e200, 1.7e308, float("nan"), float("inf"),
    -float("inf"), 2**31, 2**63 - 1, 2**63, 2**64, 10**40, 10**400, True, None, "", "x", "nan", b"x", [], {}, (), [1],
    [[0, 0]], [[0, 0, 1]], [1, "x"], [[1], [1, 2]], 1j, np.float32(1), np.uint8(250), np.int64(-1), np.ones(2),
    np.array(["a"]), np.array([None]), np.zeros(0), object, "full", "own", "shared", "neighbours", "random", "rails",
]  # fmt: skip

extremes = st.sampled_from(EXTREMES)
numbers = st.one_of(st.sampled_from([x for x in EXTREMES if isinstance(x, int | float)]), st.integers(), st.floats())
junk = st.one_of(
    extremes,
    numbers,
    st.text(max_size=5),
    st.lists(numbers, max_size=5),
    st.lists(st.lists(numbers, max_size=4), max_size=4),
    st.dictionaries(st.text(max_size=3), numbers, max_size=3),
)
DTYPES = [np.float64, np.float32, np.float16, np.int64, np.int8, np.uint8, np.uint64, np.bool_, np.complex128, object]


@st.composite
def changed_parameters(draw):
    """Parameters of a valid scenario, up to three of them replaced."""
    base = draw(st.one_of(scenarios(), st.sampled_from(presets()).map(load_scenario)))
    parameters = {name: value for name, value in vars(base).items() if name not in ("tracks", "background")}
    for name in draw(st.lists(st.sampled_from(sorted(field_types(Scenario))), max_size=3)):
        parameters[name] = draw(junk)
    if draw(st.integers(0, 9)) == 0:
        parameters[draw(st.text(max_size=4))] = draw(junk)
    return parameters


@st.composite
def changed_arrays(draw, arrays, most=3):
    """Copies of named arrays, some of them changed."""
    arrays = {name: np.array(array) for name, array in arrays.items()}
    for name in draw(st.lists(st.sampled_from(sorted(arrays)), max_size=most, unique=True)):
        arrays[name] = draw(changed_array(np.asarray(arrays[name])))
    return arrays


@st.composite
def changed_array(draw, array):
    """Array with another number, dtype or shape, or junk."""
    how = draw(st.integers(0, 6))
    if how == 0:
        return draw(junk)
    if how == 1 and array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return array.astype(draw(st.sampled_from(DTYPES)))
    if how == 2:
        return array[..., :-1] if array.ndim else array[None]
    if how == 3:
        return np.concatenate([array, array], draw(st.integers(0, array.ndim - 1))) if array.ndim else array
    new, number = array.copy(), draw(numbers)
    if new.size:
        place = draw(st.integers(0, new.size - 1)) if how == 4 else slice(None)
        with np.errstate(all="ignore"):
            try:
                new.flat[place] = number
            except (OverflowError, ValueError, TypeError):  # the dtype cannot hold it
                return np.full(array.shape, number, object)
    return new


@st.composite
def text_files(draw, parameters=None):
    """YAML or JSON text: whole, changed, cut or replaced."""
    content = draw(changed_parameters()) if parameters is None else parameters
    plain = json.loads(json.dumps(content, default=str))
    text = draw(st.sampled_from([json.dumps, lambda value: yaml.safe_dump(value, default_flow_style=None)]))(plain)
    how = draw(st.integers(0, 5))
    if how == 0:
        return text.encode()[: draw(st.integers(0, len(text)))]
    if how == 1:
        place = draw(st.integers(0, len(text)))
        return (text[:place] + draw(st.text(max_size=8)) + text[place:]).encode(errors="replace")
    if how == 2:
        return draw(st.binary(max_size=200))
    if how == 3:
        opening = draw(st.sampled_from(["[", "{a: ", '{"a":', "- ", "&a [*a, ", "!!python/object:os.x ", "? "]))
        return (opening * draw(st.sampled_from([1, 3, 2000]))).encode()
    if how == 4:
        return draw(st.sampled_from([b"", b"[]", b"1", b"null", b"\xff\xfe", b"---\n---\n", b"\0" * 999, b'"x"', b"%"]))
    return text.encode()


@st.composite
def changed_bytes(draw, content):
    """Bytes of a file, cut, altered or replaced."""
    how, place = draw(st.integers(0, 4)), draw(st.integers(0, max(len(content) - 1, 0)))
    if how == 0:
        return content[:place]
    if how == 1:
        return content[:place] + draw(st.binary(min_size=1, max_size=16)) + content[place + 1 :]
    if how == 2:
        return draw(st.binary(max_size=300))
    if how == 3:
        place = draw(st.integers(0, min(len(content), 400)))  # names and shapes
        return content[:place] + draw(st.binary(min_size=1, max_size=3)) + content[place + 1 :]
    return content


@st.composite
def tracks_files(draw):
    """CSV files of tracks with a few odd rows."""
    cells = st.one_of(st.sampled_from(["0", "1", "0.13", "a", "", "nan", "inf", "-1e400", '"', "1e9", "\0"]), st.text())
    header = draw(st.sampled_from(["time,id,x,y", "time,id,x", "x,y,id,time", "time,id,x,y,x", ""]))
    rows = draw(st.lists(st.lists(cells, min_size=3, max_size=5), max_size=6))
    whole = [f"{0.13 * k:.2f},a,{k},0" for k in range(draw(st.integers(0, 5)))]
    return "\n".join([header, *whole, *(",".join(row) for row in rows)]).encode(errors="replace")


@st.composite
def command_lines(draw, options):
    """Arguments of a command line: some of the given options (name -> valid values), and unknown ones."""
    values = st.one_of(
        st.sampled_from([
            "", "0", "-1", "1", "2", "nan", "inf", "1e9", "1e400", "9" * 40, "9" * 5000, "x", "none", "/", "/dev/null",
            "a=b", "[[[", "knowledge=own", "hit-mac", "hit-mac-9x9", "runs/none", "../..", "\0", "\udce4", "1,2", ":",
        ]),
        numbers.map(str),
        st.text(max_size=6),
    )  # fmt: skip
    found = []
    for name in draw(st.lists(st.sampled_from([*options, "--no-such", "-x"]), max_size=4)):
        found.append(name)
        own = options.get(name, ())
        found += draw(st.lists(st.one_of(st.sampled_from(own), values) if own else values, max_size=2))
    return found
