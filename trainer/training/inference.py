"""Chooses how a model on edges forms the scores of the whole graph."""

from __future__ import annotations

from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.modes.epochs.model_inputs import TypedInputs
from gnnloom.trainer.passes.ranges import SeedsThatFit
from gnnloom.trainer.training.share import Share


def attach_inference(model: Model, opened: OpenedRun, share: Share, fit: SeedsThatFit | None = None) -> None:
    """Attach to a model on edges the inference that forms its scores on the whole graph. Communicates nothing.

    Args:
        fit: see :class:`gnnloom.trainer.modes.epochs.typed_inference.TypedInference`.
    """
    # They import numba, which only such models, and modes that sample, load.
    from gnnloom.trainer.models.networks.edge_model import EdgeModel  # noqa: PLC0415
    from gnnloom.trainer.models.networks.typed_model import TypedModel  # noqa: PLC0415
    from gnnloom.trainer.modes.epochs.typed_inference import TypedInference  # noqa: PLC0415
    from gnnloom.trainer.modes.neighbor import fanouts  # noqa: PLC0415
    from gnnloom.trainer.passes.edge_inference import WholeInference  # noqa: PLC0415

    config, inputs = opened.config, share.inputs
    if isinstance(model, TypedModel) and isinstance(inputs, TypedInputs):
        num_hops = len(fanouts(config.mode.fanout, model.num_layers, on_edges=True))
        model.inference = TypedInference(inputs, share.operator, model, num_hops, fit)
    elif isinstance(model, EdgeModel):
        model.inference = WholeInference(
            dataset=opened.dataset,
            inputs=opened.shards.shards.artifact.inputs,
            operator=share.operator,
            model=model,
            normalization=config.model.normalization,
            # Known once the features are.
            feature_norm=lambda: inputs.norm,
            reads_features=config.mode.reads_batches,
        )
