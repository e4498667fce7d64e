"""`Queries`, the part of `Recommender` that answers: the fitted state, recommend, score, explain, similar."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from monogram import ranking
from monogram.data.interactions import Interactions
from monogram.data.spans import EVENT, parse_span
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.progress import silent
from monogram.errors import DataError, Message, MonogramWarning, NotFittedError, Option, ParameterError, UnknownIdError
from monogram.models import clusters
from monogram.models.parameters import param
from monogram.models.report import Pruning, Report
from monogram.models.search_axes import RECENCY
from monogram.ranking import Explanation, Recency, Recommendations
from monogram.weights import Weights

if TYPE_CHECKING:
    from monogram.models.base import Recommender
    from monogram.models.batch import Written


@dataclass(kw_only=True, eq=False, repr=False)
class Queries:
    """State and queries of a fitted model, with the parameters that weight the events of a history."""

    recency: float = param(
        0.0,
        "power with which an event of a history counts less the older it is; 0: all count the same",
        low=0,
        high=100,
        search=RECENCY,
    )
    recency_unit: str = param(str(EVENT), "unit of the age: '1 event', or a duration such as '7d'", span=True)
    half_life: str | None = param(
        None,
        "age at which an event of a history counts half, such as '30d' or '5 events'; in place of recency",
        span=True,
    )

    def recency_rule(self) -> Recency:
        """How the events of a history are weighted by their age."""
        half_life = None if self.half_life is None else parse_span(self.half_life, "half_life")
        return Recency(self.recency, parse_span(self.recency_unit, "recency_unit"), half_life)

    def require_ages(self, log: Interactions) -> None:
        """DataError, which names the parameter, where the ages of the events of a log are used but not known."""
        rule = self.recency_rule()
        if not rule.active or (log.has_order if rule.span.in_events else log.latest is not None):
            return
        what = "neither times nor an order" if rule.span.in_events else "no times"
        raise DataError(
            Message(
                f"{rule.setting} weights the events of test users by their age, but this log has {what}; name the "
                "column of times when it is read, with ",
                Option("time"),
                f", or leave {rule.setting.partition(' ')[0]} out",
            )
        )

    def adopt(self, log: Interactions, weights: Weights, report: Report, pruning: Pruning | None = None) -> None:
        """Set the state of a fitted model, as computed by a fit or an update, or read from a file."""
        self.log_, self.weights_, self.report_, self.pruning_ = log, weights, report, pruning

    def unfit(self) -> None:
        """Discard the state of a fit; the parameters stay."""
        for name in ("log_", "weights_", "report_", "pruning_"):
            self.__dict__.pop(name, None)

    def fitted(self) -> tuple[Interactions, Weights]:
        """The log and the weights; NotFittedError where the model is not fitted."""
        if "weights_" not in self.__dict__:
            raise NotFittedError(f"this {type(self).__name__} is not fitted: call fit(log) first")
        return self.log_, self.weights_

    def require_inductive(self, what: str) -> None:
        """ParameterError where the model scores only the users of its log; `what` names the request."""
        if not getattr(self, "inductive", True):
            raise ParameterError(
                f"{what} needs a model that scores any history; {type(self).__name__} knows only the users of its log: "
                "use recommend(users), or another model"
            )

    def recommend(
        self,
        users: Any = None,
        histories: Any = None,
        k: int = 10,
        allow: Any = None,
        deny: Any = None,
        exclude_seen: bool = True,
        *,
        at: Any = None,
        threads: int | None = None,
    ) -> Recommendations:
        """Rank items for known users, or for any history.

        Parameters
        ----------
        users : ids of users in the training log; with neither users nor histories, all of them
        histories : list of histories, each a list of item ids or a mapping from item id to weight
            The oldest item comes first, where the model has `recency` or `half_life`. A list may hold events with times
            instead: pairs (item, time), or mappings {"item": …, "time": …, "weight": …} with an optional weight. A time
            is a date, or a number in the unit of the log's times. A log merged as "binary" holds no weights: there
            every item of a history counts 1, times its factor by age.
        k : number of items for each request (fewer only where fewer are eligible)
        allow, deny : item ids
            Only these items; none of these items. One list for all requests, or one list for each request.
        exclude_seen : leave out the items of the history
        at : the time of asking, a date or a number in the unit of the log's times
            The age of an event is measured up to it; by default up to the latest event of the history. An event after
            it has the age 0. It is an error where the model counts the age in events, and has no effect where all
            events count the same.

        Returns
        -------
        Recommendations
            A table. Unknown users and items are left out; the result names them.
        """
        log, weights = self.fitted()
        if users is not None and histories is not None:
            raise ParameterError("both users and histories were given; expected one of them")
        recency = self.recency_rule()
        if histories is None:
            rows = ranking.known_users(users, log, recency, at)
        else:
            self.require_inductive("recommend(histories=…)")
            rows = ranking.given_histories(histories, log, recency, at)
        return ranking.recommend(
            weights, rows, log.items, k=k, allow=allow, deny=deny, exclude_seen=exclude_seen, threads=threads
        )

    def recommend_all(
        self,
        folder: str | Path,
        *,
        k: int = 10,
        allow: Any = None,
        deny: Any = None,
        exclude_seen: bool = True,
        at: Any = None,
        batch: int | None = None,
        threads: int | None = None,
        progress: Callable[[str, float], None] | None = None,
        cluster: Any = None,
    ) -> Written:
        """Rank items for every user of the log, into a folder of Parquet files: `part-00000.parquet` and so on.

        Each file is the table of `recommend` for a batch of users; it is written completely or not at all. The same
        call resumes after a crash: it keeps the complete files. A folder with any other content is refused.

        Parameters
        ----------
        folder : created where it does not exist
        k, allow, deny, exclude_seen, at, threads : as for `recommend`
        batch : users in a file; by default 10,000, and fewer where k is large
        progress : callable, optional
            Receives "users" and how many were written since the last call.
        cluster : as for `fit`
            Its workers must see the folder under the same path: the model is stored there while they run.
        """
        from monogram.models import batch as batch_

        self.fitted()
        request = batch_.BatchRequest(k, allow, deny, exclude_seen, at)
        with clusters.connection(cluster) as client:
            return batch_.recommend_all(
                cast("Recommender", self), folder, request, batch, parallel.count(threads), progress or silent, client
            )

    def similar(self, items: Any, k: int = 10, *, threads: int | None = None) -> Recommendations:
        """Items similar to each of the given items, which are excluded themselves.

        The similarity is the model's own: the score of the other item for a history of this item alone (a row of W).
        It is not symmetric: a sequel follows from its first part more than the first part from the sequel. The item
        counts 1: recency has no effect.
        """
        log, weights = self.fitted()
        self.require_inductive("similar")
        rows = ranking.item_histories(ranking.id_list(items), log)
        return ranking.recommend(weights, rows, log.items, k=k, threads=threads, names=("item", "similar"))

    def score(self, histories: Any, items: Any = None, *, at: Any = None, threads: int | None = None) -> Float64:
        """Scores of items for each history (histories × items); by default all items, in the order of `log_.items`.

        An unknown item has the score NaN, and a warning names it. `histories` and `at` are as for `recommend`.
        """
        log, weights = self.fitted()
        self.require_inductive("score")
        rows = ranking.given_histories(histories, log, self.recency_rule(), at)
        ids = list(log.items) if items is None else ranking.id_list(items)
        index = np.arange(log.n_items) if items is None else log.items.index(ids)
        unknown = [*rows.unknown_items, *ranking.unknown_ids(ids, index)]
        if unknown:
            names = ", ".join(ranking.shorten(id_) for id_ in unknown[:5])
            warnings.warn(f"{len(unknown)} items the model does not know: {names}", MonogramWarning, stacklevel=2)
        return ranking.score(weights, rows, index, parallel.count(threads))

    def explain(self, history: Any = None, item: Any = None, *, user: Any = None, at: Any = None) -> Explanation:
        """Why an item has its score: the exact share of each item of the history. The shares sum to the score.

        Of a model whose scores are no sums over the history (`additive_shares` is False), the numbers are differences
        instead: how much the score falls when the history lacks this one item. Then `additive` of the result is False.

        Parameters
        ----------
        history : one history, as for `recommend`
        item : id of the item to explain
        user : id of a user of the training log, in place of a history
        at : as for `recommend`
        """
        log, weights = self.fitted()
        if (history is None) == (user is None):
            number = "neither a history nor a user was" if user is None else "both a history and a user were"
            raise ParameterError(
                f"{number} given; expected one of them: explain(history, item), or explain(item=…, user=…)"
            )
        if user is None:
            self.require_inductive("explain(history, item)")
            rows = ranking.given_histories([history], log, self.recency_rule(), at)
        else:
            rows = ranking.user_histories([user], log, self.recency_rule(), at)
            if rows.unknown_users:
                name = ranking.shorten(user)
                raise UnknownIdError(f"user {name!r} is not one of the {log.n_users:,} users this model knows")
        return ranking.explain(weights, rows, item, log.items)

    def history(self, user: Any) -> dict[Any, float]:
        """A known user's training history: item id → weight in the log, the oldest item first if the log has an order.

        It has no times: where the model's recency is one of time, use `recommend(users)` and `explain(user=…)`.
        """
        return self.fitted()[0].history(user)

    def item_weights(self) -> Float64:
        """W as a dense array, in the order of `log_.items`; for small catalogues."""
        log, weights = self.fitted()
        self.require_inductive("item_weights")
        needed = 8 * log.n_items**2
        if needed > memory_.parse(None):
            raise ParameterError(
                f"W of {log.n_items:,} items would take {memory_.show(needed)}; "
                "use score, explain or similar, which read only the parts they need"
            )
        return weights.columns(np.arange(log.n_items))
