"""A GCN in dense float64 NumPy with a hand-written backward pass: the reference for the distributed one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[Any]


def normalized(adjacency: Matrix, normalization: str) -> Matrix:
    """(n, n) diag(left) A diag(right); rows of degree 0 become 0."""
    degree = adjacency.sum(1)
    with np.errstate(divide="ignore"):
        if normalization == "symmetric":
            factor = np.where(degree > 0, degree**-0.5, 0.0)
            return factor[:, None] * adjacency * factor
        if normalization == "mean":
            return np.where(degree > 0, 1 / degree, 0.0)[:, None] * adjacency
    return adjacency


@dataclass
class DenseGCN:
    """Weights and biases of every layer; ``operator`` is the (n, n) normalized adjacency."""

    operator: Matrix
    weights: list[Matrix]
    biases: list[Matrix]

    def layers(self, feature: Matrix) -> list[Matrix]:
        """The input of every layer, followed by the scores."""
        outputs = [feature]
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            output = self.operator @ outputs[-1] @ weight + bias
            outputs.append(output if layer == len(self.weights) - 1 else np.maximum(output, 0))
        return outputs

    def loss_and_gradients(self, feature: Matrix, label: Matrix, mask: Matrix) -> tuple[float, list[Matrix]]:
        """The loss over ``mask`` and the gradients of the weights, then of the biases."""
        outputs = self.layers(feature)
        loss, gradient = self.loss(outputs[-1], label, mask)
        by_weight, by_bias = [], []
        for layer in reversed(range(len(self.weights))):
            back = self.operator.T @ gradient
            by_weight.append(outputs[layer].T @ back)
            by_bias.append(gradient.sum(0))
            self.feature_gradient = back @ self.weights[layer].T
            gradient = self.feature_gradient * (outputs[layer] > 0)
        return loss, by_weight[::-1] + by_bias[::-1]

    def loss(self, scores: Matrix, label: Matrix, mask: Matrix) -> tuple[float, Matrix]:
        """Mean cross-entropy over ``mask``, and its gradient with respect to the scores."""
        scores = scores - scores.max(1, keepdims=True)
        log_probability = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        rows = np.flatnonzero(mask)
        gradient = np.zeros_like(scores)
        gradient[rows] = np.exp(log_probability[rows])
        gradient[rows, label[rows]] -= 1
        return float(-log_probability[rows, label[rows]].mean()), gradient / len(rows)

    @property
    def parameters(self) -> list[Matrix]:
        return self.weights + self.biases


class DenseMultilabelGCN(DenseGCN):
    """The same for labels of zeros and ones, with -1 for unknown."""

    def loss(self, scores: Matrix, label: Matrix, mask: Matrix) -> tuple[float, Matrix]:
        """Mean binary cross-entropy over the known labels of ``mask``, and its gradient with respect to the scores."""
        known = (label >= 0) & mask[:, None]
        probability = 1 / (1 + np.exp(-scores))
        losses = -np.where(label == 1, np.log(probability), np.log(1 - probability))
        gradient = np.where(known, probability - (label == 1), 0.0)
        return float(losses[known].mean()), gradient / known.sum()


def train_dense(
    model: DenseGCN,
    feature: Matrix,
    label: Matrix,
    mask: Matrix,
    epochs: int,
    lr: float,
    optimizer: str,
    *,
    train_features: bool = False,
) -> list[float]:
    """Losses of training with SGD or Adam (Kingma, Ba, 2015); updates the model, and trained features."""
    losses = []
    parameters = model.parameters + ([feature] if train_features else [])
    first = [np.zeros_like(p) for p in parameters]
    second = [np.zeros_like(p) for p in parameters]
    for step in range(1, epochs + 1):
        loss, gradients = model.loss_and_gradients(feature, label, mask)
        gradients += [model.feature_gradient] if train_features else []
        losses.append(loss)
        for index, gradient in enumerate(gradients):
            change = gradient
            if optimizer == "adam":
                first[index] += 0.1 * (gradient - first[index])
                second[index] += 0.001 * (gradient**2 - second[index])
                change = first[index] / (1 - 0.9**step) / (np.sqrt(second[index] / (1 - 0.999**step)) + 1e-8)
            parameters[index][:] -= lr * change
    return losses


def from_arrays(operator: Matrix, arrays: dict[str, Matrix], num_layers: int) -> DenseGCN:
    """The model with the parameters of a checkpoint."""
    weights, biases = (
        [arrays[f"parameter/{name}.{layer}"].copy() for layer in range(num_layers)] for name in ("weights", "biases")
    )
    return DenseGCN(operator, weights, biases)
