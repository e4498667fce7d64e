"""The query layer: requests and rules become recommendations, scores and explanations.

Requests name ids; inside, everything is an index. `Recommender` and the server call the same functions.

- `requests`: known users, given histories or items as CSR rows, with labels and unknown ids.
- `events`: histories as callers give them, checked.
- `recency`, `ages`: how much an event of a history counts, by its age.
- `rules`: allow, deny and seen items as the masks and lists that the kernels take.
- `queries`: rank, score and explain.
- `recommendations`, `explanation`: the results, by id.
"""

from __future__ import annotations

from monogram.ranking.explanation import DIFFERENCES, Explanation, Shares
from monogram.ranking.ids import id_list, shorten, unknown_ids
from monogram.ranking.queries import (
    KernelCall,
    Query,
    RankedLists,
    explain,
    item_index,
    rank,
    recommend,
    score,
    shares,
)
from monogram.ranking.recency import NO_RECENCY, Recency
from monogram.ranking.recommendations import Recommendations
from monogram.ranking.requests import (
    Histories,
    given_histories,
    item_histories,
    known_users,
    merged_histories,
    training_histories,
    user_histories,
)
from monogram.ranking.rules import Rules, rule_lists

__all__ = [
    "DIFFERENCES",
    "NO_RECENCY",
    "Explanation",
    "Histories",
    "KernelCall",
    "Query",
    "RankedLists",
    "Recency",
    "Recommendations",
    "Rules",
    "Shares",
    "explain",
    "given_histories",
    "id_list",
    "item_histories",
    "item_index",
    "known_users",
    "merged_histories",
    "rank",
    "recommend",
    "rule_lists",
    "score",
    "shares",
    "shorten",
    "training_histories",
    "unknown_ids",
    "user_histories",
]
