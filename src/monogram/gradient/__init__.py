"""Models that are trained by gradients: encoders × losses, and one trainer for all. The extra `torch`.

Modules with a model class (`model`, `factorization`, `autoencoders`, `linear_models`) import no torch: lists of models,
help texts and loaded models work without it. Modules with computations (`trainer`, `losses`, `negatives`, …) import
torch at their top, and are imported inside `_training`, when a model is fitted.

A new model is a dataclass that inherits from `GradientModel` and has a method `_training(log, context)`. It returns a
`Training`, which the trainer runs epoch by epoch. Most derive from `BatchTraining`: parameters by name, an iterator
over the batches of an epoch, the loss of a batch, and the weights that the parameters amount to:

    class Means(BatchTraining):
        def __init__(self, log, context):
            self.matrix = log.matrix.toarray()
            self.parameters = {"items": context.random(log.n_items, scale=0.1)}

        def batches(self):
            yield torch.randperm(len(self.matrix))[:256]

        def loss(self, rows):
            x = torch.as_tensor(self.matrix[rows])
            return ((x - self.parameters["items"]) ** 2).mean()

        def weights(self, training):
            return Fixed(self.array("items").astype(np.float64))

The trainer seeds torch before `_training` is called and restores the state of its generator afterwards: draw from
torch's own generator (`torch.randperm`, `context.random`, dropout), and the same seed gives the same result, also for a
fit that was killed and resumed.
"""
