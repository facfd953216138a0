"""Prompts for training drafters: the same every time, each of its own, none of a benchmark's."""

from training.prompts import LISTS, TOPICS, Composer, forbidden, grams


def composed(seed: int, count: int = 300, *, held_out: bool = False) -> list[tuple[str, str]]:
    composer = Composer(seed, held_out=held_out)
    prompts = [composer.compose() for _ in range(count)]
    return [(prompt.kind, prompt.messages[0][1]) for prompt in prompts]


def test_the_same_seed_composes_the_same_prompts() -> None:
    assert composed(1) == composed(1)
    assert composed(1) != composed(2)


def test_no_prompt_comes_twice_and_none_has_an_empty_place() -> None:
    texts = [text for _, text in composed(3, 2000)]
    assert len(set(texts)) == len(texts)
    places = ("{t}", "{u}", "{n}", "{m}", "{x}", "{o}", "{s}", "{r}", "{e}", "{c}", "{l}", "{w}")
    assert not [text for text in texts if any(place in text for place in places)]


def test_held_out_topics_are_never_trained_on() -> None:
    held = {topic for index, topic in enumerate(TOPICS) if index % 20 == 7}
    asked = [text for kind, text in composed(4, 1000, held_out=True) if kind == "question"]
    assert all(any(topic.lower() in text.lower() for topic in held) for text in asked)
    exact = {form.format(t=topic, u="") for topic in held for form in LISTS["QUESTIONS"] if "{u}" not in form}
    assert not exact & {text for _, text in composed(4, 2000)}


def test_what_shares_eight_words_with_a_forbidden_text_is_left_out() -> None:
    text = next(text for kind, text in composed(5) if kind == "question" and len(text.split()) >= 8)
    composer = Composer(5, forbidden=forbidden([f"Well: {text}"]))
    assert all(not grams(composer.compose().messages[0][1]) & grams(text) for _ in range(300))


def test_finished_answers_become_texts_of_later_prompts() -> None:
    composer = Composer(6)
    for _ in range(50):
        composer.remember(composer.compose(), "Something was said. " * 20)
    kinds = {prompt.kind: prompt for prompt in (composer.compose() for _ in range(300))}
    assert {"chat", "reading", "retrieval"} <= set(kinds)
    assert [role for role, _ in kinds["chat"].messages] == ["user", "assistant", "user"]
    assert "Something was said." in kinds["reading"].messages[0][1]
