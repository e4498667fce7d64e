"""What is done for a request once it is decoded: plain functions of a model, in a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET

from monogram.engine.topk.best import Best
from monogram.errors import ParameterError, UnknownIdError
from monogram.ranking import shorten
from monogram.server import questions, schemas
from monogram.server.questions import Question, Rows

if TYPE_CHECKING:
    from monogram.server.shelf import Entry

REASONS = 3  # shown with explain=true


class Lists:
    """A request for ranked items: by users, by histories, or items like others."""

    def __init__(self, entry: Entry, asked: schemas.Recommend | schemas.Similar) -> None:
        self.entry, self.asked = entry, asked
        self.reasons, self.with_history = 0, False
        if isinstance(asked, schemas.Recommend):
            self.label = "user" if one_of_two(asked.users, asked.histories, "users", "histories") else "history"
            self.size = len(asked.users or asked.histories)  # type: ignore[arg-type]
            self.reasons = REASONS if asked.explain is True else int(asked.explain)
            self.with_history = asked.with_history
            if self.reasons and self.size * asked.k > schemas.EXPLAINED:
                raise ParameterError(
                    f"reasons for {self.size:,} lists of {asked.k:,} items; expected at most "
                    f"{schemas.EXPLAINED:,} items in all: ask for fewer, or without explain"
                )
        else:
            self.label, self.size = "item", len(asked.items)

    def question(self) -> Question:
        """What is to be ranked."""
        asked, log = self.asked, self.entry.model.log_
        weights = self.entry.weights(asked.parameters)
        if isinstance(asked, schemas.Similar):
            return Question(_items(asked.items, log), weights, asked.k)
        rows = rows_of(asked.users, asked.histories, log)
        if self.reasons and rows.pointers[-1] * asked.k > schemas.SHARES:
            raise ParameterError(
                f"reasons from histories of {rows.pointers[-1]:,} items in all for {asked.k:,} items each; expected at "
                f"most {schemas.SHARES:,} shares: ask for fewer, or without explain"
            )
        allow, deny = (None if rule is None else tuple(rule) for rule in (asked.allow, asked.deny))
        return Question(rows, weights, asked.k, allow, deny, asked.exclude_seen)

    def answer(self, question: Question, best: Best) -> bytes:
        """The body of the answer."""
        rows, catalogue = question.rows, self.entry.catalogue
        counts = best.counts.tolist()
        places = [best.items[row, :count].tolist() for row, count in enumerate(counts)]
        flat = [place for mine in places for place in mine]
        ids = iter(self.entry.model.log_.items.ids(flat) if flat else [])
        results = []
        for row, (mine, count) in enumerate(zip(places, counts, strict=True)):
            scores = best.scores[row, :count].tolist()
            ranked = [
                schemas.Ranked(next(ids), score, rank, catalogue.columns(place))
                for rank, (place, score) in enumerate(zip(mine, scores, strict=True), 1)
            ]
            if self.reasons:
                self._reasons(question, row, mine, ranked)
            seen = self._seen(rows, row) if self.with_history else UNSET
            results.append(schemas.List(**{self.label: rows.labels[row]}, items=ranked, seen=seen))
        unknown = dict.fromkeys([*rows.unknown_items, *self._unknown_rules()])
        empty = [rows.labels[row] for row in np.flatnonzero(np.diff(rows.pointers) == 0)]
        return schemas.encode(schemas.Lists(self.entry.name, results, rows.unknown_users, list(unknown), empty))

    def _unknown_rules(self) -> list[Any]:
        if isinstance(self.asked, schemas.Similar):
            return []
        ids = [*(self.asked.allow or ()), *(self.asked.deny or ())]
        if not ids:
            return []
        index = self.entry.model.log_.items.index(ids)
        return [one for one, place in zip(ids, index, strict=True) if place < 0]

    def _reasons(self, question: Question, row: int, places: list[int], ranked: list[schemas.Ranked]) -> None:
        history = _one(question.rows, row, self.entry)
        ids = self.entry.model.log_.items.ids(history.indices) if history.nnz else []
        for place, one in zip(places, ranked, strict=True):
            one.because = _shares(question.weights, history, ids, place, self.reasons)

    def _seen(self, rows: Rows, row: int) -> list[schemas.Seen]:
        span = rows.one(row)
        places = rows.items[span].tolist()
        ids = self.entry.model.log_.items.ids(places) if places else []
        return [
            schemas.Seen(id_, weight, self.entry.catalogue.columns(place))
            for id_, weight, place in zip(ids, rows.weights[span].tolist(), places, strict=True)
        ]


def rank_all(entry: Entry, jobs: Sequence[Lists], threads: int) -> Callable[[], list[Any]]:
    """Rank several requests to one model, by as few kernel calls as may be.

    What it gives writes their bodies; an exception where one failed.
    """
    asked = [_tried(job.question) for job in jobs]
    ready = [one for one in asked if isinstance(one, Question)]
    found, calls = questions.rank(ready, entry.model.log_, threads)
    entry.note(calls)

    def rest() -> list[Any]:
        best = iter(found)
        return [
            _tried(partial(job.answer, one, next(best))) if isinstance(one, Question) else one
            for job, one in zip(jobs, asked, strict=True)
        ]

    return rest


def _tried(function: Callable[[], Any]) -> Any:
    """What a function gives, or the exception it raised: the others of a turn are to have their answers."""
    try:
        return function()
    except Exception as error:
        return error


def score(entry: Entry, asked: schemas.Score, threads: int) -> bytes:
    """The body of /v1/score."""
    label = "user" if one_of_two(asked.users, asked.histories, "users", "histories") else "history"
    log = entry.model.log_
    rows = rows_of(asked.users, asked.histories, log)
    index = log.items.index(asked.items)
    known = index >= 0
    table = np.full((len(rows), len(index)), np.nan)
    if len(rows) and known.any():
        table[:, known] = entry.weights(asked.parameters).score(rows.matrix(log.n_items), index[known], threads)
    results = [
        schemas.Scores(**{label: one}, scores=line) for one, line in zip(rows.labels, table.tolist(), strict=True)
    ]
    missing = [one for one, place in zip(asked.items, index, strict=True) if place < 0]
    unknown = list(dict.fromkeys([*rows.unknown_items, *missing]))
    return schemas.encode(schemas.Scored(entry.name, list(asked.items), results, rows.unknown_users, unknown))


def explain(entry: Entry, asked: schemas.Explain) -> bytes:
    """The body of /v1/explain."""
    by_user = one_of_two(asked.user, asked.history, "user", "history")
    log = entry.model.log_
    rows = rows_of([asked.user], UNSET, log) if by_user else rows_of(UNSET, [asked.history], log)
    if rows.unknown_users:
        raise UnknownIdError(f"user {shorten(asked.user)!r} is not one of the {log.n_users:,} users this model knows")
    place = int(log.items.index([asked.item])[0])
    if place < 0:
        raise UnknownIdError(f"item {shorten(asked.item)!r} is not one of the {log.n_items:,} items this model knows")
    history, weights = _one(rows, 0, entry), entry.weights(asked.parameters)
    shares = _shares(weights, history, log.items.ids(history.indices) if history.nnz else [], place, history.nnz + 1)
    total = sum(one.share for one in shares)
    base = float(weights.base(np.array([place]))[0])
    shown = [one for one in shares if one.item is not None][: asked.top]
    rest = total - base - sum(one.share for one in shown)
    return schemas.encode(
        schemas.Explained(
            model=entry.name,
            item=log.items[place],
            score=total,
            base=base,
            shares=shown,
            rest=rest if len(shown) < history.nnz else 0.0,
            unknown_items=rows.unknown_items,
            columns=entry.catalogue.columns(place),
        )
    )


def _shares(weights: Any, history: Any, ids: list[Any], place: int, most: int) -> list[schemas.Share]:
    """The largest shares of a score; the part that no history changes as item None."""
    base = weights.base(np.array([place]))
    values = np.concatenate([weights.shares(history, place), base[base != 0]])
    order = np.argsort(-np.abs(values), kind="stable")[:most].tolist()
    return [schemas.Share(ids[at] if at < len(ids) else None, float(values[at])) for at in order]


def _one(rows: Rows, row: int, entry: Entry) -> Any:
    span = rows.one(row)
    pointers = np.array([0, span.stop - span.start])
    alone = Rows(pointers, rows.items[span], rows.weights[span], [rows.labels[row]], [], [])
    return alone.matrix(entry.model.log_.n_items)


def _items(ids: list[Any], log: Any) -> Rows:
    """Each known item as a history of its own."""
    index = log.items.index(ids)
    rows = questions.of_histories([[one] for one, at in zip(ids, index, strict=True) if at >= 0], log)
    at = index[index >= 0]
    unknown = [one for one, place in zip(ids, index, strict=True) if place < 0]
    return Rows(rows.pointers, rows.items, rows.weights, log.items.ids(at) if len(at) else [], [], unknown)


def rows_of(users: Any, histories: Any, log: Any) -> Rows:
    """The rows of whichever was given."""
    return questions.of_users(users, log) if histories is UNSET else questions.of_histories(histories, log)


def one_of_two(left: Any, right: Any, first: str, second: str) -> bool:
    """Whether it is the first that was given; both or neither is an error."""
    if (left is UNSET) == (right is UNSET):
        given = "both" if left is not UNSET else "neither"
        raise ParameterError(f"{given} of {first} and {second} was given; expected one of them")
    return left is not UNSET
