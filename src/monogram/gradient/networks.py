"""Trainings of autoencoders with hidden layers: encoder and decoder, dropout, a variational code, vectors of users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional

from monogram.engine.runtime.arrays import Csr
from monogram.gradient import reconstruction
from monogram.gradient.negatives import UnseenItems
from monogram.gradient.rows import RowBatches, Rows, kept
from monogram.gradient.trainer import BatchTraining, Context
from monogram.weights import Autoencoder, Weights
from monogram.weights.autoencoder import Layer
from monogram.weights.known_rows import KnownRows

Activation = Callable[[torch.Tensor], torch.Tensor]
ACTIVATIONS: dict[str, Activation] = {"none": torch.clone, "tanh": torch.tanh, "sigmoid": torch.sigmoid}


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Settings of a network and its training.

    Parameters
    ----------
    widths : outputs of each layer; the inputs of the first and the outputs behind the last are the items
    activations : of each layer
    loss : name of the loss, of `reconstruction`
    unit : whether the rows are divided by their Euclidean norm
    dropout : probability with which an entry of a row is hidden
    l2 : penalty on the squared weights of all layers; biases have none
    batch : rows in a batch
    """

    widths: tuple[int, ...]
    activations: tuple[str, ...]
    loss: str = "multinomial"
    unit: bool = True
    dropout: float
    l2: float
    batch: int


@dataclass(frozen=True)
class Reading:
    """Rows with other values; `@` multiplies them with a matrix."""

    rows: Rows
    values: torch.Tensor

    def __matmul__(self, matrix: torch.Tensor) -> torch.Tensor:
        return self.rows.times(matrix, self.values)


class NetworkTraining(BatchTraining):
    """Train a network to reproduce rows from which entries are hidden.

    The loss is the mean over the rows of a batch, plus l2 times the squared weights.
    """

    def __init__(self, matrix: Csr, context: Context, settings: NetworkSettings) -> None:
        self.settings, self.context = settings, context
        self.learning_rate = context.learning_rate
        self.rows = RowBatches(matrix, context, settings.batch)
        items = matrix.shape[1]
        self.parameters = {}
        for number, (inputs, outputs) in enumerate(zip((items, *settings.widths), settings.widths, strict=False)):
            self._add(f"layer.{number}", inputs, outputs)
            self.parameters[f"bias.{number}"] = context.parameter(torch.zeros(outputs))
        self._add("items", items, settings.widths[-1])
        self.parameters["base"] = context.parameter(torch.zeros(items))

    def _add(self, name: str, inputs: int, outputs: int) -> None:
        """A matrix of weights, with the start of Glorot and Bengio (2010)."""
        self.parameters[name] = self.context.random(inputs, outputs, scale=(2 / (inputs + outputs)) ** 0.5)

    def batches(self) -> Iterator[Rows]:
        """All rows with entries, in a random order."""
        yield from self.rows

    def loss(self, batch: Rows) -> torch.Tensor:
        """The mean loss of the rows, and the penalty."""
        return self.error(self.scores(batch), batch) + self.penalty()

    def error(self, scores: torch.Tensor, rows: Rows) -> torch.Tensor:
        """The mean loss of the rows."""
        loss: torch.Tensor = getattr(reconstruction, self.settings.loss)(scores, rows)
        return loss

    def penalty(self) -> torch.Tensor:
        """l2 times the squared weights."""
        if not self.settings.l2:
            return torch.zeros((), device=self.context.device)
        matrices = [values for values in self.parameters.values() if values.ndim == 2]
        return self.settings.l2 * torch.stack([values.square().sum() for values in matrices]).sum()

    def scores(self, rows: Rows) -> torch.Tensor:
        """The scores of all items for rows from which entries are hidden."""
        hidden = self.output(0, self.read(rows), rows)
        for number in range(1, len(self.settings.widths)):
            hidden = self.output(number, hidden, rows)
        return functional.linear(hidden, self.parameters["items"], self.parameters["base"])

    def read(self, rows: Rows) -> Reading:
        """The rows as the network reads them: some entries are hidden, the others scaled by 1/(1 − dropout)."""
        values, dropout = rows.normalised() if self.settings.unit else rows.values, self.settings.dropout
        return Reading(rows, values * kept(rows, dropout) / (1 - dropout) if dropout else values)

    def output(self, number: int, inputs: Reading | torch.Tensor, rows: Rows) -> torch.Tensor:
        """The output of a layer."""
        return self.activated(number, inputs @ self.parameters[f"layer.{number}"])

    def activated(self, number: int, products: torch.Tensor) -> torch.Tensor:
        """The output of a layer, from the products of its inputs with its matrix."""
        activation = ACTIVATIONS[self.settings.activations[number]]
        return activation(products + self.parameters[f"bias.{number}"])

    def weights(self, training: Csr) -> Weights:
        """The layers as arrays."""
        return Autoencoder(self.layers(), self.array("items"), self.array("base"), unit=self.settings.unit)

    def layers(self) -> list[Layer]:
        """The layers before the items, as arrays."""
        activations = enumerate(self.settings.activations)
        return [Layer(self.array(f"layer.{n}"), self.array(f"bias.{n}"), activation) for n, activation in activations]


class VariationalTraining(NetworkTraining):
    """The code z of a row is drawn from a normal distribution, whose mean and logarithm of variance the encoder gives.

    The loss has the divergence of this distribution from the standard normal one, with a weight that rises linearly
    from 0 to beta. Fitted weights score with the mean.

    Parameters
    ----------
    code : number of the layer whose output is the mean of the code
    beta : weight of the divergence at the end of the annealing
    annealing : epochs in which the weight rises
    """

    def __init__(
        self, matrix: Csr, context: Context, settings: NetworkSettings, *, code: int, beta: float, annealing: int
    ) -> None:
        super().__init__(matrix, context, settings)
        self.code, self.beta, self.annealing, self.steps = code, beta, annealing, 0
        self._divergence = torch.zeros(())
        inputs, outputs = (matrix.shape[1], *settings.widths)[code : code + 2]
        self._add("spread", inputs, outputs)
        self.parameters["spread_bias"] = context.parameter(torch.zeros(outputs))

    def loss(self, batch: Rows) -> torch.Tensor:
        """The loss of the network, and the divergence."""
        loss = super().loss(batch) + self.annealed() * self._divergence
        self.steps += 1
        return loss

    def annealed(self) -> float:
        """The weight of the divergence at the present step."""
        steps = self.annealing * self.rows.number
        return self.beta * min(1.0, self.steps / steps) if steps else self.beta

    def output(self, number: int, inputs: Reading | torch.Tensor, rows: Rows) -> torch.Tensor:
        """The output of a layer; a draw, where it is the code."""
        mean = super().output(number, inputs, rows)
        if number != self.code:
            return mean
        logarithm = inputs @ self.parameters["spread"] + self.parameters["spread_bias"]
        self._divergence = divergence(mean, logarithm)
        return mean + self.context.tensor(torch.randn(mean.shape)) * (logarithm / 2).exp()

    def state(self) -> dict[str, torch.Tensor]:
        """The state of the optimiser, and the steps done."""
        return super().state() | {"steps": torch.tensor(self.steps)}

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """Set the state of the optimiser, and the steps done."""
        self.steps = int(state["steps"])
        super().restore({name: value for name, value in state.items() if name != "steps"})


class UserTraining(NetworkTraining):
    """A network whose first layer also adds a vector of the user; the loss compares entries with unused items.

    Parameters
    ----------
    negatives : unused items drawn for each entry; 0: all unused items count
    """

    def __init__(self, matrix: Csr, context: Context, settings: NetworkSettings, *, negatives: int) -> None:
        super().__init__(matrix, context, settings)
        self.negatives, self._unseen = negatives, UnseenItems(matrix)
        self._add("users", matrix.shape[0], settings.widths[0])

    def output(self, number: int, inputs: Reading | torch.Tensor, rows: Rows) -> torch.Tensor:
        """The output of a layer; the first adds the vectors of the users."""
        if number:
            return super().output(number, inputs, rows)
        own = functional.embedding(rows.users, self.parameters["users"])
        return self.activated(0, inputs @ self.parameters["layer.0"] + own)

    def error(self, scores: torch.Tensor, rows: Rows) -> torch.Tensor:
        """The mean loss of the rows."""
        if not self.negatives:
            return reconstruction.logistic(scores, rows)
        others = self._unseen.draw(rows.users[rows.owners].cpu(), self.negatives)
        return reconstruction.logistic(scores, rows, self.context.tensor(others))

    def weights(self, training: Csr) -> Weights:
        """The layers as arrays; a history that is of no user has the mean vector of the users."""
        users, filled = self.array("users"), self.rows.filled
        mean = users[filled].mean(0)
        users = KnownRows(training).average(users - mean)
        first, *others = self.layers()
        layers = [Layer(first.matrix, first.bias + mean, first.activation), *others]
        arrays = {"unit": self.settings.unit, "users": users, "training": training}
        return Autoencoder(layers, self.array("items"), self.array("base"), **arrays)


def divergence(mean: torch.Tensor, logarithm: torch.Tensor) -> torch.Tensor:
    """The Kullback–Leibler divergence of N(mean, exp(logarithm)) from N(0, 1), the mean over the rows."""
    return (mean.square() + logarithm.exp() - 1 - logarithm).sum(1).mean() / 2
