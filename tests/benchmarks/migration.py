"""Opens a chat file of version 2 whose answers have their thinking in the text.

    python -m tests.benchmarks.migration [--messages N] [--share PERCENT] [--tokens N]

Told are the seconds of the migration to version 3, on the clock and on the processor: that of the columns and indexes
alone, and with the split of the answers. The copy that is made before is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import tempfile
import time
from pathlib import Path

from app.chats.model import StoredMessage, pack, to_json
from app.chats.rows import token_blob
from app.chats.schema import MIGRATIONS, migrate
from app.chats.store import new_id
from app.protocol.events import Piece

_MESSAGES_A_CHAT = 20


def fill(connection: sqlite3.Connection, messages: int, share: int, tokens: int) -> None:
    """Every second message is an answer, ``share`` percent of these with thinking in two thirds of their tokens."""
    migrate(connection, MIGRATIONS[:2])
    plain = ["word "] * tokens
    marked = ["<think>", "\n", *plain[: tokens * 2 // 3], "</think>", "\n\n", *plain[tokens * 2 // 3 :]]
    kinds = [("".join(texts), to_json(pack([Piece(text=text) for text in texts])), texts) for texts in (plain, marked)]
    with connection:
        chat_id, parent = "", None
        for number in range(messages):
            if number % _MESSAGES_A_CHAT == 0:
                chat_id, parent = new_id(), None
                chat = (chat_id, f"Chat {number}", 1.0, float(number), number)
                connection.execute(
                    "INSERT INTO chats (id, title, created_at, updated_at, number) VALUES (?,?,?,?,?)", chat
                )
            is_answer = number % 2 == 1
            text, packed, texts = kinds[is_answer and number // 2 % 100 < share]
            one = StoredMessage(new_id(), chat_id, parent, "assistant" if is_answer else "user", text, "complete", 1.0)
            connection.execute(
                "INSERT INTO messages (id, chat_id, parent_id, role, status, created_at, text, provenance, tokens) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(one.id, chat_id, parent, one.role, one.status, one.created_at, text),
                    *((packed, token_blob(range(len(texts)))) if is_answer else ("[]", b"")),
                ),
            )
            parent = one.id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--share", type=int, default=20, help="of the answers, in percent")
    parser.add_argument("--tokens", type=int, default=500, help="of an answer")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for share in (0, arguments.share):
            path = Path(folder) / f"{share}.sqlite"
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA secure_delete = ON")
                fill(connection, arguments.messages, share, arguments.tokens)
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                began, worked = time.perf_counter(), time.process_time()
                migrate(connection)
                passed, worked = time.perf_counter() - began, time.process_time() - worked
            size = path.stat().st_size / 1e6
            print(
                f"{arguments.messages:,} messages, {size:,.0f} MB, {share} % of the answers with thinking: "
                f"{passed:.1f} s, {worked:.1f} s on the processor"
            )


if __name__ == "__main__":
    main()
