"""The chat settings tab: what is shown, what is typed, and what the next answer is written with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QComboBox, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.chats.settings import ChatSettings, chat_settings
from app.protocol.answering import SamplingChoice
from app.protocol.options import MAX_COUNT, AnswerFormat, Sampling
from app.ui.compare.runner import Subject
from app.ui.engine.pair_names import thinking_levels
from app.ui.widgets import stylesheet
from app.ui.widgets.focus import next_in_focus_order
from tests.ui.chat.settings_parts import SettingsRig
from tests.ui.parts import WAIT_MS

BRIEF = ChatSettings(system_prompt="Be brief.", sampling=SamplingChoice(temperature=0.2), stop=["END"], seed=7)


@pytest.fixture
def rig(request: pytest.FixtureRequest, qtbot: QtBot, tmp_path: Path) -> Iterator[SettingsRig]:
    made = SettingsRig(qtbot, tmp_path, getattr(request, "param", "echo"))
    made.load()
    yield made
    made.close()


def test_a_chosen_value_says_what_is_recommended_and_can_go_back_to_it(rig: SettingsRig) -> None:
    rig.tab.sampling_section.button.click()
    rig.enter("temperature", "0.25")
    assert rig.chosen.sampling == SamplingChoice(temperature=0.25)
    temperature = rig.tab.parameters["temperature"]
    assert temperature._source.text() == f"Recommended: {Sampling().temperature:g}"
    assert "Changed in this chat" in temperature.field.accessibleDescription()
    assert temperature.reset.isVisible()
    temperature.reset.click()
    assert rig.chosen == ChatSettings()
    assert temperature.field.value() == pytest.approx(Sampling().temperature)
    rig.model.set_settings(msgspec.structs.replace(BRIEF, max_tokens=9))
    rig.write("top_k", "3")
    rig.tab.recommended_button.click()  # of the sampling alone
    assert rig.chosen == msgspec.structs.replace(BRIEF, max_tokens=9, sampling=SamplingChoice())
    assert rig.tab.parameters["top_k"].field.value() == Sampling().top_k


def test_the_tools_of_the_chat_are_counted_and_one_click_away(rig: SettingsRig) -> None:
    rig.answers.tools = rig.ctx.tools
    rig.model.set_settings(ChatSettings(tools=[".calculate", ".current_time", "gone.search"]))
    assert rig.tab.tools_button.text() == "2 tools"
    assert "Changed in this chat" in rig.tab.tools_button.accessibleDescription()
    rig.tab.tools_button.click()
    assert rig.actions.calls["chat_tools"] == [(rig.tab.tools_button,)]
    rig.enter("temperature", "0.5")  # nothing else changes them
    assert rig.chosen.tools == [".calculate", ".current_time", "gone.search"]
    rig.model.set_settings(ChatSettings())
    assert rig.tab.tools_button.text() == "0 tools"
    assert "Changed" not in rig.tab.tools_button.accessibleDescription()


def test_the_keyboard_goes_through_the_fields_as_one_reads(qtbot: QtBot, rig: SettingsRig) -> None:
    rig.model.set_settings(BRIEF)
    for section in (rig.tab.sampling_section, rig.tab.more_section):
        section.button.click()
    shown = [field for field in rig.tab.fields() if field.isVisible() and field.isEnabled()]
    assert len(shown) >= 20
    reached: list[QWidget] = []
    one: QWidget = rig.tab.preset
    while one not in reached[:1]:
        if one in shown:
            reached.append(one)
        one = next_in_focus_order(one)
    assert reached == shown

    def are_in_order() -> bool:
        tops = [field.mapTo(rig.tab, field.rect().center()).y() for field in shown]
        return all(above <= below + 20 for above, below in itertools.pairwise(tops))

    qtbot.waitUntil(are_in_order)  # the sections that were opened are laid out a moment later


def test_the_tab_never_widens_the_panel(qtbot: QtBot, rig: SettingsRig) -> None:
    rig.save("A preset with a very long name that has no room, whatever one does about it", BRIEF)
    rig.choose(rig.presets.names()[0])
    for section in (rig.tab.sampling_section, rig.tab.more_section):
        section.button.click()
    rig.tab.resize(248, 500)
    area = rig.tab._area
    page = area.widget()
    assert page is not None
    qtbot.waitUntil(lambda: page.minimumSizeHint().height() > area.height())  # both sections are open
    qtbot.waitUntil(lambda: page.minimumSizeHint().width() <= area.viewport().width() == page.width())


def test_the_last_keys_count_for_the_message_that_is_sent(rig: SettingsRig) -> None:
    rig.tab.by_key["system_prompt"].setFocus()
    QTest.keyClicks(rig.tab.by_key["system_prompt"], "Be brief")
    rig.write("temperature", "0.5")
    assert rig.chosen == ChatSettings()
    rig.ask("Hello")
    answer = rig.model.messages[-1].settings
    assert (answer["system_prompt"], answer["sampling"]["temperature"]) == ("Be brief", 0.5)  # type: ignore[index]
    stored = rig.stored(lambda store: store.chat(rig.model.id)).settings
    assert chat_settings(stored) == rig.chosen != ChatSettings()
    rig.write("temperature", "0.75")
    rig.model.regenerate()
    rig.settle()
    assert rig.model.messages[-1].settings["sampling"]["temperature"] == 0.75  # type: ignore[index]


def test_what_is_typed_belongs_to_the_chat_it_was_typed_in(rig: SettingsRig) -> None:
    rig.ask("Hello")
    first = rig.model
    QTest.keyClicks(rig.tab.by_key["system_prompt"], "Be brief")
    rig.write("top_k", "12")
    rig.chats.new()
    assert (first.settings.system_prompt, first.settings.sampling.top_k) == ("Be brief", 12)
    assert (rig.chosen, rig.tab.settings()) == (ChatSettings(), ChatSettings())
    assert rig.tab.by_key["system_prompt"].toPlainText() == ""
    rig.open(first.id)
    assert rig.tab.settings() == first.settings


def test_what_is_half_typed_survives_what_happens_around_it(rig: SettingsRig) -> None:
    rig.write("temperature", "1.")
    rig.model.set_settings(ChatSettings(drafter="ngram"))  # in the Speed panel
    field = rig.tab.parameters["temperature"].field
    assert field.lineEdit().text() == "1."
    QTest.keyClicks(field, "5")
    QTest.keyClick(field, Qt.Key.Key_Return)
    wanted = ChatSettings(drafter="ngram", sampling=SamplingChoice(temperature=1.5))
    assert rig.chosen == wanted
    QTest.keyClicks(rig.tab.by_key["system_prompt"], "Be brief")
    rig.model.set_settings(msgspec.structs.replace(wanted, drafter="model"))
    assert rig.tab.by_key["system_prompt"].toPlainText() == "Be brief"
    rig.tab.commit()
    assert rig.chosen == msgspec.structs.replace(wanted, drafter="model", system_prompt="Be brief")


def test_an_empty_number_is_what_it_was_before(rig: SettingsRig) -> None:
    field = rig.tab.parameters["top_k"].field
    field.setFocus()
    field.selectAll()
    QTest.keyClick(field, Qt.Key.Key_Delete)
    rig.ask("Hello")
    assert rig.chosen == ChatSettings()
    assert field.text() == str(Sampling().top_k)
    rig.write("top_k", "abc")
    rig.tab.commit()
    assert rig.chosen == ChatSettings()
    for text, wanted in (("500", 500), ("", None)):  # length and seed may be left open
        for digits in (rig.tab.by_key["max_tokens"], rig.tab.by_key["seed"]):
            digits.selectAll()
            QTest.keyClick(digits, Qt.Key.Key_Backspace)
            QTest.keyClicks(digits, text)
            QTest.keyClick(digits, Qt.Key.Key_Return)
        assert (rig.chosen.max_tokens, rig.chosen.seed) == (wanted, wanted)


def test_stop_strings_are_typed_line_by_line(qtbot: QtBot, rig: SettingsRig) -> None:
    with qtbot.waitSignal(rig.model.settings_changed, timeout=WAIT_MS):
        QTest.keyClicks(rig.tab.by_key["stop"], "END")
        QTest.keyClick(rig.tab.by_key["stop"], Qt.Key.Key_Return)
    assert rig.chosen.stop == ["END"]
    assert rig.tab.by_key["stop"].toPlainText() == "END\n"  # the line that was begun is not taken away
    QTest.keyClicks(rig.tab.by_key["stop"], r"\n\n")
    rig.tab.commit()
    assert rig.chosen.stop == ["END", "\n\n"]


@pytest.mark.parametrize(
    "settings",
    [
        ChatSettings(system_prompt="no\u00a0break\r\nand\u2028more"),
        ChatSettings(sampling=SamplingChoice(temperature=0.123456, top_k=5_000_000)),
        ChatSettings(stop=[" ", "", "a\rb"]),
        ChatSettings(drafter="chain"),
        ChatSettings(drafter="none"),
    ],
)
def test_what_a_field_cannot_show_is_kept(rig: SettingsRig, settings: ChatSettings) -> None:
    rig.model.set_settings(settings)
    assert rig.tab.settings() == settings
    rig.enter("min_p", "0.5")
    sampling = msgspec.structs.replace(settings.sampling, min_p=0.5)
    assert rig.chosen == msgspec.structs.replace(settings, sampling=sampling)


def test_the_wheel_changes_nothing(rig: SettingsRig) -> None:
    rig.tab.by_key["overflow"].setFocus()
    for field in (rig.tab.by_key["overflow"], rig.tab.preset):
        middle = QPointF(field.rect().center())
        none = (Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase)
        wheel = QWheelEvent(middle, field.mapToGlobal(middle), QPoint(), QPoint(0, -120), *none, False)
        QApplication.sendEvent(field, wheel)
    assert rig.chosen == ChatSettings()


def pick(box: QComboBox, value: str) -> None:
    box.setCurrentIndex(box.findData(value))
    box.activated.emit(box.currentIndex())


def test_settings_that_are_not_read_yet_cannot_be_changed(rig: SettingsRig) -> None:
    rig.ask("Hello")
    rig.model.set_settings(BRIEF)
    rig.settle()
    chat_id = rig.model.id
    rig.chats.new()
    rig.qtbot.waitUntil(lambda: chat_id not in rig.chats._open, timeout=WAIT_MS)
    rig.chats.open(chat_id)
    assert not rig.tab.isEnabled()
    rig.model.set_settings(ChatSettings(drafter="ngram"))  # in the Speed panel
    rig.settle()
    assert rig.tab.isEnabled()
    assert rig.tab.settings() == rig.chosen == BRIEF


def test_a_level_that_the_model_does_not_have_is_not_offered_but_kept(rig: SettingsRig) -> None:
    pair = rig.pair_loader.pair()
    assert pair is not None and not pair.thinking
    rig.model.set_settings(ChatSettings(thinking="high", thinking_budget=512))
    assert not rig.tab.by_key["thinking"].isVisible() and not rig.tab.by_key["thinking_budget"].isVisible()
    rig.tab.by_key["system_prompt"].setPlainText("Be brief.")
    rig.tab.commit()
    assert (rig.chosen.thinking, rig.chosen.thinking_budget) == ("high", 512)
    asked = rig.answers.settings(rig.chosen)
    assert (asked.thinking, asked.thinking_budget) == ("", 512)
    show_thinking(rig, [])
    assert not rig.tab.by_key["thinking"].isVisible() and rig.tab.by_key["thinking_budget"].isVisible()
    assert rig.tab.settings().thinking == "high"
    show_thinking(rig, ["off", "on"])
    assert rig.tab.by_key["thinking"].isVisible() and rig.tab.by_key["thinking"].currentText() == "Model's default"
    assert rig.tab.settings().thinking == "high"  # nobody chose another one
    show_thinking(rig, ["low", "high", "xhigh"])
    titles = [rig.tab.by_key["thinking"].itemText(place) for place in range(rig.tab.by_key["thinking"].count())]
    assert titles == ["Model's default", "Low", "High", "Extra high"]
    assert rig.tab.by_key["thinking"].currentText() == "High"
    pick(rig.tab.by_key["thinking"], "")
    assert rig.chosen.thinking == ""


def test_the_headings_beside_a_field_take_one_line(
    qtbot: QtBot, no_style_later: None, qapp: QApplication, rig: SettingsRig
) -> None:
    stylesheet.apply(qapp)
    rig.tab.more_section.button.click()
    show_thinking(rig, ["off"])
    rig.tab.resize(264, 500)
    for field in (rig.tab.by_key["thinking_budget"], rig.tab.by_key["max_tokens"], rig.tab.by_key["seed"]):
        line = field.parentWidget()
        assert line is not None
        heading = next(one for one in line.findChildren(QLabel) if one.buddy() is field)
        qtbot.waitUntil(lambda one=heading: one.width() >= one.fontMetrics().horizontalAdvance(one.text()))  # type: ignore[misc]
        assert field.width() >= 80


def test_an_answer_format_is_asked_for_and_a_mistake_in_it_is_said(qtbot: QtBot, rig: SettingsRig) -> None:
    tab = rig.tab
    assert not tab.by_key["format_source"].isVisible() and not tab.format_problem.isVisible()
    pick(tab.by_key["answer_format"], "json_schema")
    assert tab.by_key["format_source"].isVisible()
    QTest.keyClicks(tab.by_key["format_source"], '{"type": "objekt"}')
    tab.commit()
    qtbot.waitUntil(tab.format_problem.isVisible, timeout=WAIT_MS)
    assert tab.format_problem.text() == "The JSON schema can't be used: at the top level: Invalid type: objekt."
    assert "objekt" in tab.by_key["format_source"].accessibleDescription()
    tab.by_key["format_source"].show_value('{"uniqueItems": true}')
    tab.commit()
    left = "Left to the model: “uniqueItems” at the top level."
    qtbot.waitUntil(lambda: tab.format_problem.text() == left, timeout=WAIT_MS)
    tab.by_key["format_source"].show_value('{"type": "object"}')
    tab.commit()
    qtbot.waitUntil(lambda: not tab.format_problem.isVisible(), timeout=WAIT_MS)
    wanted = AnswerFormat(kind="json_schema", source='{"type": "object"}')
    assert rig.chosen.format() == wanted
    assert rig.answers.settings(rig.chosen).format == wanted


def show_thinking(rig: SettingsRig, levels: list[str]) -> None:
    """As of a model with these levels of thinking."""
    pair = rig.pair_loader.pair()
    assert pair is not None
    offered = thinking_levels(msgspec.structs.replace(pair, thinking=levels, may_think=True))
    sources = dict.fromkeys(rig.tab.parameters, "")
    rig.tab.show_settings(rig.chosen, Sampling(), sources, [("auto", "Auto")], offered)


def test_every_field_is_explained_to_everybody(rig: SettingsRig) -> None:
    for field in rig.tab.fields():
        name = field.accessibleName() or (field.text() if isinstance(field, QAbstractButton) else "")
        assert name
        if not isinstance(field, QAbstractButton):
            assert field.toolTip() and field.whatsThis()
            assert field.whatsThis() in field.accessibleDescription()


def test_a_prompt_counts_a_moment_after_the_last_key_and_can_be_undone(qtbot: QtBot, rig: SettingsRig) -> None:
    prompt = rig.tab.by_key["system_prompt"]
    with qtbot.waitSignal(rig.model.settings_changed, timeout=WAIT_MS):
        QTest.keyClicks(prompt, "Be ")
    with qtbot.waitSignal(rig.model.settings_changed, timeout=WAIT_MS):
        QTest.keyClicks(prompt, "kind")
    assert rig.chosen.system_prompt == "Be kind"
    assert prompt.textCursor().position() == len("Be kind")
    prompt.undo()
    assert prompt.toPlainText() != "Be kind"
    prompt.redo()
    rig.tab.commit()
    assert rig.chosen.system_prompt == "Be kind"


@pytest.mark.parametrize("rig", ["endless"], indirect=True)
def test_a_change_while_an_answer_is_written_counts_from_the_next_one_on(rig: SettingsRig) -> None:
    rig.begin_answer("Hello")
    rig.enter("temperature", "0.1")
    assert rig.chosen.sampling.temperature == 0.1
    rig.model.stop()
    rig.settle()
    first = rig.model.messages[-1].settings["sampling"]["temperature"]  # type: ignore[index]
    assert first == pytest.approx(Sampling().temperature)
    assert rig.model.regenerate()
    rig.qtbot.waitUntil(lambda: bool(rig.model.live and rig.model.live.pieces), timeout=WAIT_MS)
    rig.model.stop()
    rig.settle()
    assert rig.model.messages[-1].settings["sampling"]["temperature"] == 0.1  # type: ignore[index]


def test_a_stored_answer_can_be_repeated_exactly(rig: SettingsRig) -> None:
    chosen = ChatSettings(
        system_prompt="Be brief.",
        sampling=SamplingChoice(temperature=0.3, top_k=7, repetition_penalty=1.2),
        seed=99,
        max_tokens=50,
        stop=["\n\n"],
        overflow="keep_ends",
        drafter="ngram",
    )
    rig.model.set_settings(chosen)
    rig.ask("Hello")
    rig.model.set_settings(ChatSettings(system_prompt="Something else."))
    branch = rig.stored(lambda store: store.branch(rig.model.id))
    repeated = Subject(branch).asked(rig.pair_loader.pair())
    assert repeated is not None
    command = repeated[0].command
    assert [message.content for message in command.messages] == ["Be brief.", "Hello"]
    assert (command.seed, command.max_tokens, command.stop) == (99, 50, ["\n\n"])
    assert (command.overflow, command.drafter) == ("keep_ends", "ngram")
    assert command.sampling == chosen.sampling.over(Sampling())


@pytest.mark.parametrize(("typed", "counts"), [("0", None), ("007", 7), ("9" * 10, MAX_COUNT)])
def test_a_number_shows_what_counts(rig: SettingsRig, typed: str, counts: int | None) -> None:
    field = rig.tab.by_key["max_tokens"]
    QTest.keyClicks(field, typed)
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert rig.chosen.max_tokens == counts
    assert field.text() == ("" if counts is None else str(counts))
