"""How each chat template in a folder writes tool calls, as far as it is known.

python -m tests.benchmarks.tool_formats LLAMA_CPP/models/templates
"""

from __future__ import annotations

import argparse
from pathlib import Path

from app.engine.decoding.chat_template import ChatTemplate
from app.engine.decoding.tools import found_format
from app.errors import KnownError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for path in sorted(parser.parse_args().folder.glob("*.jinja")):
        try:
            name, text_arguments = found_format(ChatTemplate(path.read_text(), "<s>", "</s>"))
        except KnownError as error:
            name, text_arguments = "", False
            print(f"{path.stem}: {error}")
        print(f"{path.stem:55} {name or '-'}{' (arguments as text)' if text_arguments else ''}")


if __name__ == "__main__":
    main()
