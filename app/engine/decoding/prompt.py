"""A chat to tokens: its template, control tokens, what leaves when the context is full, and cut answers."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate, compress, pairwise

import msgspec

from app import words
from app.engine.decoding import Vocabulary
from app.engine.decoding.chat_template import TemplateInputs, choose
from app.engine.decoding.text import TokenTexts, answer_text
from app.engine.decoding.thinking import Marks
from app.engine.decoding.thinking_splitters import ANALYSIS, HARMONY
from app.engine.decoding.tools import (
    as_models_write,
    as_text,
    for_template,
    found_format,
    in_front,
    one_by_one,
    with_texts,
    written,
)
from app.protocol.calls import pattern_of
from app.protocol.commands import Image, Message
from app.protocol.events import Piece
from app.protocol.options import Overflow, Role, TemplateVariables
from app.protocol.tools import FORMATS, Tool, ToolCall
from app.system import KnownError

LEAST_ANSWER = 16
"""Tokens that must be free for an answer; otherwise, the message is refused."""
_REMEMBERED_CHATS = 32
_REMEMBERED_SIZES = 100_000
_NO_SYSTEM_PROMPT = Message(role="system", content="")
_AROUND = 8
"""Approximate number of tokens that a template adds to a message."""


@dataclass(frozen=True)
class Cut:
    """The turns from ``first`` up to ``end`` are left out; all others stay."""

    first: int
    end: int

    def kept(self, turns: Sequence[Message]) -> list[Message]:
        """Those of ``turns`` that stay."""
        return [*turns[: self.first], *turns[self.end :]]


def content_of(message: Message) -> tuple[str, ...]:
    """What a message says and shows, as a key."""
    calls = (f"{call.id} {call.name} {call.arguments}" for call in message.tool_calls)
    return (message.content, *(image.sha256 for image in message.images), *calls)


class Fitting:
    """Chooses which turns of a chat are left out when it outgrows its context. Any thread may ask.

    That is when less than a quarter of the context would be free for the answer; then half of it is freed at once, so
    that the next turns can continue from the KV cache. If only the question would stay, an eighth is enough: otherwise
    a long document would be gone with the second question about it. How many to leave out is estimated from the lengths
    of their texts, in proportion to the known length of the whole prompt: a chat may have thousands of turns.
    """

    def __init__(self, context_length: int, count: Callable[[Message], int]) -> None:
        """``context_length`` in tokens; ``count`` returns the tokens of a message's text and images."""
        self.context_length = context_length
        self._count = count
        self._sizes: dict[int, int] = {}
        """The approximate number of tokens of single messages, by a hash of their text."""
        self._remembered: list[tuple[int, int, int]] = []
        """First and end of what was left out, and a hash of all turns up to there, for the chat answered most recently.
        """

    @property
    def room(self) -> int:
        """The maximum number of tokens of a prompt."""
        return self.context_length - LEAST_ANSWER

    def cut(
        self,
        system: Sequence[Message],
        turns: list[Message],
        overflow: Overflow,
        length: Callable[[list[Message]], int],
        continued: int = 0,
    ) -> Cut:
        """What leaves a chat with this ``system`` prompt, if it has one, and these ``turns``.

        ``length`` returns the tokens of a prompt with some of the turns; it is called last for those that stay.
        ``continued``: so many tokens of the answer there are already.
        """
        if overflow == "stop":
            length(turns)
            return Cut(0, 0)
        cut, sizes = self._begin(turns, keeps_first=overflow == "keep_ends"), list[int]()
        room, limit = self.room - continued, self.context_length * 3 // 4
        while (tokens := length(cut.kept(turns))) > min(limit, room):
            sizes = sizes or list(map(self._size, (*(system or [_NO_SYSTEM_PROMPT]), *turns)))
            half = min(self.context_length // 2, room)
            shorter = _shorter(turns, sizes, cut, half / tokens, room / tokens)
            if shorter == cut or (shorter.end == _last_question(turns) and tokens <= room * 7 // 8):
                break
            cut, limit = shorter, room
        return cut

    def _size(self, message: Message) -> int:
        size = self._sizes.get(key := hash(content_of(message)))
        if size is None:
            if len(self._sizes) >= _REMEMBERED_SIZES:
                self._sizes.clear()
            size = self._sizes[key] = self._count(message) + _AROUND
        return size

    def _begin(self, turns: Sequence[Message], *, keeps_first: bool) -> Cut:
        """What was left out of the last prompt of this chat, or nothing: the KV cache only helps if this prompt starts
        the same. ``keeps_first``: everything before the second question stays."""
        questions = (place for place in range(1, len(turns)) if turns[place].role == "user")
        first = next(questions, 0) if keeps_first else 0
        hashes = _hashes(turns)
        ends = (
            end
            for begun, end, known in self._remembered
            if begun == first and end < len(turns) and hashes[end] == known
        )
        return Cut(first, next(ends, first))

    def remember(self, turns: Sequence[Message], cut: Cut) -> None:
        """The next prompt of this chat should start like this one."""
        if cut.end > cut.first:
            entry = (cut.first, cut.end, _hashes(turns[: cut.end])[-1])
            self._remembered = [entry, *(other for other in self._remembered if other != entry)][:_REMEMBERED_CHATS]

    def forget(self) -> None:
        """Forget earlier chats."""
        self._remembered = []


def _last_question(turns: Sequence[Message]) -> int:
    """Where what always stays begins: the last question, with all calls and results of its answer so far."""
    return next((place for place in range(len(turns) - 1, 0, -1) if turns[place].role == "user"), 0)


def _hashes(turns: Sequence[Message]) -> list[int]:
    """Of no turn, of the first, of the first two, …"""
    return list(accumulate(turns, lambda before, turn: hash((before, turn.role, content_of(turn))), initial=0))


def _shorter(turns: Sequence[Message], sizes: Sequence[int], cut: Cut, share: float, most: float) -> Cut:
    """What to leave out so that ``share`` of the tokens that ``cut`` keeps stay: as few turns as possible.

    Whole turns are left out, so that the roles keep alternating. ``sizes``: of the system prompt, then of each turn.
    If the first turn should stay, but more than ``most`` of the tokens would stay with it, it is left out, too.
    """
    behind = [*accumulate(reversed(sizes[1:]), initial=0)][::-1]
    """Tokens from each turn to the end."""
    fixed, last = sizes[0] + behind[0] - behind[cut.first], _last_question(turns)
    whole = fixed + behind[cut.end]
    ends = [i for i in range(cut.end + 1, last + 1) if turns[i].role == "user"] or [cut.end]
    end = next((i for i in ends if fixed + behind[i] <= share * whole), ends[-1])
    if cut.first and fixed + behind[end] > most * whole:
        end = next((i for i in ends if sizes[0] + behind[i] <= share * whole), ends[-1])
        return Cut(0, end)
    return Cut(cut.first, end)


_MARKUP = re.compile(r"[<\[\]|｜]\S+[>\]\[|｜]")
_IN_NO_TEXT = re.compile("[|｜]")
"""Markup with it is never meant as text, such as HTML is."""
_HIDDEN = re.compile("(message-[0-9a-f]{32})")
Hidden = dict[str, str | Image | tuple[int, ...]]
"""What words that nobody can have typed stand for: texts with a control token in them, images, and tokens."""
Rendered = tuple[str, Hidden]
"""A prompt as text, with such words in it."""


class PromptTooLongError(KnownError):
    """A prompt of ``tokens`` doesn't fit into the context."""

    def __init__(self, message: str, tokens: int) -> None:
        super().__init__(message)
        self.tokens = tokens


class ChatTokenizer:
    """Chats and texts to tokens, for one loaded model. Keeps nothing of them; any thread may use it."""

    def __init__(self, vocabulary: Vocabulary, choice: str = "") -> None:
        """``choice`` of a template as in `Load.chat_template`. Raises `KnownError` if none can be rendered."""
        self.vocabulary = vocabulary
        self._bos = vocabulary.special_text("bos")
        controls, user_defined = vocabulary.special_texts()
        self.templates = choose(vocabulary, choice, {*controls, *user_defined})
        self.template = self.templates.usual
        self.tool_format, self.text_arguments = found_format(self.templates.with_tools)
        """How calls are written, and whether the template wants their arguments as text."""
        self._ends = (*controls, *user_defined)
        if FORMATS[self.tool_format].channels and not {*HARMONY} <= {*self._ends}:
            self.tool_format = "general"
        self.controls = _any_of(controls)
        """Matches the text of a control token."""
        sources = self.template.source + self.templates.with_tools.source
        is_markup = (_MARKUP.fullmatch(text) and (text in sources or _IN_NO_TEXT.search(text)) for text in user_defined)
        markup = list(compress(user_defined, is_markup))
        self._markup = _any_of(markup)
        """Matches the text of other tokens that a template may write; the tokenizer reads them in any text."""
        self._begins_markup = re.compile(f"(?={self._markup.pattern})")
        marks = [mark for mark in (*controls, *markup) if len(mark) > 2]
        self._begins = tuple(mark[cut:] for mark in marks for cut in (1, 2) if len(mark) > cut + 1)
        """What a text may begin with so that there is a mark where the template writes a bracket before it."""
        self._stops = tuple(mark[:-cut] for mark in marks for cut in (1, 2) if len(mark) > cut + 1)
        self._insides = frozenset(mark[1:-1] for mark in marks)

    def chat(self, messages: Sequence[Message], inputs: TemplateInputs) -> list[int]:
        """The tokens of a rendered chat. Raises `KnownError`."""
        return self.tokens(self.prompt(messages, inputs))

    def prompt(self, messages: Sequence[Message], inputs: TemplateInputs) -> Rendered:
        """A rendered chat, with calls as they were written where the template allows it. Raises `KnownError`."""
        try:
            if any(one.tokens and one.tool_calls for one in messages):
                with contextlib.suppress(KnownError):
                    return self.rendered(messages, inputs, as_written=True)
            return self.rendered(messages, inputs)
        except RecursionError as error:
            raise KnownError("A tool's description, or a call in this chat, is nested too deeply.") from error

    def size(self, message: Message) -> int:
        """The tokens of a message's text and images alone. Raises `KnownError` for an image."""
        return len(self.plain(message.content)) + len(self.images(message.images))

    def plain(self, text: str, *, bos: bool = False, special: bool = False) -> list[int]:
        """The tokens of a text alone. ``special``: with the control tokens in it."""
        return self.vocabulary.tokenize(text, special=special, bos=bos)

    def images(self, images: Sequence[Image]) -> list[int]:
        """What stands for ``images`` in a prompt. Raises `KnownError`."""
        return [token for image in images for token in self.vocabulary.image(image)]

    def tokens(self, rendered: Rendered, *, goes_on: bool = False) -> list[int]:
        """The tokens of a prompt, or with ``goes_on`` of the rest of one. Raises `KnownError` for an image."""
        text, hidden = rendered
        bos = not goes_on and not (self._bos and text.startswith(self._bos))
        tokens: list[int] = []
        for part, special in self._split(text, hidden):
            if isinstance(part, Image):
                tokens = tokens or self.vocabulary.tokenize("", special=False, bos=bos)
                tokens += self.vocabulary.image(part)
                goes_on = False  # as llama-server has it
                continue
            if isinstance(part, tuple):
                tokens += part
                goes_on = not self.vocabulary.mark(part[-1]).endswith(self._ends)
                continue
            if goes_on and not (special and self.controls.match(part)):
                tokens += self.continued(part, special=special)
            else:
                tokens += self.vocabulary.tokenize(part, special=special, bos=bos and not tokens)
            goes_on = not (special and part.endswith(self._ends))
        return tokens

    def continued(self, text: str, *, special: bool = False) -> list[int]:
        """The tokens of text that continues other text. Some vocabularies would put a space in front: a line break
        there prevents that, and is removed again if it is a token of its own."""
        line_break = self.vocabulary.tokenize("\n", special=False, bos=False)
        tokens = self.vocabulary.tokenize("\n" + text, special=special, bos=False)
        if tokens[: len(line_break)] == line_break:
            return tokens[len(line_break) :]
        return self.vocabulary.tokenize(text, special=special, bos=False)

    def rendered(self, messages: Sequence[Message], inputs: TemplateInputs, *, as_written: bool = False) -> Rendered:
        """A rendered chat; ``as_written``: with the tokens that calls were written in. Raises `KnownError`.

        The text of a control token within a message is just text. To tell it from the control tokens of the template,
        the template sees a word in its place that nobody can have typed.
        """
        hidden: Hidden = {}
        known = FORMATS[self.tool_format]

        def keep(text: str) -> str:
            hidden[new := unheard_of()] = text
            return new

        def hide(text: str) -> str:
            whole = text.encode("utf-8", "replace").decode()  # escapes in JSON may be half a surrogate pair
            if self._is_part(whole):
                return keep(whole)
            return self._markup.sub(lambda one: keep(one[0]), self.controls.sub(lambda one: keep(one[0]), whole))

        def shown(text: str, role: Role, images: Sequence[Image] = ()) -> str:
            words, own = self.content(Message(role=role, content=text, images=tuple(images)))
            hidden.update(own)
            return words

        safe = [
            msgspec.structs.replace(
                one,
                content=shown(one.content, one.role, one.images),
                thinking=shown(one.thinking, one.role),
                images=(),
                tool_calls=tuple(for_template(call, known, hide, keep) for call in one.tool_calls),
                tool_call_id=hide(one.tool_call_id),
                tool_name=hide(one.tool_name),
            )
            for one in messages
        ]
        variables = {
            name: shown(value, "user") if isinstance(value, str) else value for name, value in inputs.variables.items()
        }
        tools = [
            msgspec.structs.replace(
                tool, description=hide(tool.description), parameters=with_texts(tool.parameters, hide)
            )
            for tool in inputs.tools
        ]
        own: list[tuple[Message, tuple[ToolCall, ...], tuple[ToolCall, ...]]] = []
        for place, one in enumerate(messages if as_written else ()):
            if one.tokens and one.tool_calls:
                calls: tuple[ToolCall, ...] = safe[place].tool_calls
                places = tuple(ToolCall(call.id, unheard_of(), "{}") for call in calls)
                safe[place] = msgspec.structs.replace(safe[place], tool_calls=places)
                own.append((one, calls, places))
        template = self.template
        if tools or any(one.tool_calls or one.role == "tool" for one in safe):
            if self.tool_format == "general":
                safe, tools = as_text(safe, tools), []
            else:
                safe = safe if known.several else one_by_one(safe)
                template = self.templates.with_tools
                variables = {name: value for name, value in variables.items() if name in template.variables}
        inputs = replace(inputs, variables=variables, tools=tools)
        text = in_front(known, safe, lambda turns: template.render(turns, inputs))
        for one, calls, places in own:
            text = self._with_tokens(text, hidden, one, calls, places)
        return as_models_write(known, text), hidden

    def _with_tokens(
        self, text: str, hidden: Hidden, turn: Message, calls: Sequence[ToolCall], places: Sequence[ToolCall]
    ) -> str:
        """``text``, rendered with ``places`` instead of the ``calls`` of a turn, with the turn's tokens there: with all
        of them if the template writes what is before the calls just as the model did, else with those of the calls.
        Raises `KnownError` if the template doesn't write calls in its form."""
        known = FORMATS[self.tool_format]
        found = re.search(pattern_of(written(known, places, counted=False)), text)
        if not found:
            raise KnownError("The template writes calls in another form.")
        before, after = text[: found.start()], text[found.end() :]
        for call, place in zip(calls, places, strict=True):  # gpt-oss's template names the tool at its result
            after = after.replace(place.name, call.name)
        tokens, vocabulary = list(turn.tokens), self.vocabulary
        if not all(0 <= token < vocabulary.vocabulary_size for token in tokens):
            tokens = []
        while tokens and vocabulary.is_end(tokens[-1]):
            tokens.pop()
        pieces = [vocabulary.mark(token).encode() or vocabulary.piece(token) for token in tokens]
        begins = re.search(pattern_of(known.begins + turn.tool_calls[0].name).encode(), b"".join(pieces))
        begin = begins.start() if begins else -1
        lead = b"".join(pieces)[: max(begin, 0)].decode("utf-8", "replace")
        starts = [0, *accumulate(map(len, pieces))]
        thought = before[max(before.rfind(ANALYSIS), 0) :]
        if begin >= 0 and before.endswith(lead):
            before = before[: len(before) - len(lead)]
        elif begin >= 0 and known.channels and thought.count(HARMONY[0]) == 1:
            before = before[: len(before) - len(thought)]  # one thought, where the model wrote several, or some text
        elif begin in starts:
            tokens = tokens[starts.index(begin) :]
        else:
            return before + written(known, calls) + after
        hidden[word := unheard_of()] = tuple(tokens)
        return before + word + after

    def content(self, message: Message) -> Rendered:
        """What the template sees of a message besides its thinking: its images, then its text."""
        hidden: Hidden = {unheard_of(): image for image in message.images}
        images, text = "".join(hidden), message.content
        if self._looks_special(text, message.role):
            word, stripped = unheard_of(), text.strip()
            hidden[word] = stripped
            text = text.replace(stripped, word, 1)
        return images + text, hidden

    def _looks_special(self, text: str, role: Role) -> bool:
        """Whether a message has the text of a control token, or of another one that the template writes (which in an
        answer the model may have written, such as ``<think>``)."""
        is_markup = role != "assistant" and self._markup.search(text)
        return bool(self.controls.search(text) or is_markup or self._is_part(text.strip()))

    def _is_part(self, text: str) -> bool:
        """Whether ``text`` and a bracket or two around it may be a mark."""
        return text.startswith(self._begins) or text.endswith(self._stops) or text in self._insides

    def _split(self, text: str, hidden: Hidden) -> Iterator[tuple[str | Image | tuple[int, ...], bool]]:
        """Parts of a rendered prompt, and whether control tokens are read in them. Messages are split after the first
        character of a `_markup`, which is just text there."""
        words = _HIDDEN.split(text) if hidden else [text]
        for word in filter(None, words):
            part = hidden.get(word)
            if part is None:
                yield word, True
                continue
            if not isinstance(part, str):
                yield part, False
                continue
            cuts = [0, *(match.start() + 1 for match in self._begins_markup.finditer(part)), len(part)]
            yield from ((part[start:end], False) for start, end in pairwise(cuts))


@dataclass(frozen=True)
class Prompt:
    """Token ids to feed, and what was left out of the chat to make them fit."""

    tokens: list[int]
    dropped_messages: int = 0
    first_dropped: int = 0
    """The index of the first of them among all messages."""
    stops: list[str] = field(default_factory=list)


class PromptBuilder:
    """Builds prompts for one loaded target."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        context_length: int,
        clock: Callable[[], datetime] = datetime.now,
        template: str = "",
    ) -> None:
        """``context_length`` in tokens; ``template`` as in `Load.chat_template`. Raises `KnownError` if none can be
        rendered."""
        self._clock = clock
        self.tokenizer = ChatTokenizer(vocabulary, template)
        self.fitting = Fitting(context_length, self.tokenizer.size)

    def raw(self, text: str, continued: int = 0, images: Sequence[Image] = ()) -> Prompt:
        """``text`` as it is, behind ``images`` and the BOS token if the model wants one; ``continued`` as in `chat`.
        Raises `KnownError` if it is too long."""
        if images:
            words: Hidden = {unheard_of(): image for image in images}
            tokens = self.tokenizer.tokens(("".join(words) + text, words))
        else:
            tokens = self.tokenizer.plain(text, bos=True, special=True)
        if not tokens:
            raise KnownError("The prompt is empty. This model needs at least one token to start from.")
        self._check_end(tokens)
        self._check_length(len(tokens), continued)
        return Prompt(tokens)

    def chat(
        self,
        messages: Sequence[Message],
        overflow: Overflow = "drop_oldest",
        continued: int = 0,
        variables: TemplateVariables | None = None,
        tools: Sequence[Tool] = (),
    ) -> Prompt:
        """The prompt for a chat whose last message is the user's, or the result of a tool.

        `Fitting` shortens one that is too long. ``continued``: so many tokens of the answer exist already; they don't
        change the prompt unless they don't fit. Raises `KnownError` when what has to stay is too long.
        """
        system, turns = parts(messages)
        if not turns:
            raise KnownError("There is no message to answer.")
        inputs, tokens = self.inputs(messages, variables or {}, tools), list[int]()

        def length(kept: list[Message]) -> int:
            tokens[:] = self.tokenizer.chat([*system, *kept], inputs)
            return len(tokens)

        cut = self.fitting.cut(system, turns, overflow, length, continued)
        if overflow == "stop" and len(turns) > 1:
            self._check_chat(len(tokens))
        self._check_length(len(tokens), continued, has_results=turns[-1].role == "tool", has_tools=bool(tools))
        self._check_end(tokens)
        self.fitting.remember(turns, cut)
        dropped = cut.end - cut.first
        return Prompt(tokens, dropped, len(system) + cut.first if dropped else 0, self.tokenizer.templates.stops)

    def inputs(
        self, messages: Sequence[Message], variables: TemplateVariables, tools: Sequence[Tool] = ()
    ) -> TemplateInputs:
        """What the template sees besides the messages; any thread may ask."""
        sent_at = next((one.sent_at for one in messages if one.sent_at is not None), None)
        try:
            now = self._clock() if sent_at is None else datetime.fromtimestamp(sent_at)
        except (ValueError, OverflowError, OSError):  # no time that this system knows
            now = self._clock()
        return TemplateInputs(now, variables, tools, self.tokenizer.text_arguments)

    def forget(self) -> None:
        """Forget earlier chats."""
        self.fitting.forget()
        self.tokenizer.template.forget()

    @staticmethod
    def _check_end(tokens: Sequence[int]) -> None:
        """The next token is computed from the last one, which must not be part of an image."""
        if tokens[-1] < 0:
            raise KnownError("There is no text after the last image. Write something about it.")

    def _check_chat(self, count: int) -> None:
        if count > self.fitting.room:
            raise PromptTooLongError(
                f"This chat has {words.number(count)} tokens, but {self._limit(count)}. "
                "Choose a longer context, or let old messages be dropped when the context is full.",
                count,
            )

    def _check_length(self, count: int, continued: int, *, has_results: bool = False, has_tools: bool = False) -> None:
        if count > self.fitting.room and has_results:
            raise PromptTooLongError(
                f"With what the tools returned, this question has {words.number(count)} tokens, but "
                f"{self._limit(count)}. Choose a longer context, or ask for less at once.",
                count,
            )
        if count > self.fitting.room:
            raise PromptTooLongError(
                f"{'With its tools, this' if has_tools else 'This'} message has {words.number(count)} tokens, but "
                f"{self._limit(count)}. {'Switch tools off, shorten' if has_tools else 'Shorten'} the message or "
                "choose a longer context.",
                count,
            )
        if count + continued > self.fitting.room:
            raise PromptTooLongError(
                f"This answer can't be continued because the context is full. It only holds "
                f"{words.number(self.fitting.context_length)} tokens. Choose a longer context.",
                count + continued,
            )

    def _limit(self, count: int) -> str:
        """Why ``count`` tokens are too many."""
        length = self.fitting.context_length
        answer = f", and the answer needs at least {LEAST_ANSWER} of them" if count <= length else ""
        return f"the context only holds {words.number(length)}{answer}"


def parts(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """The system prompt, if there is one, and the turns."""
    system = [message for message in messages[:1] if message.role == "system"]
    return system, list(messages[len(system) :])


def unheard_of() -> str:
    """A word that occurs in no text."""
    return f"message-{secrets.token_hex(16)}"


def _any_of(texts: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, texts)) or r"(?!)")


_QUESTION = Message(role="user", content="Well?")


def tokens_of(
    answer: Message, prompts: PromptBuilder, variables: TemplateVariables, marks: Marks, between: str
) -> list[int] | None:
    """Tokens that give exactly what ``answer`` thought and said, with the marks around the thinking.

    An answer with nothing but thinking still thinks. ``between`` is what the template writes between thinking and
    answer, empty if unknown. ``None`` if there are no such tokens. Raises `KnownError` if the template fails.
    """
    tokenizer = prompts.tokenizer
    prompt = tokenizer.chat([_QUESTION], prompts.inputs([], variables))
    texts = TokenTexts(tokenizer.vocabulary.piece, marks, prompt)
    tokens: list[int] = []
    pieces: list[Piece] = []

    def write(new: list[int]) -> None:
        tokens.extend(new)
        pieces.extend(shown for token in new for shown in texts.add(Piece(text="", id=token)))

    def write_mark(mark: str) -> None:
        write(tokenizer.tokens((mark, {}), goes_on=True))

    if answer.thinking:
        if not texts.splitter.thinking:
            write_mark(marks.opening)
        write(tokenizer.continued(answer.thinking))
    if answer.content:
        if texts.splitter.thinking:
            write_mark(texts.splitter.between(between))
        elif not answer.thinking:
            write_mark(marks.answer_opening)
        write(tokenizer.continued(answer.content))
    pieces += texts.end(cut=True)
    thinking = "".join(one.text for one in pieces if one.thinking)
    is_same = thinking == answer.thinking and "".join(map(answer_text, pieces)) == answer.content
    return tokens if is_same else None
