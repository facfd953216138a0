"""Forms are made of what the typed table says; rows and columns put their parts where they are to stand."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractSpinBox, QComboBox, QPushButton, QSpinBox, QWidget
from pytestqt.qtbot import QtBot

from app.chats.settings import ChatSettings
from app.protocol.answering import SamplingChoice
from app.protocol.options import DrafterChoice, KvType, LoadSettings
from app.ui.widgets.controls import LEFT, column, row
from app.ui.widgets.forms import Decimal, Form, Setting, Whole


def test_choices_stand_in_the_order_of_the_table(qtbot: QtBot) -> None:
    form = Form(LoadSettings, [Setting("kv_type", "Type", "Help.")], lambda: None)
    form.add_settings(ChatSettings, [Setting("drafter", "Name", "Help.")])
    qtbot.addWidget(form)
    for key, values in (("kv_type", KvType), ("drafter", DrafterChoice)):
        field = form.fields[key]
        assert isinstance(field, QComboBox)
        assert tuple(field.itemText(place) for place in range(field.count())) == get_args(values)


def test_what_is_shown_is_given_back(qtbot: QtBot) -> None:
    changes: list[bool] = []
    rows = [Setting("context_length", "Context", "Help."), Setting("kv_type", "Type", "Help.")]
    form = Form(LoadSettings, rows, lambda: changes.append(True))
    qtbot.addWidget(form)
    form.show_values(LoadSettings(context_length=4096, kv_type="q8_0"))
    assert form.values() == {"context_length": 4096, "kv_type": "q8_0"}
    assert len(changes) == 2
    assert form.text_of("kv_type") == "q8_0"


def test_none_is_below_a_range_that_reaches_nothing(qtbot: QtBot) -> None:
    rows = [
        Setting("temperature", "Temperature", "", step=0.05, lowest="recommended"),
        Setting("top_k", "Top-k", "", step=5),
        Setting("top_p", "Top-p", "", step=0.01),
    ]
    form = Form(SamplingChoice, [*rows, Setting("presence_penalty", "Penalty", "", step=0.1)], lambda: None)
    form.add_settings(ChatSettings, [Setting("max_tokens", "Limit", "", step=64, lowest="no limit")])
    qtbot.addWidget(form)
    assert set(form.values().values()) == {None}
    assert (form.text_of("temperature"), form.text_of("max_tokens")) == ("recommended", "no limit")
    for key, value in (("temperature", 0.0), ("top_k", 0), ("top_p", 0.01), ("presence_penalty", -10.0)):
        field = form.fields[key]
        assert isinstance(field, QAbstractSpinBox)
        field.stepUp()
        assert form.value(key) == value
        field.stepDown()
        assert form.value(key) is None
    form.set_value("top_k", 40)
    form.set_value("top_k", None)
    assert form.value("top_k") is None


def test_a_part_at_the_left_is_as_wide_as_it_needs(qtbot: QtBot) -> None:
    parent, wide, narrow = QWidget(), QPushButton("Wide"), QPushButton("Narrow")
    column(wide, (narrow, LEFT), row(QPushButton("In a row"), None), on=parent)
    qtbot.addWidget(parent)
    parent.resize(600, 200)
    parent.show()
    assert (wide.width(), narrow.width()) == (600, narrow.sizeHint().width())


def test_a_number_that_is_too_large_for_its_field(qtbot: QtBot) -> None:
    form = Form(SamplingChoice, [Setting("top_k", "Top-k", "")], lambda: None)
    qtbot.addWidget(form)
    field = form.fields["top_k"]
    assert isinstance(field, QSpinBox)
    form.set_value("top_k", 10**30)  # as a preset of somebody else's may have it
    assert form.value("top_k") == field.maximum()


TYPED = [
    ("0,7", 0.7),
    ("0.7", 0.7),
    (",5", 0.5),
    ("1,", 1.0),
    ("٠٫٧", 0.7),
    ("۰٫۷", 0.7),
    ("०.७", 0.7),
    ("０．７", 0.7),
    ("0，7", 0.7),
    ("1.234,5", 1234.5),
    ("1,234.5", 1234.5),
    ("1 234,5", 1234.5),
    ("1'234.5", 1234.5),
    ("1\u202f234,5", 1234.5),
    ("1.234.567", 1234567.0),
    ("1,5,5", None),
    ("1.2.3", None),
    ("12.34,5", None),
    ("1,2.3,4", None),
    ("1,,5", None),
    ("5e3", None),
    ("abc", None),
]


@pytest.mark.parametrize(("typed", "wanted"), TYPED)
def test_decimals_as_people_type_them(qtbot: QtBot, typed: str, wanted: float | None) -> None:
    """What is no clear number leaves the old one, and is never taken for another."""
    field = Decimal(0, 10_000_000, 0.1)
    qtbot.addWidget(field)
    field.setValue(42)
    field.lineEdit().selectAll()
    field.lineEdit().insert(typed)
    field.interpretText()
    assert field.value() == (42 if wanted is None else wanted)


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("4,096", 4096),
        ("4.096", 4096),
        ("4 096", 4096),
        ("1'048'576", 1048576),
        ("٤٠٩٦", 4096),
        ("4096", 4096),
        ("1,5", 42),
        ("0,7", 42),
        ("1.5", 42),
        ("40,96", 42),
        ("1,234.567", 42),
        ("-5", 42),
    ],
)
def test_whole_numbers_as_people_type_them(qtbot: QtBot, typed: str, wanted: int) -> None:
    field = Whole(0, 2_000_000)
    qtbot.addWidget(field)
    field.setValue(42)
    field.lineEdit().selectAll()
    field.lineEdit().insert(typed)
    field.interpretText()
    assert field.value() == wanted
    if typed.isascii():  # key by key, what came before a comma was a number
        field.lineEdit().selectAll()
        QTest.keyClicks(field.lineEdit(), typed)
        field.interpretText()
        begun = re.search(r"\d+(?:,\d{3})?", typed)
        assert begun is not None
        assert field.value() in (wanted, int(begun[0].replace(",", "")))


def test_typing_a_decimal_comma_key_by_key(qtbot: QtBot) -> None:
    field = Decimal(0, 2, 0.05, lowest_means="auto")
    field.setSuffix(" s")
    qtbot.addWidget(field)
    assert field.text() == "auto"
    field.lineEdit().selectAll()
    values = []
    for key in "0,75":
        QTest.keyClicks(field.lineEdit(), key)
        values.append((field.lineEdit().text(), field.value()))
    assert values == [("0 s", 0), ("0, s", 0), ("0,7 s", 0.7), ("0,75 s", 0.75)]
    QTest.keyClick(field.lineEdit(), Qt.Key.Key_Return)
    assert field.text() == "0.75 s"
