"""What macOS is told about Slipstream.app (``Contents/Info.plist``, written by PyInstaller)."""

from __future__ import annotations

from typing import Any

from installer import places

MINIMUM_MACOS = "13.0"
"""What PySide6's wheel asks for; llama.cpp is built for it too (``CMAKE_OSX_DEPLOYMENT_TARGET``)."""

GGUF_TYPE = "org.ggml.gguf"
"""Imported, not exported: the file type is not ours, and another app may declare it as well."""


def info_plist() -> dict[str, Any]:
    """The keys beyond those that PyInstaller sets itself."""
    version = places.version()
    return {
        "CFBundleIdentifier": places.application_id(),
        "CFBundleName": "Slipstream",
        "CFBundleDisplayName": "Slipstream",
        "CFBundleShortVersionString": version,
        "CFBundleVersion": version,
        "CFBundleDocumentTypes": [
            {
                "CFBundleTypeName": "Language model (GGUF)",
                "CFBundleTypeRole": "Viewer",
                "LSHandlerRank": "Alternate",  # in “Open With”, but never the default unless the user says so
                "LSItemContentTypes": [GGUF_TYPE],
            }
        ],
        "UTImportedTypeDeclarations": [
            {
                "UTTypeIdentifier": GGUF_TYPE,
                "UTTypeDescription": "Language model (GGUF)",
                "UTTypeConformsTo": ["public.data"],
                "UTTypeTagSpecification": {"public.filename-extension": ["gguf"]},
            }
        ],
        "LSApplicationCategoryType": "public.app-category.productivity",
        "LSMinimumSystemVersion": MINIMUM_MACOS,
        "NSHighResolutionCapable": True,
        "NSPrincipalClass": "NSApplication",
        "NSSupportsAutomaticGraphicsSwitching": True,
    }
