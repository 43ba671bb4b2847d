"""Ranges that a type annotation declares: checks, words, messages and hints."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.envs import validation
from hitmac.envs.validation import Choice, CombinedError, Range, Row, convert, over


@dataclass
class Base:
    share: Annotated[float, Range(0, 1)] = 0.5
    """Share of the whole,
    in one line."""
    kind: Annotated[str, Choice(("near", "far"))] = "near"


@dataclass
class Derived(Base):
    share: float = 0.7
    places: tuple[Annotated[tuple[float, float], Row(("x", "y"))], ...] = ()
    """Places."""


def test_ranges_in_words_and_docstrings_are_the_help_of_a_field():
    words = {Range(1): "1 or more", Range(0, 1): "0 to 1", over(0): "over 0", Range(0, unit="s"): "0 or more s"}
    words[over(0, 180, "degrees")] = "over 0 and at most 180 degrees"
    assert {interval: str(interval) for interval in words} == words
    assert {name: validation.allowed(hint) for name, hint in validation.field_types(Derived).items()} == {
        "share": "0 to 1",  # a field declared again keeps its range
        "kind": "near or far",
        "places": "list of [x, y]",
    }
    assert validation.help_texts(Derived) == {
        "share": "Share of the whole, in one line. Allowed: 0 to 1.",
        "kind": "Allowed: near or far.",
        "places": "Places. Allowed: list of [x, y].",
    }


@dataclass
class Bounded(Base):
    least: float = 0.0

    def _rules_of_order(self):
        yield "share", self.share >= self.least, f"{self.least} or more"
        yield "least", self.least < 1, "under 1"


class Halved(Bounded):
    def _rules_of_half(self):
        yield "share", self.share <= 0.5, "at most 0.5"


def test_rules_of_a_class_and_its_bases_are_checked_in_their_order():
    assert [*validation.broken_rules(Halved())] == []
    assert [*validation.broken_rules(Bounded(share=0.9, least=1.0))] == [("share", "1.0 or more"), ("least", "under 1")]
    assert [*validation.broken_rules(Halved(share=0.9, least=1.0))][-1] == ("share", "at most 0.5")


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-1e9, 1e9), st.floats(0, 1e9), st.booleans())
def test_a_value_is_accepted_if_and_only_if_its_range_holds_it(value, low, width, open_low):
    interval = Range(low, low + width, open_low=open_low)
    for number in (value, low, low + width, np.nextafter(low, -np.inf), np.nextafter(low + width, np.inf)):
        fits = (low < number or (low == number and not open_low)) and number <= low + width
        if fits:
            assert convert("x", Annotated[float, interval], number) == number
        else:
            with pytest.raises(ValueError, match=r"x is .*; it must be "):
                convert("x", Annotated[float, interval], number)


@pytest.mark.parametrize(
    ("hint", "value", "converted"),
    [
        (int, 3.0, 3), (int, np.int8(3), 3), (float, np.float32(0.5), 0.5), (float, 3, 3.0), (bool, np.True_, True),
        (float | None, None, None), (float | tuple[float, ...], [1, 2], (1.0, 2.0)),
        (tuple[float, ...], np.ones(2), (1.0, 1.0)),
        (Annotated[float, Range(0)] | None, 0, 0.0), (Annotated[str, Choice({"near": 1})], "near", "near"),
    ],
)  # fmt: skip
def test_values_are_converted_to_plain_python(hint, value, converted):
    made = convert("x", hint, value)
    assert made == converted
    assert type(made) is type(converted)


@pytest.mark.parametrize(
    ("hint", "value", "error", "says"),
    [
        (int, 2.5, TypeError, "x is 2.5; it must be a whole number"),
        (int, True, TypeError, "x is True; it must be a whole number"),
        (float, float("nan"), TypeError, "x is nan; it must be a finite number"),
        (float, 10**400, TypeError, r"x is 10*\.\.\. \(401 characters\); it must be a finite number"),
        (float, None, TypeError, "x is None"),
        (bool, 1, TypeError, "x is 1; it must be true or false"),
        (str, 1, TypeError, "x is 1; it must be a string"),
        (Annotated[str, Choice(("near", "far"))], "nere", ValueError, r"near or far \(did you mean near\?\)"),
        (Annotated[str, Choice({"near": 1})], ["near"], TypeError, "x is "),
        (Annotated[float, over(0)] | None, 0, ValueError, "x is 0.0; it must be over 0"),
        (Annotated[tuple[float, ...], Range(0)], [0, -1], ValueError, "x holds -1.0; it must be 0 or more"),
        (Annotated[tuple[float, float], Row(("x", "y"))], (1,), TypeError, r"x is \(1,\); it must be \[x, y\]"),
        (tuple[float, ...], 5, TypeError, "x is 5; it must be a list of numbers"),
    ],
)  # fmt: skip
def test_messages_name_the_value_and_what_is_allowed(hint, value, error, says):
    with pytest.raises(error, match=says):
        convert("x", hint, value)


def test_errors_are_collected_and_raised_together():
    errors = []
    for error in (ValueError("a"), TypeError("b"), CombinedError("both", [ValueError("c"), ValueError("d")])):
        with validation.collect(errors):
            raise error
    with pytest.raises(CombinedError, match=r"^4 errors:\n  a\n  b\n  c\n  d$"):
        validation.raise_together(errors)
    with pytest.raises(TypeError, match=r"^b$"):
        validation.raise_together(errors[1:2])
