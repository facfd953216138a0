"""The definitions of what the Speed panel shows, by name: for tooltips, screen readers and Help."""

from __future__ import annotations

HELP = {
    "status": (
        "What drafting is doing now, with the figures of this answer: the acceptance rate, the mean acceptance length "
        "(tokens per pass) and the decode speed."
    ),
    "speed": (
        "While an answer is being written: the tokens of the last 3 s ÷ that time. Afterwards, the decode speed: "
        "tokens after the first ÷ time from the first to the last. Prompt processing is not included. The dashed line "
        "is the measured speed without a draft."
    ),
    "acceptance": (
        "Acceptance rate: accepted ÷ tested draft tokens (those that were checked in a verify pass). While an answer "
        "is being written it covers the last 3 s, afterwards the whole answer."
    ),
    "speed-up": (
        "Speed-up: the decode speed of this answer ÷ the decode speed without a draft, measured on this computer with "
        "the same target model, context length and sampling settings."
    ),
    "measure": (
        "Writes a short answer without a draft and without showing it, to measure how fast the target model is on its "
        "own. Nothing is added to the chat."
    ),
    "positions": (
        "Acceptance by position: of the drafts that had a token at this position, the share whose tokens up to and "
        "including it were all accepted. While an answer is being written it covers the last 3 s, afterwards the whole "
        "answer. Where the bars get short, a longer draft no longer helps."
    ),
    "server": (
        "The server drafts by its own settings, which can't be changed from here. What Slipstream shows is what the "
        "server says about its drafting; speeds and times are measured on this computer."
    ),
    "server-positions": (
        "Of all verify passes of this answer, the share that accepted at least this many draft tokens, as the server "
        "counted them. (vLLM defines acceptance by position like this.)"
    ),
    "round": (
        "A round is one verify pass and the drafting before it; these are means over the answer. Draft: proposing the "
        "draft tokens. Verify: the target model checks all of them in one pass. Other: sampling, text and bookkeeping."
    ),
    "curve": (
        "The speed that each fixed draft length would reach on text like the last answer's. It is calculated from the "
        "measured times of drafting and of verify passes and from the acceptance rate; these lengths were not run. "
        "Length 0 means no draft; columns above the dashed line are faster than that. The filled column is the "
        "length in use (with Auto, the mean of the last answer), the underlined number is the fixed length of the next "
        "answer. Auto can beat its column, because it stops drafting where another token isn't worth its time."
    ),
    "kinds": (
        "How well drafting works with this pair on this computer, by kind of text. It covers all answers, but recent "
        "ones count more. The first figure is the acceptance rate, the second the decode speed on this kind of text "
        "÷ the measured speed without a draft (or just the decode speed where that hasn't been measured). These "
        "figures never leave this computer."
    ),
    "draft-length": (
        "Draft length: how many tokens are drafted before each verify pass. Auto drafts as many as save time, based on "
        "measurements on this computer, and pauses when none do. A fixed length is always used; 0 turns drafting off. "
        "Changes take effect with the next answer."
    ),
    "drafter": (
        "What proposes the draft tokens. A draft model works on any text, and so does an MTP head, which is the part "
        "of a model that predicts further tokens. n-grams repeat what followed the same words earlier in the chat: "
        "they cost almost nothing and work well on repetitive text such as code. Automatic uses whichever promises "
        "more. Changes take effect with the next answer."
    ),
    "show-drafted": (
        "Tints the draft tokens that were accepted in an answer, by drafter: the draft model, n-grams (dotted "
        "underline), the MTP head (solid underline) or the answer's format (dashed underline). Point at one to see its "
        "round; point at one of the target model's own tokens to see the draft token it replaced."
    ),
}
