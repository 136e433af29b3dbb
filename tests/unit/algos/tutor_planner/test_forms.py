from __future__ import annotations

import pytest

from algos.tutor_planner.forms import Folded, Forms, is_generic


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("rg 'thikit mills'", "Thikit Mills"),
        ("rg 'THIKIT-MILLS'", "Thikit Mills"),
        ("rg 'ThikitMills'", "Thikit Mills"),
        (r"rg 'Caf\u00e9 Nord'", "Café Nord"),
        ("rg 'Cafe Nord'", "Café Nord"),
        ("rg 'Café Nord'", "Cafe Nord"),
        ("Skalbart O'Hekud", "OHekud"),
        ("population 440148", "440,148"),
        ("population 440,148", "440148"),
        ("Łódź", "Lodz"),
        ('{"contents": "\\"Rirvek\\"\\nRirvek was"}', "Rirvek"),
    ],
)
def test_a_form_is_said_in_whatever_spelling(text: str, form: str) -> None:
    assert Folded(text).says(form)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("a prosecutor rose", "rosecut"),
        ("prosecutor", "rose"),
        ("Thikit and Mills", "Thikit Mills"),
        ("1440148", "440148"),
        ("anything", "..."),
        ("", "Thikit"),
    ],
)
def test_a_form_begins_and_ends_where_words_do(text: str, form: str) -> None:
    assert not Folded(text).says(form)


@pytest.mark.parametrize("form", ["yes", "No", "both", "three", "7", "42", "...", "First"])
def test_generic_answers_give_nothing_away(form: str) -> None:
    assert is_generic(form)


@pytest.mark.parametrize("form", ["1815", "Yes Minister", "oak", "Seventeen Moments"])
def test_other_answers_are_guarded(form: str) -> None:
    assert not is_generic(form)


def test_accepted_forms_are_unique_and_concrete_ones_leave_generic_words_out() -> None:
    forms = Forms("Mark Twain", ("Samuel Clemens", "Mark Twain", " "), ("two",))
    assert forms.accepted == ("Mark Twain", "Samuel Clemens", "two")
    assert forms.concrete == ("Mark Twain", "Samuel Clemens")
    assert forms.said_in(Folded("nobody"), Folded("by samuel clemens"))
    assert not Forms("yes").said_in(Folded("yes"))
