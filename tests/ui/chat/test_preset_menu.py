"""Presets in the chat settings tab: chosen, and everything the menu does with them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication
from PySide6.QtWidgets import QFileDialog, QInputDialog, QMessageBox
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app.chats.presets import Presets
from app.chats.settings import ChatSettings
from app.protocol.answering import SamplingChoice
from tests.ui.chat.settings_parts import SettingsRig
from tests.ui.parts import WAIT_MS

BRIEF = ChatSettings(system_prompt="Be brief.", sampling=SamplingChoice(temperature=0.2), stop=["END"])
ODD = 'a/b: "c" & <d> 日本 \u202e…'


@pytest.fixture
def rig(qtbot: QtBot, tmp_path: Path) -> Iterator[SettingsRig]:
    made = SettingsRig(qtbot, tmp_path, "")
    yield made
    made.close()


def named(name: str, settings: ChatSettings = BRIEF) -> ChatSettings:
    return ChatSettings(
        preset=name, system_prompt=settings.system_prompt, sampling=settings.sampling, stop=settings.stop
    )


def give_name(rig: SettingsRig, open_dialog: Callable[[], object], name: str) -> str:
    """Answer the question for a name, and wait for the presets; returns what was proposed."""
    open_dialog()
    (dialog,) = rig.tab.findChildren(QInputDialog)
    proposed = dialog.textValue()
    dialog.setTextValue(name)
    with rig.qtbot.waitSignal(rig.stored_presets.changed, timeout=WAIT_MS):
        dialog.accept()
    QCoreApplication.sendPostedEvents(None, 0)
    rig.qtbot.waitUntil(lambda: not rig.tab.findChildren(QInputDialog), timeout=WAIT_MS)
    return proposed


def told(rig: SettingsRig) -> str:
    notice = rig.notice_list.notices().get("presets")
    return notice.text if notice is not None else ""


def test_a_preset_is_saved_under_a_name_and_chosen_in_another_chat(rig: SettingsRig) -> None:
    rig.model.set_settings(BRIEF)
    assert give_name(rig, rig.tab.save_button.click, ODD) == "My preset"
    (kept,) = rig.presets.names()
    assert rig.chosen == named(kept)
    assert rig.tab.preset.currentData() == kept
    rig.chats.new_temporary()
    assert (rig.chosen, rig.tab.preset.currentText()) == (ChatSettings(), "None")
    rig.choose(kept)
    assert rig.chosen == rig.tab.settings() == named(kept)
    assert Presets(rig.preset_file).get(kept) == named(kept)


def test_a_changed_preset_says_so_and_can_be_saved_or_undone(rig: SettingsRig) -> None:
    rig.save("Brief", BRIEF)
    rig.choose("Brief")
    assert not rig.tab._preset_row.isVisible()
    rig.enter("top_k", "3")
    assert rig.tab._preset_state.text() == "Changed in this chat"
    assert "Changed in this chat" in rig.tab.preset.accessibleDescription()
    rig.tab.undo.click()
    assert rig.chosen == named("Brief")
    assert not rig.tab._preset_row.isVisible()
    rig.enter("top_k", "4")
    with rig.qtbot.waitSignal(rig.stored_presets.changed, timeout=WAIT_MS):
        rig.tab.save_changes.click()
    assert rig.presets.get("Brief") == rig.chosen
    assert rig.chosen.sampling.top_k == 4
    assert not rig.tab._preset_row.isVisible()


def test_what_a_preset_replaces_can_be_brought_back(rig: SettingsRig) -> None:
    rig.save("Brief", BRIEF)
    rig.model.set_settings(ChatSettings(system_prompt="Written by hand."))
    rig.choose("Brief")
    assert rig.tab.undo.isVisible() and not rig.tab.save_changes.isVisible()
    rig.tab.undo.click()
    assert rig.chosen == ChatSettings(system_prompt="Written by hand.")
    rig.choose("Brief")
    rig.choose("")
    assert rig.chosen == ChatSettings()
    assert not rig.tab._preset_row.isVisible()  # nothing was lost: the preset has it


def test_a_preset_brings_its_tools_and_leaves_the_folders_of_the_chat(rig: SettingsRig) -> None:
    rig.save("Math", ChatSettings(tools=[".calculate"], folders=["/elsewhere"]))
    rig.model.set_settings(ChatSettings(folders=["/mine"]))
    rig.choose("Math")
    assert rig.chosen == ChatSettings(preset="Math", tools=[".calculate"], folders=["/mine"])
    assert not rig.tab.undo.isVisible()  # nothing was replaced, and the preset is as it was
    rig.model.set_settings(ChatSettings(preset="Math", tools=[], folders=["/mine"]))
    rig.tab.undo.click()
    assert rig.chosen == ChatSettings(preset="Math", tools=[".calculate"], folders=["/mine"])


def test_renaming_and_duplicating(rig: SettingsRig) -> None:
    rig.save("Brief", BRIEF)
    rig.choose("Brief")
    assert give_name(rig, rig.entries()["Rename…"].trigger, "My preset") == "Brief"
    assert (rig.presets.names(), rig.chosen) == (["My preset"], named("My preset"))
    rig.do("Duplicate")
    assert rig.presets.names() == ["My preset", "My preset copy"]
    give_name(rig, rig.entries()["Rename…"].trigger, "my preset COPY")
    assert told(rig) == "There is already a preset named “My preset copy”. Choose another name."
    assert rig.chosen == named("My preset")
    assert give_name(rig, rig.tab.save_button.click, "my preset") == "My preset 2"
    assert "already a preset" in told(rig)
    assert rig.presets.get("My preset") == named("My preset")
    assert give_name(rig, rig.tab.save_button.click, "  ") == "My preset 2"
    assert told(rig) == "A preset needs a name."


def test_deleting_asks_first_and_leaves_the_chat_as_it_is(rig: SettingsRig) -> None:
    rig.save("Brief", BRIEF)
    rig.choose("Brief")
    for button, left in (("Cancel", ["Brief"]), ("Delete", [])):
        rig.entries()["Delete…"].trigger()
        (box,) = rig.tab.findChildren(QMessageBox)
        assert "“Brief”" in box.text()
        next(one for one in box.buttons() if one.text().replace("&", "") == button).click()
        rig.qtbot.waitUntil(lambda left=left: rig.presets.names() == left, timeout=WAIT_MS)  # type: ignore[misc]
        rig.qtbot.waitUntil(lambda: not rig.tab.findChildren(QMessageBox), timeout=WAIT_MS)
    assert rig.chosen == named("Brief")
    rig.qtbot.waitUntil(lambda: rig.tab.preset.currentText() == "None", timeout=WAIT_MS)
    assert not rig.entries()["Rename…"].isEnabled()


def test_a_preset_for_new_chats_of_all_models_or_of_this_one(rig: SettingsRig) -> None:
    rig.save("All", BRIEF)
    rig.save("One", ChatSettings(seed=1))
    rig.choose("All")
    assert not rig.entries()["Use for new chats with this model"].isEnabled()  # none is loaded
    rig.do("Use for new chats")
    rig.load()
    rig.choose("One")
    rig.do("Use for new chats with this model")
    target = str(rig.target)
    assert (rig.presets.default_name(), rig.presets.default_name(target)) == ("All", "One")
    entries = rig.entries()
    assert not entries["Use for new chats"].isChecked()
    assert entries["Use for new chats with this model"].isChecked()
    rig.do("Use for new chats with this model")
    assert rig.presets.default_name(target) == "All"


def test_export_and_import_bring_it_back(rig: SettingsRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.save("Brief", BRIEF)
    rig.choose("Brief")
    target = tmp_path / "out.json"
    proposals: list[str] = []

    def chosen(_parent: object, _title: str, proposal: str, _filter: str) -> tuple[str, str]:
        proposals.append(Path(proposal).name)
        return str(target), ""

    monkeypatch.setattr(QFileDialog, "getSaveFileName", chosen)  # the system's own dialog
    rig.do("Export…")
    assert proposals == ["Brief.json"]
    assert isinstance(json.loads(target.read_bytes()), dict)
    rig.choose("")
    rig.entries()["Import…"].trigger()
    (dialog,) = rig.tab.findChildren(QFileDialog)
    with rig.qtbot.waitSignal(rig.stored_presets.changed, timeout=WAIT_MS):
        dialog.fileSelected.emit(str(target))
    dialog.reject()
    rig.qtbot.waitUntil(lambda: "imported" in told(rig), timeout=WAIT_MS)
    assert len(rig.presets.names()) == 2
    imported = rig.chosen
    assert imported.preset in rig.presets.names() and imported.preset != "Brief"
    assert (imported.system_prompt, imported.sampling.temperature, imported.stop) == ("Be brief.", 0.2, ["END"])


def test_what_cannot_be_written_or_read_is_a_notice(
    rig: SettingsRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.save("Brief", BRIEF)
    rig.choose("Brief")
    missing = tmp_path / "not there" / "x.json"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_args: (str(missing), ""))
    rig.do("Export…")
    rig.qtbot.waitUntil(lambda: "x.json couldn't be written" in told(rig), timeout=WAIT_MS)
    rig.notice_list.remove("presets")
    broken = tmp_path / "broken.json"
    broken.write_bytes(b"no preset")
    rig.entries()["Import…"].trigger()
    (dialog,) = rig.tab.findChildren(QFileDialog)
    dialog.fileSelected.emit(str(broken))
    dialog.reject()
    rig.qtbot.waitUntil(lambda: bool(told(rig)), timeout=WAIT_MS)
    assert (rig.presets.names(), rig.chosen) == (["Brief"], named("Brief"))


def test_a_chat_that_is_closed_before_its_preset_is_saved(rig: SettingsRig) -> None:
    rig.chats.new_temporary()
    going_on = threading.Event()
    rig.stored_presets.change(lambda _presets: going_on.wait(WAIT_MS / 1000))
    rig.tab.save_button.click()
    (dialog,) = rig.tab.findChildren(QInputDialog)
    dialog.setTextValue("Brief")
    dialog.accept()
    model = rig.model
    rig.chats.new()
    rig.qtbot.waitUntil(lambda: not isValid(model), timeout=WAIT_MS)
    going_on.set()
    rig.qtbot.waitUntil(lambda: rig.presets.names() == ["Brief"] and rig.stored_presets._lane.is_idle())
    assert rig.chosen == ChatSettings()
