"""All models in dense float64 torch with its autograd: the reference for the distributed ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from support.dense import normalized

EPSILON = 1e-5


@dataclass
class DenseModel:
    """A model over the (n, n) dense adjacency, with the parameters of a checkpoint."""

    kind: str
    adjacency: np.ndarray
    parameters: dict[str, Tensor]
    num_layers: int
    norm: str = "none"
    residual: bool = False
    unit_embedding: bool = False
    heads: int = 1
    negative_slope: float = 0.2
    #: Running mean and (unbiased) variance of every batch normalization.
    running: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @classmethod
    def from_arrays(cls, kind: str, adjacency: np.ndarray, arrays: dict[str, np.ndarray], **options: Any) -> DenseModel:
        names = [name for name in arrays if name.startswith("parameter/")]
        parameters = {name.removeprefix("parameter/"): torch.tensor(arrays[name]).requires_grad_() for name in names}
        num_layers = sum(name.startswith("weights.") for name in parameters)
        return cls(kind, adjacency, parameters, num_layers, **options)

    def __getitem__(self, name: str) -> Tensor:
        return self.parameters[name]

    def scores(self, feature: Tensor, training: bool = True) -> Tensor:
        hidden = feature
        for layer in range(self.num_layers - 1):
            output = self._normalized(self.layer(hidden, layer), layer, training)
            output = torch.nn.functional.elu(output) if self.kind == "gat" else torch.relu(output)
            hidden = output + hidden if self._adds(layer, hidden, output) else output
        if self.unit_embedding:
            hidden = torch.nn.functional.normalize(hidden)
        return self.layer(hidden, self.num_layers - 1)

    def _adds(self, layer: int, hidden: Tensor, output: Tensor) -> bool:
        return self.residual and layer > 0 and hidden.shape == output.shape

    def layer(self, hidden: Tensor, layer: int) -> Tensor:
        output: Tensor = getattr(self, f"_{self.kind}")(hidden, layer)
        return output

    def _operator(self, normalization: str) -> Tensor:
        return torch.tensor(normalized(self.adjacency, normalization))

    def _gcn(self, hidden: Tensor, layer: int) -> Tensor:
        return self._operator("symmetric") @ hidden @ self[f"weights.{layer}"] + self[f"biases.{layer}"]

    def _sage(self, hidden: Tensor, layer: int) -> Tensor:
        mean = self._operator("mean") @ hidden
        return hidden @ self[f"self_weights.{layer}"] + mean @ self[f"weights.{layer}"] + self[f"biases.{layer}"]

    def _gin(self, hidden: Tensor, layer: int) -> Tensor:
        total = (1 + self[f"epsilons.{layer}"]) * hidden + self._operator("none") @ hidden
        inner = torch.relu(total @ self[f"weights.{layer}"] + self[f"biases.{layer}"])
        return inner @ self[f"outer_weights.{layer}"] + self[f"outer_biases.{layer}"]

    def _gat(self, hidden: Tensor, layer: int) -> Tensor:
        edges = torch.tensor(self.adjacency != 0)
        values = (hidden @ self[f"weights.{layer}"]).chunk(self.heads, dim=1)
        outputs = []
        is_dynamic = f"attention.{layer}" in self.parameters
        if is_dynamic:
            values = (torch.cat(values, 1) + self[f"source_biases.{layer}"]).chunk(self.heads, dim=1)
            targets = hidden @ self[f"target_weights.{layer}"] + self[f"target_biases.{layer}"]
        for head, value in enumerate(values):
            if is_dynamic:
                total = targets.chunk(self.heads, dim=1)[head][:, None] + value[None, :]
                activated = torch.nn.functional.leaky_relu(total, self.negative_slope)
                score = activated @ self[f"attention.{layer}"][head]
            else:
                source = value @ self[f"source_attention.{layer}"][head]
                target = value @ self[f"target_attention.{layer}"][head]
                score = torch.nn.functional.leaky_relu(target[:, None] + source[None, :], self.negative_slope)
            attention = score.masked_fill(~edges, -torch.inf).softmax(1)
            outputs.append(torch.where(edges, attention, 0.0).nan_to_num() @ value)
        last = layer == self.num_layers - 1
        return (sum(outputs) / self.heads if last else torch.cat(outputs, 1)) + self[f"biases.{layer}"]

    def _normalized(self, output: Tensor, layer: int, training: bool) -> Tensor:
        if self.norm == "none":
            return output
        dim = 0 if self.norm == "batch" else 1
        mean, variance = output.mean(dim, keepdim=True), output.var(dim, correction=0, keepdim=True)
        if self.norm == "batch" and training:
            sample = output.var(0, correction=1)
            before = self.running.get(layer, (torch.zeros_like(mean[0]), torch.ones_like(mean[0])))
            new_mean, new_variance = (
                0.9 * old + 0.1 * new.detach() for old, new in zip(before, (mean[0], sample), strict=True)
            )
            self.running[layer] = new_mean, new_variance
        elif self.norm == "batch":
            mean, variance = self.running[layer]
        standard = (output - mean) / (variance + EPSILON).sqrt()
        return standard * self[f"norms.{layer}.scale"] + self[f"norms.{layer}.shift"]

    def train(
        self, feature: np.ndarray, label: np.ndarray, mask: np.ndarray, epochs: int, lr: float, optimizer: str
    ) -> list[float]:
        """Losses with torch's own optimizers; updates the parameters."""
        kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[optimizer]
        steps = kind(list(self.parameters.values()), lr=lr)
        # Trained input features are a parameter of the checkpoint like the others.
        inputs = self.parameters.get("feature", torch.tensor(feature).double())
        target = torch.tensor(label)
        losses = []
        for _ in range(epochs):
            steps.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.scores(inputs)[mask], target[mask])
            loss.backward()  # type: ignore[no-untyped-call]
            steps.step()
            losses.append(loss.item())
        return losses
