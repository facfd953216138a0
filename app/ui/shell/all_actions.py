"""The table of actions: what the user can do in the main window, and what views request of the app."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from PySide6.QtCore import QUrl
from PySide6.QtGui import QAction, QDesktopServices, QGuiApplication, QKeySequence
from PySide6.QtWidgets import QWhatsThis

from app import system
from app.models.starter import starter_file
from app.ui.actions import Action, Actions
from app.ui.chat.composer import ATTACH_KEYS
from app.ui.chat.list.view import MOVE_KEYS, PIN_KEYS
from app.ui.settings.general_page import ZOOM_STEPS

if TYPE_CHECKING:
    from app.chats.model import StoredCall
    from app.ui.app import App
    from app.ui.chat.answers import Decision
    from app.ui.chat.tool_cards import About

    _A: TypeAlias = Action[App]
else:
    _A = Action

_KEY = QKeySequence.StandardKey


# ------------------------------------------------------------ when an action is possible


def _is_stored(app: App) -> bool:
    return not app.ctx.chats.current.is_new and not app.ctx.chats.current.is_temporary


def _can_answer_again(app: App) -> bool:
    return not app.ctx.chats.current.is_new and not app.ctx.chats.current.state.is_busy


def _has_messages(app: App) -> bool:
    return bool(app.ctx.chats.current.messages)


def _can_stop(app: App) -> bool:
    return app.ctx.chats.current.state.is_busy or app.speed.is_measuring()


def _can_measure(app: App) -> bool:
    remote = app.ctx.loader.remote()
    can_switch = remote is None or remote.can_switch_drafting
    return app.ctx.engine.state().has_pair and can_switch and not app.speed.is_measuring()


def _can_stop_thinking(app: App) -> bool:
    """Not while a server writes the answer: it can't be told."""
    remote = app.ctx.loader.remote()
    return remote is None or "stop_thinking" not in remote.refused


def _is_thinking(app: App) -> bool:
    live = app.ctx.chats.current.live
    return live is not None and live.is_thinking and _can_stop_thinking(app)


def _is_asking(app: App) -> bool:
    live = app.ctx.chats.current.live
    return live is not None and live.is_asking


def _edit(name: str, text: str, keys: QKeySequence.StandardKey) -> _A:
    """Apply an editing action to the focused field or view."""
    return _A(name, text, lambda app: partial(app.edit_menu.act, name), keys, lambda app: app.edit_menu.can(name))


# ------------------------------------------------------------ what actions do


def _stop(app: App) -> None:
    """Stop the answer in the current chat, or else a measurement."""
    if app.ctx.chats.current.state.is_busy:
        app.ctx.chats.current.stop()
    else:
        app.speed.stop()


def _decide(app: App, decision: Decision, call_id: str = "", reason: str = "") -> None:
    """Decide about a tool call, by default the first one that waits in the current chat."""
    chat = app.ctx.chats.current
    waiting = [call.id for call in chat.live.calls if call.state == "asked"] if chat.live is not None else []
    chat.decide(call_id or next(iter(waiting), ""), decision, reason)


def _about_tool(app: App, call: StoredCall) -> About:
    """What is known about the tool that a call uses."""
    from app.ui.chat.tool_cards import About

    live = app.ctx.chats.current.live
    tool = live.offered.get(call.name) if live is not None else None
    if tool is None:
        return About()
    return About(tool.tool.description, app.ctx.tools.permissions.has_changed(tool), tool.tool.approach)


def _ask_again(app: App) -> None:
    """Ask the server again for the last answer, which it didn't finish."""
    from app.ui.chat.answers import SERVER

    app.ctx.notices.remove(SERVER)
    app.ctx.chats.current.regenerate()


def _toggle_drafted(app: App) -> None:
    app.ctx.settings.values.drafted_visible = not app.ctx.settings.values.drafted_visible
    app.ctx.settings.apply()


def _toggle_wrap(app: App) -> None:
    from app.ui.chat.markdown.code_blocks import code_wrap

    app.ctx.settings.values.code_wrap = not app.ctx.settings.values.code_wrap
    code_wrap().set_on(app.ctx.settings.values.code_wrap)
    app.ctx.settings.apply()


def _show_shortcuts(app: App) -> None:
    from app.ui.shell.help import ShortcutsDialog

    ShortcutsDialog(app.ctx.actions.shortcuts(), app.window).open()


def _show_figures(app: App) -> None:
    from app.ui.shell.help import FiguresDialog

    FiguresDialog(app.window).open()


def _show_about(app: App) -> None:
    from app.ui.shell.help import AboutDialog

    AboutDialog(app.ctx.engine.hello(), app.ctx.loader.remote(), app.window).open()


def _open_logs() -> None:
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(system.log_dir())))


def _copy_report(app: App) -> None:
    """The report about an engine that ended unexpectedly."""
    QGuiApplication.clipboard().setText(app.ctx.loader.report())


# ------------------------------------------------------------ the menu bar; ``None`` is a separator

# Avoids keys that text fields use on one of the systems, such as Ctrl+D, Ctrl+E and Ctrl+K.
_FILE = (
    _A("new_chat", "&New chat", lambda app: app.chat_list.new_chat, "Ctrl+N", description="Start a new chat"),
    _A("new_temporary_chat", "New &temporary chat", lambda app: app.chat_list.new_temporary_chat, "Ctrl+Shift+N"),
    None,
    _A("open_models", "&Open models…", lambda app: app.opening.open_local_models, "Ctrl+O"),
    _A("open_server", "Open a model on a ser&ver…", lambda app: app.opening.open_server, "Ctrl+Shift+O"),
    _A(
        "load_recent",
        "&Recent pairs",
        lambda app: app.opening.load_recent,
        choices=lambda app: app.opening.recent_choices,
    ),
    _A("load_guide", "Slipstream &Guide", lambda app: app.opening.load_guide, button="Load Slipstream Guide"),
    _A(
        "load_starter",
        "Starter mode&l",
        lambda app: app.opening.load_starter,
        button="Use the starter model",
        shown=lambda: starter_file() is not None,
    ),
    None,
    _A("show_library", "&Model library…", lambda app: app.windows.show_library, "Ctrl+L", everywhere=True),
    _A("get_models", "Get mo&dels…", lambda app: app.windows.show_recommended, "Ctrl+Shift+L", everywhere=True),
    None,
    _A("import_chats", "&Import chats…", lambda app: app.chat_list.import_chats),
    _A("export_chat", "&Export chat…", lambda app: app.chat_list.export_shown_chat, enabled=_is_stored),
    _A("export_all_chats", "Export &all chats…", lambda app: app.chat_list.export_all_chats),
    _A("print_chat", "&Print chat…", lambda app: app.chat_list.print_shown_chat, _KEY.Print, enabled=_is_stored),
    None,
    _A(
        "show_settings",
        "&Settings…",
        lambda app: app.windows.show_settings,
        "Ctrl+,",
        role=QAction.MenuRole.PreferencesRole,
        everywhere=True,
    ),
    _A("quit", "&Quit", lambda app: app.window.close, "Ctrl+Q", role=QAction.MenuRole.QuitRole, everywhere=True),
)

_EDIT = (
    _edit("undo", "&Undo", _KEY.Undo),
    _edit("redo", "&Redo", _KEY.Redo),
    None,
    _edit("cut", "Cu&t", _KEY.Cut),
    _edit("copy", "&Copy", _KEY.Copy),
    _edit("paste", "&Paste", _KEY.Paste),
    _edit("select_all", "Select &all", _KEY.SelectAll),
    None,
    _A("find_in_chat", "&Find in chat…", lambda app: app.window.find_bar.open, "Ctrl+F", _has_messages),
    _A("find_next", "Find &next", lambda app: partial(app.window.find_bar.step, 1), ("F3", "Ctrl+G"), _has_messages),
    _A(
        "find_previous",
        "Find pre&vious",
        lambda app: partial(app.window.find_bar.step, -1),
        ("Shift+F3", "Ctrl+Shift+G"),
        _has_messages,
    ),
    None,
    _A("search_chats", "&Search all chats", lambda app: app.chat_list.search_chats, "Ctrl+Shift+F"),
)

_VIEW = (
    _A(
        "toggle_chats",
        "&Chats",
        lambda app: partial(app.window.toggle_panel, "chats"),
        "Ctrl+B",
        description="Show or hide the chats",
        checkable=True,
    ),
    _A(
        "toggle_speed",
        "&Speed panel",
        lambda app: app.window.toggle_speed,
        "Ctrl+.",
        description="Show or hide the Speed panel",
        checkable=True,
    ),
    _A(
        "chat_settings",
        "Chat s&ettings",
        lambda app: app.window.toggle_settings,
        "Ctrl+I",
        description="Show or hide the chat settings",
        checkable=True,
    ),
    None,
    _A(
        "zoom_in",
        "Zoom &in",
        lambda app: partial(app.zoom.step, 1),
        ("Ctrl++", "Ctrl+="),
        lambda app: app.zoom.percent() < ZOOM_STEPS[-1],
        everywhere=True,
    ),
    _A(
        "zoom_out",
        "Zoom &out",
        lambda app: partial(app.zoom.step, -1),
        "Ctrl+-",
        lambda app: app.zoom.percent() > ZOOM_STEPS[0],
        everywhere=True,
    ),
    _A("zoom_reset", "Actual si&ze", lambda app: partial(app.zoom.set, 100), "Ctrl+0", everywhere=True),
    None,
    _A(
        "show_drafted",
        "Show &drafted tokens",
        lambda app: partial(_toggle_drafted, app),
        "Ctrl+Shift+D",
        checkable=True,
        checked=lambda app: app.ctx.settings.values.drafted_visible,
    ),
    _A(
        "wrap_code",
        "&Wrap long lines of code",
        lambda app: partial(_toggle_wrap, app),
        checkable=True,
        checked=lambda app: app.ctx.settings.values.code_wrap,
    ),
    None,
    _A("show_trash", "&Trash", lambda app: app.chat_list.show_trash),
    None,
    _A("next_pane", "&Next pane", lambda app: partial(app.window.panes.go, 1), "F6"),
    _A("previous_pane", "&Previous pane", lambda app: partial(app.window.panes.go, -1), "Shift+F6"),
)

_CHAT = (
    _A("attach_files", "Attac&h files…", lambda app: app.attachments.choose, ATTACH_KEYS),
    _A("chat_tools", "Tools &in this chat…", lambda app: app.tools.show),
    None,
    _A("stop", "&Stop", lambda app: partial(_stop, app), "Esc", _can_stop),
    _A("stop_thinking", "Stop &thinking", lambda app: app.ctx.chats.current.stop_thinking, "Ctrl+T", _is_thinking),
    None,
    _A(
        "allow_call",
        "Allow tool call onc&e",
        lambda app: partial(_decide, app, "once"),
        "Ctrl+Shift+Y",
        _is_asking,
        button="Allow once",
        repeats=False,
    ),
    _A(
        "deny_call",
        "Den&y tool call",
        lambda app: partial(_decide, app, "deny"),
        "Ctrl+Shift+X",
        _is_asking,
        button="Deny",
    ),
    None,
    _A("regenerate", "&Regenerate", lambda app: app.ctx.chats.current.regenerate, "Ctrl+R", _can_answer_again),
    _A(
        "continue_answer",
        "&Continue answer",
        lambda app: app.messages.continue_answer,
        "Ctrl+Shift+Return",
        lambda app: app.messages.continued is not None,
        button="Continue",
    ),
    _A(
        "branch_chat",
        "&Branch into a new chat",
        lambda app: app.messages.branch,
        "Ctrl+Shift+B",
        lambda app: app.messages.can_branch(),
    ),
    None,
    _A("rename_chat", "Rena&me chat…", lambda app: app.chat_list.rename_chat, "F2", _is_stored),
    _A("delete_chat", "&Delete chat", lambda app: app.chat_list.delete_shown_chat, enabled=_is_stored),
    _A(
        "undo_chat",
        "&Undo delete",
        lambda app: app.ctx.operations.undo,
        "Ctrl+Shift+T",
        lambda app: app.ctx.operations.can_undo(),
        button="Undo",
        description="Undo the deletion",
    ),
    None,
    _A("previous_message", "&Previous message", lambda app: partial(app.messages.step, -1), "Alt+Up", _has_messages),
    _A("next_message", "&Next message", lambda app: partial(app.messages.step, 1), "Alt+Down", _has_messages),
    _A("focus_composer", "&Write a message", lambda app: app.window.composer.setFocus, "Shift+Esc"),
    None,
    _A("compare_last", "Compare &last answer", lambda app: app.compare.compare_last, "Ctrl+Shift+R", _can_answer_again),
    _A("compare_prompts", "C&ompare prompts…", lambda app: app.compare.compare_prompts),
    None,
    _A("measure_plain", "Me&asure speed without a draft", lambda app: app.speed.measure, enabled=_can_measure),
)

_HELP = (
    _A("show_shortcuts", "&Keyboard shortcuts", lambda app: partial(_show_shortcuts, app), ("F1", "Ctrl+/")),
    _A("explain", "&What's this?", lambda _: QWhatsThis.enterWhatsThisMode),
    _A("show_figures", "What the &figures mean", lambda app: partial(_show_figures, app)),
    _A("open_logs", "Open &log folder", lambda _: _open_logs),
    None,
    _A("show_about", "&About Slipstream", lambda app: partial(_show_about, app), role=QAction.MenuRole.AboutRole),
)

MENUS = {"&File": _FILE, "&Edit": _EDIT, "&View": _VIEW, "&Chat": _CHAT, "&Help": _HELP}

# ------------------------------------------------------------ elsewhere

_MESSAGES = (
    _A(
        "regenerate_answer",
        "Regenerate",
        lambda app: app.ctx.chats.current.regenerate,
        description="Regenerate this answer",
    ),
    _A(
        "regenerate_with",
        "Regenerate with",
        lambda app: app.messages.regenerate_with,
        choices=lambda app: app.messages.regenerate_choices,
    ),
    _A(
        "continue_message",
        "Continue",
        lambda app: app.messages.continue_answer,
        description="Continue this answer where it was cut off",
    ),
    _A("compare_answer", "Compare without a draft", lambda app: app.compare.compare_answer),
    _A(
        "edit_message",
        "Edit…",
        lambda app: app.ctx.chats.current.edit,
        button="Edit",
        description="Edit this message and send it again",
    ),
    _A(
        "branch_message",
        "Branch into a new chat",
        lambda app: app.messages.branch,
        enabled=lambda app: app.messages.can_branch(),
    ),
    _A("delete_message", "Delete this message", lambda app: partial(app.messages.delete, following=False)),
    _A("delete_from_here", "Delete from here on", lambda app: partial(app.messages.delete, following=True)),
    _A("choose_version", "", lambda app: app.ctx.chats.current.choose_version),
    _A("skip_thinking", "Stop thinking", lambda app: app.ctx.chats.current.stop_thinking, enabled=_can_stop_thinking),
    _A("about_tool", "", lambda app: partial(_about_tool, app)),
    _A("allow_in_chat", "Allow in this chat", lambda app: partial(_decide, app, "chat")),
    _A("always_allow", "Always allow this tool", lambda app: partial(_decide, app, "always")),
    _A("show_attachment", "", lambda app: app.attachments.preview),
    _A("tokens_of", "", lambda app: app.context_meter.tokens_of),
    _A("open_model_file", "", lambda app: app.opening.open_file),
    _A("load_thumbnail", "", lambda app: app.attachments.thumbnails.load),
    _A("ask", "", lambda app: app.window.composer.send),
    _A("hide_introduction", "", lambda app: app.hide_introduction),
)
"""Their argument is a message's id."""

_CHAT_LIST = (
    _A("open_chat", "", lambda app: app.ctx.chats.open),
    _A("open_message", "", lambda app: app.messages.open_message),
    _A("name_chat", "&Rename…", lambda app: app.ctx.operations.rename),
    _A("pin_chats", "&Pin", lambda app: app.ctx.operations.pin, PIN_KEYS, description="Pin the chat"),
    _A("move_chats", "&Move to", lambda app: app.ctx.operations.move, MOVE_KEYS, description="Move the chat"),
    _A("export_chats", "&Export…", lambda app: app.chat_list.export_chats),
    _A("delete_chats", "&Delete", lambda app: app.chat_list.delete_chats, "Del", description="Delete the chat"),
    _A("create_folder", "New &folder…", lambda app: app.ctx.operations.create_folder),
    _A("name_folder", "&Rename…", lambda app: app.ctx.operations.rename_folder),
    _A("delete_folder", "&Delete folder", lambda app: app.ctx.operations.delete_folder),
    _A("search", "", lambda app: app.ctx.operations.search),
    _A("watch_trash", "", lambda app: app.ctx.operations.watch_trash),
    _A("restore_chats", "&Restore", lambda app: app.ctx.operations.restore),
    _A("erase_chats", "&Delete now…", lambda app: app.ctx.operations.erase),
)
"""Their argument is the id of a chat or folder."""

_NOTICES = (
    _A("dismiss", "Dismiss", lambda app: app.ctx.notices.remove),
    _A("wait", "Wait", lambda app: app.ctx.notices.remove),
    _A("restart", "Restart", lambda app: app.ctx.loader.restart),
    _A("restart_plain", "Restart without a draft", lambda app: partial(app.ctx.loader.restart, with_draft=False)),
    _A("restart_on_cpu", "Restart on the CPU", lambda app: partial(app.ctx.loader.restart, on_cpu=True)),
    _A("copy_report", "Copy report", lambda app: partial(_copy_report, app)),
    _A("load_again", "Load again", lambda app: app.ctx.loader.load_again),
    _A("load_anyway", "Load anyway", lambda app: app.ctx.loader.load_anyway),
    _A("connect_again", "Retry", lambda app: app.ctx.loader.load_again),
    _A("choose_server", "Server…", lambda app: app.opening.open_server),
    _A("enter_key", "Enter key…", lambda app: partial(app.opening.open_server, for_key=True)),
    _A("send_chat", "Send it", lambda app: app.ctx.chats.answers.send_chat),
    _A("do_not_send", "Don't send", lambda app: app.ctx.chats.answers.do_not_send),
    _A("answer", "Answer it", lambda app: app.ctx.chats.current.regenerate),
    _A("ask_again", "Ask again", lambda app: partial(_ask_again, app)),
    _A("cancel_answer", "Stop", lambda app: app.ctx.queue.cancel_all),
    _A("save_again", "Try again", lambda app: app.ctx.chats.save_again),
    _A("load_downloaded", "Load", lambda app: app.opening.load_downloaded),
    _A("show_downloads", "Show downloads", lambda app: app.windows.show_downloads),
    _A("get_projector", "Get it", lambda app: app.windows.get_projector),
    _A("attach_pages", "Attach the pages as pictures", lambda app: app.attachments.attach_scans),
    _A("use_beginning", "Use the beginning", lambda app: app.attachments.use_beginning),
    _A("raise_context", "Raise the context", lambda app: app.opening.open_models),
    _A("restart_api_server", "Restart the API server", lambda app: app.serving.restart),
    _A("api_server_settings", "API server settings…", lambda app: partial(app.windows.show_settings, "API server")),
    _A("tool_settings", "Tool settings…", lambda app: partial(app.windows.show_settings, "Tools")),
)

_OTHERS = (
    _A("choose_models", "Open models…", lambda app: app.opening.open_models),
    _A("load_files", "", lambda app: app.opening.load_files),
    _A("load_pair", "", lambda app: app.opening.load_pair),
    _A("open_pair", "", lambda app: app.opening.open_pair),
    _A("hide_starter", "", lambda app: app.opening.hide_starter),
    _A("show_folders", "Folders…", lambda app: partial(app.windows.show_settings, "Models")),
    _A("ask_for_token", "Enter token…", lambda app: app.windows.ask_for_token),
    _A("get_proposed", "Get this model", lambda app: app.windows.get_proposal),
    _A("cancel_loading", "Cancel", lambda app: app.ctx.loader.cancel, description="Cancel loading"),
)

ELSEWHERE = {
    "In the chat list": _CHAT_LIST,
    "In the messages": _MESSAGES,
    "In notices": _NOTICES,
    "In several places": _OTHERS,
}


def all_actions() -> Actions:
    """The actions of a main window, created with it."""
    return Actions(MENUS, ELSEWHERE)
