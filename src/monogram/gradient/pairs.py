"""Training of an encoder with a ranking loss: on pairs with sampled items, or on users with all items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from monogram.engine.runtime.arrays import Csr
from monogram.gradient import losses
from monogram.gradient.encoders import Encoder, TableEncoder
from monogram.gradient.negatives import Proposal, UnseenItems
from monogram.gradient.trainer import BatchTraining, Context
from monogram.weights import Weights

MANY = 1 << 14  # pairs in a batch, from which on products by tables take less time than rows of each pair


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """A loss and its settings.

    Parameters
    ----------
    name : of the loss, a function of `losses`
    batch : pairs, or users, in a batch
    negatives : items that each pair is compared with
    proposal : distribution of the sample of the sampled softmax
    cosine, temperature : scores are cosines where `cosine`, and are divided by the temperature
    margin, weight, reward : of the losses that have them
    l2 : penalty on half of the squared norms of the parameters that a pair uses
    """

    name: str
    batch: int
    negatives: int = 1
    proposal: str = "uniform"
    cosine: bool = False
    temperature: float = 1.0
    margin: float = 1.0
    weight: float = 1.0
    reward: float = 0.1
    l2: float = 0.0


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Positive pairs and other items, with their vectors; see `PairTraining.batches`."""

    users: Tensor
    items: Tensor
    others: Tensor
    queries: Tensor
    chosen: Tensor
    sampled: Tensor

    @property
    def positive(self) -> Tensor:
        """The score of each pair."""
        return (self.queries * self.chosen).sum(1)

    @property
    def negative(self) -> Tensor:
        """The scores of the other items for each user."""
        return products(self.queries, self.sampled)

    @property
    def between(self) -> Tensor:
        """The products of the item of each pair with the other items."""
        return products(self.chosen, self.sampled)


class RankingTraining(BatchTraining):
    """What the trainings on pairs and on users share: the scores, the penalty, and the weights."""

    def __init__(self, matrix: Csr, context: Context, encoder: Encoder, settings: LossSettings) -> None:
        self.matrix, self.encoder, self.settings, self.context = matrix, encoder, settings, context
        self.parameters, self.learning_rate = encoder.parameters, context.learning_rate

    def scaled(self, vectors: Tensor) -> Tensor:
        """Vectors whose products are the scores, but for the temperature: with cosine scores of norm 1."""
        return functional.normalize(vectors, dim=-1) if self.settings.cosine else vectors

    def queries(self, users: Tensor) -> Tensor:
        """The scaled vectors of users, divided by the temperature."""
        return self.scaled(self.encoder.users(users)) / self.settings.temperature

    def with_penalty(self, loss: Tensor, users: Tensor, items: Tensor, others: Tensor | None = None) -> Tensor:
        """The loss plus l2/2 times the mean squared norms of the parameters, and the encoder's own loss."""
        if self.settings.l2:
            parts = [("users", users), ("items", items)] + ([] if others is None else [("items", others)])
            squares = [self.encoder.squares(side, index) / index.numel() for side, index in parts]
            loss = loss + self.settings.l2 / 2 * torch.stack(squares).sum()
        extra = self.encoder.extra_loss(users, items)
        return loss if extra is None else loss + extra

    def weights(self, training: Csr) -> Weights:
        """The weights of the encoder."""
        return self.encoder.weights(training, self.settings.cosine)


class PairTraining(RankingTraining):
    """Train on pairs: each event is a positive pair, compared with sampled items.

    The events of an epoch are shuffled. The loss of a batch is the mean over its pairs, plus l2/2 times the sum of the
    mean squared norms of the parameters of their users, of their items, and of their first negatives. The negatives
    are items that the user has not seen; for the sampled softmax they are one sample of the proposal for the batch.
    """

    def __init__(self, matrix: Csr, context: Context, encoder: Encoder, settings: LossSettings) -> None:
        super().__init__(matrix, context, encoder, settings)
        users = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
        self._users, self._items = torch.from_numpy(users), torch.from_numpy(matrix.indices.astype(np.int64))
        self._unseen, self._proposal = UnseenItems(matrix), Proposal(matrix, settings.proposal)
        self._shared = settings.name == "sampled_softmax"
        own = {"uib": {"boundary": matrix.shape[0]}}
        own["sml"] = {"user_margin": matrix.shape[0], "item_margin": matrix.shape[1]}
        for name, size in own.get(settings.name, {}).items():
            self.parameters[name] = context.parameter(torch.zeros(size))

    def batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """All events in a random order: users, items, and other items, in a row for each pair or one row for all."""
        self.encoder.start_epoch()
        for events in torch.randperm(len(self._users)).split(self.settings.batch):
            if len(events) >= MANY:  # the same batch, in which the pairs of a user follow each other
                events = torch.from_numpy(np.sort(events.numpy()))
            users, items = self._users[events], self._items[events]
            number = self.settings.negatives
            others = self._proposal.draw(number)[None] if self._shared else self._unseen.draw(users, number)
            device = self.context.device
            yield users.to(device), items.to(device), others.to(device)

    def loss(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """The mean loss of the pairs, and the penalty."""
        users, items, others = batch
        self.encoder.forward()
        few = self._shared or others.shape[1] == 1
        return self.with_penalty(self._mean(users, items, others), users, items, others if few else others[:, 0])

    def _mean(self, users: Tensor, items: Tensor, others: Tensor) -> Tensor:
        """The mean loss of the pairs."""
        settings, encoder = self.settings, self.encoder
        plain = settings.name in ("bpr", "bce") and not settings.cosine and self.context.device == "cpu"
        if plain and len(users) >= MANY and isinstance(encoder, TableEncoder):
            pairs = torch.cat([users, users.repeat_interleave(others.shape[1])]), torch.cat([items, others.flatten()])
            positive, negative = (encoder.scores(*pairs) / settings.temperature).tensor_split((len(users),))
            return getattr(losses, settings.name)(positive, negative.view(others.shape))
        chosen, sampled = self._of_items(items, others)
        return self._value(ScoredPairs(users, items, others, self.queries(users), chosen, sampled))

    def _of_items(self, *indices: Tensor) -> list[Tensor]:
        """The scaled vectors of items. Where there are more than items, each item is divided by its norm once."""
        if self.settings.cosine and sum(index.numel() for index in indices) > self.matrix.shape[1]:
            table = self.scaled(self.encoder.items())
            return [functional.embedding(index, table) for index in indices]
        return [self.scaled(self.encoder.items(index)) for index in indices]

    def _value(self, pairs: ScoredPairs) -> Tensor:
        """The loss of the settings."""
        settings, scores = self.settings, (pairs.positive, pairs.negative)
        match settings.name:
            case "sampled_softmax":
                logs = (self._log(index, pairs.positive) for index in (pairs.items, pairs.others))
                return losses.sampled_softmax(*scores, *logs)
            case "cosine_contrastive":
                return losses.cosine_contrastive(*scores, settings.margin, settings.weight)
            case "uib":
                return losses.uib(*scores, self.parameters["boundary"][pairs.users], settings.margin)
            case "sml":
                margins = self._margins(pairs.users, pairs.items)
                return losses.sml(*scores, pairs.between, margins, settings.weight, settings.reward)
            case name:
                return losses.bce(*scores) if name == "bce" else losses.bpr(*scores)

    def _log(self, items: Tensor, like: Tensor) -> Tensor:
        return self._proposal.log(items.cpu()).to(like.device, like.dtype)

    def _margins(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """The margins of pairs, between 0 and the largest margin."""
        own, largest = self.parameters, self.settings.margin
        return largest * torch.sigmoid(own["user_margin"][users]), largest * torch.sigmoid(own["item_margin"][items])


class ListTraining(RankingTraining):
    """Train on users with the scores of all items: softmax and sparsemax. The users of an epoch are shuffled."""

    def batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Users with events, in a random order; and their events as (place in the batch, item)."""
        self.encoder.start_epoch()
        lengths = torch.from_numpy(np.diff(self.matrix.indptr).astype(np.int64))
        active = lengths.nonzero()[:, 0]
        for chosen in torch.randperm(len(active)).split(self.settings.batch):
            users = active[chosen]
            part = self.matrix[users.numpy()]
            rows = np.repeat(np.arange(len(users)), np.diff(part.indptr))
            tensors = users, torch.from_numpy(rows), torch.from_numpy(part.indices.astype(np.int64))
            yield tuple(tensor.to(self.context.device) for tensor in tensors)

    def loss(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """The mean loss over the events of the users, and the penalty of their pairs."""
        users, rows, items = batch
        self.encoder.forward()
        scores = self.queries(users) @ self.scaled(self.encoder.items()).T
        loss = getattr(losses, self.settings.name)(scores, rows, items)
        return self.with_penalty(loss, users[rows], items)


def products(queries: Tensor, items: Tensor) -> Tensor:
    """Scores of the items (rows × number × rank) of each query; one row of items serves all queries."""
    if items.shape[0] == 1:
        return queries @ items[0].T
    return torch.bmm(items, queries[:, :, None])[:, :, 0]
