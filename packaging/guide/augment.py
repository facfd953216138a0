"""Varies questions the way people do: casing, typos, dropped and swapped words, greetings, synonyms, bare key words."""

from __future__ import annotations

import random
import re
import string

OPENINGS = """
hi, |hello, |hey, |hello! |hi! |hey there, |please |pls |quick question: |one question, |a question: |good morning, |
good evening, |so |and |ok, |okay, |well, |now |also, |sorry, |excuse me, |can you tell me |could you tell me |tell me |
please tell me |do you know |i would like to know |i want to know |i wonder |i was wondering |just wondering, |
can you explain |could you explain |please explain |explain |help: |help me, |i need help: |for my notes: |
i have a question: |dear guide, |hi guide, |hello slipstream, |in slipstream, |in this app, |here: """
CLOSINGS = """
 please| pls| thanks| thank you| thx|, thanks|, please?| in short| briefly| in simple words| in a few words|
, can you explain?|, any idea?| then| exactly| actually| really| again| here| now| in slipstream| in this app|
? thanks|? please|, i wonder| ok?|, right?| i am new to this| for a beginner"""
_FILLERS = """
a an the is are was be do does did can could would should will please i me my you your we it its of to in on at for and
or so that this these those there what which how why when where who with from by as if then than just really very some
any have has"""
FILLERS = frozenset(_FILLERS.split())
SYNONYMS = [
    group.split("|")
    for group in """show|display|see|view
big|large|huge
small|little|tiny
quick|fast|speedy
slow|sluggish
quicker|faster
change|set|adjust|modify|edit
remove|delete|erase|get rid of
make|create|write|give me
explain|describe|tell me about
mean|stand for|signify
begin|start
stop|halt|end|cancel
computer|pc|machine|laptop
app|program|application|software
chat|conversation
chats|conversations
answer|reply|response
answers|replies|responses
question|message|prompt
picture|image|photo
pictures|images|photos
graphics card|gpu|video card
processor|cpu
memory|ram
folder|directory
button|control
panel|pane
draft|draft model|helper model
target|target model|main model
llm|language model|model
guess|proposal|draft token
guesses|proposals|draft tokens
kept|accepted
rejected|refused|thrown away
share|rate|percentage
choose|pick|select
find|locate
open|load
save|store|keep
shortcut|hotkey|key combination
why|how come|for what reason
error|problem|issue
broken|not working
doesn't|does not|doesnt
don't|do not|dont
can't|cannot|cant
isn't|is not|isnt
what's|what is|whats
it's|it is|its
i'm|i am|im
need|require|want
use|utilise|employ
good|decent|suitable
best|ideal|optimal
difference|distinction
maximum|max|highest
minimum|min|lowest
story|tale
poem|verse|rhyme
function|method
list|enumeration
example|sample
settings|options|preferences
number|figure|value
happens|goes on|occurs
allowed|permitted
possible|doable""".splitlines()
]
SYNONYM_OF = {word: group for group in SYNONYMS for word in group}
_SYNONYM = re.compile(
    r"\b(" + "|".join(sorted(map(re.escape, SYNONYM_OF), key=len, reverse=True)) + r")\b", re.IGNORECASE
)
_OPENINGS = [opening.replace("\n", "") for opening in OPENINGS.split("|")]
_CLOSINGS = [closing.replace("\n", "") for closing in CLOSINGS.split("|")]


def vary(question: str, rng: random.Random) -> str:
    """One way in which somebody else might have typed `question`."""
    text = question
    if rng.random() < 0.3:
        text = _SYNONYM.sub(lambda match: _synonym(match[0], rng), text)
    if rng.random() < 0.55:
        text = _drop_words(text, rng)
    if rng.random() < 0.2:
        text = _add_opening_or_closing(text, rng)
    if rng.random() < 0.15:
        text = _typos(text, rng)
    return _surface(text, rng) or question


def _synonym(word: str, rng: random.Random) -> str:
    return rng.choice(SYNONYM_OF.get(word.lower(), [word])) if rng.random() < 0.35 else word


def _drop_words(text: str, rng: random.Random) -> str:
    """Drop some words, or all fillers, or one side of the sentence; sometimes swap neighbours."""
    words = text.split()
    if len(words) < 3:
        return text
    roll = rng.random()
    if roll < 0.15:
        kept = [word for word in words if word.lower().strip("?.,!'") not in FILLERS]
    elif roll < 0.25 and len(words) > 6:
        cut = rng.randrange(len(words) // 3, len(words))
        kept = words[:cut] if rng.random() < 0.5 else words[-cut:]
    else:
        rate = rng.choice((0.06, 0.12, 0.2))
        kept = [word for word in words if rng.random() > rate * (1.5 if word.lower() in FILLERS else 0.8)]
    if len(kept) > 2 and rng.random() < 0.3:
        place = rng.randrange(len(kept) - 1)
        kept[place], kept[place + 1] = kept[place + 1], kept[place]
    return " ".join(kept) if len(kept) >= 2 else text


def _add_opening_or_closing(text: str, rng: random.Random) -> str:
    if rng.random() < 0.65:
        return rng.choice(_OPENINGS).lstrip() + (text[0].lower() + text[1:] if rng.random() < 0.7 else text)
    return text.rstrip("?.!") + rng.choice(_CLOSINGS)


def _typos(text: str, rng: random.Random) -> str:
    letters = list(text)
    for _ in range(rng.choice((1, 1, 2))):
        if len(letters) < 6:
            break
        place = rng.randrange(len(letters) - 1)
        if not letters[place].isalpha():
            continue
        roll = rng.random()
        if roll < 0.3:
            del letters[place]
        elif roll < 0.6:
            letters[place], letters[place + 1] = letters[place + 1], letters[place]
        elif roll < 0.8:
            letters.insert(place, letters[place])
        else:
            letters[place] = rng.choice(string.ascii_lowercase)
    return "".join(letters)


def _surface(text: str, rng: random.Random) -> str:
    """Casing and the mark at the end."""
    roll = rng.random()
    if roll < 0.35:
        text = text.lower()
    elif roll < 0.5:
        text = text[:1].upper() + text[1:]
    elif roll < 0.51:
        text = text.upper()
    roll = rng.random()
    if roll < 0.25:
        text = text.rstrip("?.! ")
    elif roll < 0.4:
        text = text.rstrip("?.! ") + rng.choice(("?", "?", "?", "??", ".", "...", " ?", "!"))
    return text.strip()
