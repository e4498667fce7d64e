"""Rules of a request (allow, deny, seen items) as the masks and lists that the top-k kernels take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from monogram.data.vocabulary import Vocabulary
from monogram.engine.runtime.arrays import Csr
from monogram.engine.topk.best import Eligible
from monogram.errors import ParameterError
from monogram.ranking.ids import IdScalar, as_python, id_list, is_collection, short_repr, unknown_ids
from monogram.ranking.requests import Histories


@dataclass(frozen=True)
class Rules:
    """Which items a request may get.

    Parameters
    ----------
    allow, deny : item ids, optional
        Only these items; none of these items. One list for all requests, or one list for each request.
    exclude_seen : bool
        Leave out the items of the request's own history.
    """

    allow: Any = None
    deny: Any = None
    exclude_seen: bool = True


def eligible_items(rules: Rules, histories: Histories, items: Vocabulary) -> tuple[Eligible, tuple[Any, ...]]:
    """The items that each row may get, and the ids in the rules that are unknown."""
    shape = len(histories), len(items)
    mask = np.ones(len(items), np.bool_)
    excluded = histories.matrix if rules.exclude_seen else sp.csr_array(shape, dtype=np.float32)
    only_pointers, only = np.zeros(0, np.int64), np.zeros(0, np.int64)
    unknown: list[Any] = []
    if rules.allow is not None:
        by_request, lists, missing = _item_lists(rules.allow, items, histories, "allow")
        unknown += missing
        if by_request:
            only_pointers, only = lists.indptr.astype(np.int64), lists.indices.astype(np.int64)
        else:
            mask[:] = False
            mask[lists.indices] = True
    if rules.deny is not None:
        by_request, lists, missing = _item_lists(rules.deny, items, histories, "deny")
        unknown += missing
        if by_request:
            excluded = _union(excluded, lists)
        else:
            mask[lists.indices] = False
    out_pointers, out = excluded.indptr.astype(np.int64), excluded.indices.astype(np.int64)
    return Eligible(mask, out_pointers, out, only_pointers, only), tuple(unknown)


def rule_lists(rule: Any, name: str) -> tuple[bool, list[list[Any]]]:
    """Whether a rule has one list for each request, and its lists (a single one for a rule of all requests)."""
    rule = as_python(rule)
    if not isinstance(rule, IdScalar | Iterable):
        raise ParameterError(f"{name} is {short_repr(rule)}; expected item ids, or one list of them for each request")
    entries = [rule] if isinstance(rule, IdScalar) else [as_python(entry) for entry in rule]
    nested = [is_collection(entry) for entry in entries]
    by_request = bool(entries) and all(nested)
    if any(nested) and not by_request:
        raise ParameterError(f"{name} mixes ids and lists; expected a list of ids, or one list of ids for each request")
    return by_request, [id_list(entry, name) for entry in entries] if by_request else [entries]


def _item_lists(rule: Any, items: Vocabulary, histories: Histories, name: str) -> tuple[bool, Csr, list[Any]]:
    """Whether a rule is by request; its lists as sorted rows, one for all or one for each row; unknown ids."""
    by_request, lists = rule_lists(rule, name)
    n_requests = len(histories) if histories.n_requests is None else histories.n_requests
    if by_request and len(lists) != n_requests:
        raise ParameterError(f"{name} has {len(lists)} lists for {n_requests} requests; expected one list for each")
    if by_request and histories.positions is not None:
        lists = [lists[position] for position in histories.positions]
    indices = [items.index(ids) for ids in lists]
    missing = [id_ for ids, index in zip(lists, indices, strict=True) for id_ in unknown_ids(ids, index)]
    known = [np.unique(index[index >= 0]) for index in indices]
    pointers = np.cumsum([0] + [len(row) for row in known])
    columns = np.concatenate([np.zeros(0, np.int64), *known])
    ones = np.ones(len(columns), np.float32)
    return by_request, sp.csr_array((ones, columns, pointers), shape=(len(lists), len(items))), missing


def _union(left: Csr, right: Csr) -> Csr:
    """The entries that either of two CSR matrices has."""
    union = ((left != 0).astype(np.float32) + right).tocsr()
    union.sort_indices()
    return union
