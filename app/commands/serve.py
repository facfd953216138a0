"""``slipstream serve``: serves other programs with an engine of its own, until Ctrl+C."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from app.commands.options import add_drafter_options, add_head_option, add_model_options, command, whole
from app.commands.output import show_progress, tell
from app.commands.session import drafter_choice, load_command, show_load_progress, show_refusals
from app.protocol.answering import AnswerSettings
from app.protocol.events import PairLoaded
from app.protocol.serving import DEFAULT_PORT
from app.server import serving as headless
from app.server.guard import Guard, is_loopback, key_from
from app.system import KnownError
from app.words import visible


def _add_options(parser: argparse.ArgumentParser) -> None:
    server = parser.add_argument_group("server")
    server.add_argument(
        "--port", type=whole(0, 65535), default=DEFAULT_PORT, metavar="N", help=f"default {DEFAULT_PORT}; 0 means any"
    )
    server.add_argument(
        "--host",
        metavar="ADDRESS",
        help="where to listen (default: 127.0.0.1 and ::1, for this computer only). Any other address needs "
        "--api-key-file: nothing is encrypted, and anyone who has the key can use the model",
    )
    server.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="clients have to send the key in this file; if there is no such file, it is made with a new key",
    )
    server.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name that clients may use for this computer; can be given several times",
    )
    server.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="another web page that may use the server, for example https://example.org; can be given several times",
    )
    server.add_argument("--quiet", action="store_true", help="don't log requests on standard error")
    add_model_options(parser)
    drafting = parser.add_argument_group("drafting")
    add_drafter_options(drafting)
    add_head_option(drafting)
    drafting.add_argument(
        "--exact",
        action="store_true",
        default=None,
        help='load the target so that requests with {"slipstream": {"exact": true}} take the least time',
    )


@command("serve", "let other programs use a model, over the OpenAI API", _add_options, json=False)
def serve(options: argparse.Namespace) -> int:
    """Serve until the process is asked to end."""
    if options.host is not None and not is_loopback(options.host) and options.api_key_file is None:
        raise KnownError(
            f"At {options.host}, other computers could use the model. Give --api-key-file, so that they need a key."
        )
    load = load_command(options)
    key, is_new = key_from(options.api_key_file) if options.api_key_file else (None, False)
    if is_new:
        tell(f"A new API key is in {options.api_key_file}.")
    _log_to_terminal(quiet=options.quiet)
    guard = Guard(
        key=key,
        hosts=frozenset(map(str.lower, options.allow_host)),
        origins=frozenset(origin.lower().rstrip("/") for origin in options.allow_origin),
    )
    serving = headless.serve(
        load,
        guard,
        options.host,
        options.port,
        usual=AnswerSettings(drafter=drafter_choice(options), draft_length=options.draft_length),
        on_progress=show_load_progress,
        on_ready=_show_ready,
    )
    asyncio.run(serving)
    return 0


def _show_ready(pair: PairLoaded, addresses: Sequence[tuple[str, int]], model: str) -> None:
    show_progress("")
    show_refusals(pair)
    places = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses]
    draft = f" with the draft {pair.draft.name}" if pair.draft else ""
    print(visible(f"Serving {model}{draft} at {' and '.join(f'http://{place}/v1' for place in places)}"), flush=True)


def _log_to_terminal(*, quiet: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("slipstream.server")
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    log.addHandler(handler)
    log.propagate = False
