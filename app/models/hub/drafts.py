"""Finds companions of a target on the hub: draft models, heads, projectors.

Names only determine where to look.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from app.models.downloads.item import Item
from app.models.gguf import GgufHeader, ModelFacts, ModelFileError, check_loadable, read_header
from app.models.heads import LAYER_INPUTS, fits, has_head, head_problem, head_title, is_head_only, mismatch
from app.models.hub.api import Hub, read_remote_header
from app.models.hub.catalog import CatalogModel, load_catalog
from app.models.hub.network import Network
from app.models.hub.repository import NoAccessError, NotFoundError, RemoteModel, SearchResult, names_eagle3
from app.models.names import plain_name
from app.models.pairing import LARGE_DRAFT_SHARE, Verdict, compare
from app.system import Canceled, KnownError

BEST_SHARE = 1 / 10
"""As a fraction of the target's size: smaller drafts cost next to nothing."""
MAX_CHECKED = 6
"""The number of candidates whose headers are read, several megabytes each."""
_MAX_CHECKED_PER_SEARCH = 2
"""Most other results are usually the same model from someone else."""
_MAX_SEARCHES = 8
"""A repository may list any number of base models."""
_RESULTS_PER_SEARCH = 10
_PREFERRED = ("Q8_0", "Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K")
"""Preferred quantizations for drafts: fast, and accurate enough."""

_SMALL_MODELS = (
    ("qwen2.5-coder", ("Qwen2.5-Coder-0.5B", "Qwen2.5-0.5B", "Qwen2.5-Coder-1.5B")),
    ("deepseek-r1-distill-qwen", ("DeepSeek-R1-DRAFT", "DeepSeek-R1-Distill-Qwen-1.5B")),
    ("deepseek-r1-distill-llama", ("Llama-3.2-1B",)),
    ("qwen2.5", ("Qwen2.5-0.5B", "Qwen2.5-1.5B")),
    ("qwen2", ("Qwen2-0.5B",)),
    ("qwen3.5", ("Qwen3.5-0.8B", "Qwen3.5-2B")),
    ("qwen3", ("Qwen3-0.6B", "Qwen3-1.7B")),
    ("llama-3", ("Llama-3.2-1B", "Llama-3.2-3B")),
    ("gemma-3", ("gemma-3-270m", "gemma-3-1b")),
    ("glm-4.5", ("GLM-4.5-DRAFT",)),
    ("mistral-small", ("Mistral-Small-DRAFT",)),
    ("smollm2", ("SmolLM2-135M", "SmolLM2-360M")),
    ("granite-3", ("granite-3 2b",)),
    ("falcon3", ("Falcon3-1B",)),
    ("olmo-2", ("OLMo-2-0425-1B",)),
)
"""Part of a target's name → search words. The first match counts."""
_SIZE = re.compile(r"(?<![A-Za-z0-9.])(\d{1,4}(?:\.\d{1,2})?)(?:x\d+)?([bm])(?![A-Za-z0-9])", re.IGNORECASE)


class DraftCandidate(NamedTuple):
    """A possible draft, a model or an EAGLE-3 head, and whether it fits the target."""

    repository: str
    model: RemoteModel
    license: str
    verdict: Verdict
    """May also say why a candidate couldn't be checked."""
    share: float
    """Its size ÷ the target's."""


def find_drafts(
    hub: Hub, target: GgufHeader, base_models: Sequence[str] = (), is_canceled: Callable[[], bool] = lambda: False
) -> Iterator[DraftCandidate]:
    """Yields candidates as they are checked; `in_order` sorts them.

    ``base_models`` are named by the target's repository. Raises `KnownError` if the hub can't be asked, and `Canceled`
    soon after ``is_canceled()`` returns true.
    """
    left = MAX_CHECKED
    seen: set[str] = set()
    names = [target.known_name, target.name, *base_models]
    yield from _eagle3_heads(hub, target, names, seen, is_canceled)
    for words in search_words(names)[:_MAX_SEARCHES]:
        if is_canceled():
            raise Canceled
        found = _small(hub.search(words, "downloads", _RESULTS_PER_SEARCH), target.parameters, seen)
        judged = (_judged(hub, target, result, is_canceled) for result in found)
        fresh = (candidate for candidate in judged if candidate is not None)
        for candidate in islice(fresh, min(left, _MAX_CHECKED_PER_SEARCH)):
            left -= 1
            yield candidate
        if left == 0:
            return


def in_order(candidates: Iterable[DraftCandidate]) -> list[DraftCandidate]:
    """Those that fit first; among them those of at most a tenth of the target's size, the largest first."""

    def key(candidate: DraftCandidate) -> tuple[bool, bool, float]:
        small = candidate.share <= BEST_SHARE
        return not candidate.verdict.fits, not small, -candidate.share if small else candidate.share

    return sorted(candidates, key=key)


def search_words(names: Iterable[str]) -> list[str]:
    """Search words from the names of a model and its base models; known families first."""
    known: list[str] = []
    others: list[str] = []
    for name in names:
        plain = re.sub(r"[\s_()]+", "-", name.rpartition("/")[2].strip()).lower()
        family = next((small for begin, small in _SMALL_MODELS if begin in plain), None)
        size = _SIZE.search(plain)
        if family is not None:
            known += family
        elif len(stem := plain_name(plain[: size.start()] if size else plain)) >= 3:
            others += [f"{stem} draft", stem]
    return list(dict.fromkeys(known + others))


def named_parameters(name: str) -> float | None:
    """The number of parameters in a name: 0.6e9 for ``Qwen3-0.6B-GGUF``."""
    found = _SIZE.search(name.rpartition("/")[2])
    return None if found is None else float(found[1]) * (1e9 if found[2].lower() == "b" else 1e6)


def _eagle3_heads(
    hub: Hub, target: GgufHeader, names: Sequence[str], seen: set[str], is_canceled: Callable[[], bool]
) -> Iterator[DraftCandidate]:
    """Heads that the catalog knows for a model with one of these ``names``, then those whose repositories are named
    after the target. Adds them to ``seen``.
    """
    if target.architecture not in LAYER_INPUTS:
        return
    if is_canceled():
        raise Canceled
    listed = [SearchResult(id=head.repository) for head in load_catalog().heads_for(*names)]
    words = f"{plain_name(names[0].rpartition('/')[2])} eagle3"
    searched = hub.search(words, "downloads", _RESULTS_PER_SEARCH)
    left = _MAX_CHECKED_PER_SEARCH
    for result in (*listed, *(one for one in searched if names_eagle3(one.id))):
        if left and result.id not in seen:
            seen.add(result.id)
            candidate = _judged(hub, target, result, is_canceled, heads=True)
            if candidate is not None:
                left -= 1
                yield candidate


def _small(results: Iterable[SearchResult], parameters: int, seen: set[str]) -> Iterator[SearchResult]:
    """New candidates, except those whose names say that they are too large, to save requests."""
    for found in results:
        too_large = (named_parameters(found.id) or 0) > parameters * LARGE_DRAFT_SHARE
        if found.id not in seen and not too_large:
            seen.add(found.id)
            yield found


def _judged(
    hub: Hub, target: GgufHeader, found: SearchResult, is_canceled: Callable[[], bool], *, heads: bool = False
) -> DraftCandidate | None:
    """The best file of a repository as a candidate, of its ``heads`` if it has any named so; ``None`` if all are too
    large, or it is gone."""
    if is_canceled():
        raise Canceled
    try:
        repository = hub.repository(found.id)
    except NotFoundError:
        return None
    files = (repository.heads if heads else ()) or repository.offered
    model = best_draft(files, target.tensor_bytes)
    if model is None:
        return None
    try:
        header = read_remote_header(hub.network, model, is_canceled, any_kind=True)
        check_loadable(header, as_head=is_head_only(header))
        verdict = compare(target, header)
    except (ModelFileError, NoAccessError, NotFoundError) as error:
        verdict = Verdict(False, str(error))
    return DraftCandidate(found.id, model, repository.license, verdict, model.size / max(1, target.tensor_bytes))


def best_draft(files: Sequence[RemoteModel], target_bytes: int) -> RemoteModel | None:
    """The best draft for a target of this size: the best quantization that is small enough. ``files`` are sorted."""
    for limit in (BEST_SHARE * target_bytes, LARGE_DRAFT_SHARE * target_bytes):
        small = [model for model in files if model.size <= limit]
        for preferred in _PREFERRED:
            named = [model for model in small if model.quantization == preferred]
            if named:
                return named[0]
    return next((model for model in files if model.size <= LARGE_DRAFT_SHARE * target_bytes), None)


# Projectors (``mmproj``) on the hub: headers decide which one of a repository fits a model.

_MAX_CHECKED = 3
"""The most files to read."""
_PREFERRED_PROJECTOR = ("F16", "BF16", "Q8_0")


def choose_projector(network: Network, target: ModelFacts, files: Iterable[RemoteModel]) -> RemoteModel | None:
    """The projector for ``target`` among ``files``, in the usual precision if possible. Raises `KnownError`."""
    for file in sorted(files, key=_rank)[:_MAX_CHECKED]:
        try:
            header = read_remote_header(network, file, any_kind=True)
        except ModelFileError:
            continue
        if fits(target, header):
            return file
    return None


def projector_for(hub: Hub, model: CatalogModel, path: Path) -> Item:
    """The projector for the file ``path`` of a catalog model, as a download into its folder.

    Raises `KnownError`, also if no repository has any.
    """
    header = read_header(path)
    for name in dict.fromkeys(file.repository for file in model.files):
        try:
            repository = hub.repository(name)
        except NotFoundError:
            continue
        if (found := choose_projector(hub.network, header, repository.vision)) is not None:
            return Item.for_model(
                f"{model.title}: projector for images", path.name, found, repository.license or model.license
            )
    raise KnownError(f"No file (mmproj) with which {model.title} sees images was found.")


def _rank(file: RemoteModel) -> int:
    return (
        _PREFERRED_PROJECTOR.index(file.quantization)
        if file.quantization in _PREFERRED_PROJECTOR
        else len(_PREFERRED_PROJECTOR)
    )


# Heads on the hub, inside a model's file or beside it. Headers decide; names only determine which files to read.


@dataclass(frozen=True)
class HubModel:
    """What the headers tell about a model that hasn't been downloaded."""

    header: GgufHeader
    place: Literal["none", "inside", "beside", "alone"] = "none"
    """Where its head is; ``alone``: the file is only a head, without a model to chat with."""
    title: str = ""
    """What to call that head."""
    head: RemoteModel | None = None
    """The separate file with its head."""
    can_run: bool = True
    """Whether this version can use the head."""
    projector: RemoteModel | None = None
    """The separate file that lets it see images."""


def look_at(
    network: Network,
    model: RemoteModel,
    heads: Iterable[RemoteModel],
    is_canceled: Callable[[], bool] = lambda: False,
    vision: Iterable[RemoteModel] = (),
) -> HubModel:
    """Read the header of ``model``, of ``heads`` beside it if it has none inside, and of possible projectors
    (``vision``).

    Raises as `read_remote_header`, only for the model itself.
    """
    header = read_remote_header(network, model, is_canceled, any_kind=True)
    if is_head_only(header):
        return HubModel(header, "alone", head_title(header.architecture), can_run=head_problem(header) is None)
    check_loadable(header)
    found = _with_head(network, header, heads, is_canceled)
    return replace(found, projector=choose_projector(network, header, vision))


def _with_head(
    network: Network, header: GgufHeader, heads: Iterable[RemoteModel], is_canceled: Callable[[], bool]
) -> HubModel:
    if has_head(header):
        return HubModel(header, "inside", head_title(header.architecture), can_run=head_problem(header) is None)
    for head in list(heads)[:_MAX_CHECKED]:
        try:
            found = read_remote_header(network, head, is_canceled, any_kind=True)
        except ModelFileError:
            continue
        if not is_head_only(found):
            continue
        if mismatch(header, found) is None:
            return HubModel(header, "beside", head_title(found.architecture), head)
        if head_problem(found) is not None and found.architecture == header.architecture:
            return HubModel(header, "beside", head_title(found.architecture), head, can_run=False)
    return HubModel(header)
