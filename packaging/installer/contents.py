"""What PyInstaller finds and the package leaves out."""

from __future__ import annotations

import re
from functools import cache
from pathlib import PurePosixPath

Entry = tuple[str, str, str]
"""Of PyInstaller's tables: the path inside the bundle, the file it comes from, and the kind."""

_UNWANTED = re.compile(
    "|".join(
        (
            # Plugins for what the app does not do: OpenGL, a keyboard on the screen, bare framebuffers, other shells.
            # Without gtk3 file dialogs of GNOME come from the portal, which needs no GTK in here.
            r"/plugins/(egldeviceintegrations|generic|networkinformation|qmltooling|sqldrivers|tls)/",
            r"/plugins/(wayland-graphics-integration-client|xcbglintegrations)/",
            r"/plugins/wayland-shell-integration/(?!libxdg-shell)",
            r"/plugins/platforms/\w*(eglfs|linuxfb|vnc|minimal|vkkhrdisplay|direct2d)",
            r"/plugins/platforminputcontexts/\w*virtualkeyboard",
            r"/plugins/platformthemes/\w*gtk3",
            r"/plugins/imageformats/\w*(icns|pdf|tga|tiff|wbmp)",
            r"^PySide6/(Qt/)?(qml|translations)/",
            # How pip put a package here, with hashes of programs that name a path of this machine.
            r"\.dist-info/(RECORD|INSTALLER|REQUESTED|direct_url\.json)$",
            r"(^|/)opengl32sw\.dll$",
            # A second copy beside that in llama_cpp/lib would be loaded as well.
            r"^(lib)?(ggml|llama|mtmd)[^/]*$",
            # Taken from the system: they have to match its drivers, its fonts' settings and its services.
            r"^lib(stdc\+\+|gcc_s|GL|EGL|GLX|GLdispatch|OpenGL|cuda|vulkan|drm|gbm|X11|X11-xcb|xcb|Xau|Xdmcp|fontconfig|freetype)\.so",
            # The plugin for printing needs CUPS; without it, that isn't loaded.
            r"^lib(cups|avahi-(client|common)|gnutls|p11-kit|idn2|unistring|tasn1|nettle|hogweed|gmp)\.so",
            r"^lib(wayland-(client|cursor|egl)|expat|dbus-1|glib-2\.0|gthread-2\.0|systemd|selinux|cap|gpg-error|gcrypt)\.so",
        )
    )
)


def wanted(binaries: list[Entry]) -> list[Entry]:
    """``binaries`` without what is not wanted and without libraries that only that needs."""
    kept = [entry for entry in binaries if not is_unwanted(entry[0])]
    left = len(binaries)
    while len(kept) < left:  # what was only needed by what has just gone
        left = len(kept)
        needed = {name for _, source, kind in kept if kind != "SYMLINK" for name in _needs(source)}
        kept = [entry for entry in kept if not _is_shared(entry[0]) or PurePosixPath(entry[0]).name in needed]
    return kept


def is_unwanted(destination: str) -> bool:
    """Whether the file at ``destination``, its path inside the bundle, stays out."""
    return _UNWANTED.search(destination.replace("\\", "/")) is not None


@cache
def _needs(file: str) -> set[str]:
    """Names of all libraries ``file`` is linked to, and of those they are linked to."""
    from PyInstaller.depend import bindepend  # which only the packaging environment has

    return {PurePosixPath(name).name for name, _ in bindepend.get_imports(file)}


def _is_shared(destination: str) -> bool:
    """Whether it is there for others to be linked to; what Python, Qt and the program open by name is not."""
    return re.search(r"^(PySide6/Qt/lib/)?lib(?!python)[^/]+\.so[.\d]*$", destination) is not None
