# The keywords of the functions, for type checkers and editors. `python tests/support/option_types.py` writes this file.

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from gnnloom.workflows.api.options.keywords import ArtifactLike

class ClusterKeywords(TypedDict, total=False):
    workers: int | None
    memory: int | str
    scheduler: str | None
    performance_report: Path | str | None
    scratch: Path | str | None

class IngestKeywords(ClusterKeywords, total=False):
    undirected: bool
    self_loops: str
    ids: str
    merge: str | None
    codec: str
    unknown: str
    store: str
    weights: bool | None
    times: bool | None
    header: bool | None
    extra_columns: bool | None
    columns: str | Sequence[str] | None
    delimiter: str | None
    comment: str | None
    decimal: str
    rdf_type: str
    split_index: int | None
    packed: bool | None

class GenerateKeywords(ClusterKeywords, total=False):
    vertices: int
    edges: int
    classes: int
    homophily: float
    skew: float
    dim: int
    noise: float
    seed: int
    scale: int
    edge_factor: int
    scramble: bool
    size: int | Sequence[int]
    shortcuts: float

class FeaturesKeywords(ClusterKeywords, total=False):
    store: str
    header: bool | None
    split_index: int | None
    missing: str
    missing_indicator: bool | None
    categories: int
    decimal: str
    delimiter: str | None
    dim: int
    classes: int
    seed: int

class PartitionKeywords(ClusterKeywords, total=False):
    method: str
    imbalance: float
    seed: int
    model: str
    time_limit: float | None
    threads: int | None
    preset: str
    weights: str
    directions: str
    memory_limit: int | None
    batches: str
    batch_rate: float
    exchange: str
    cover_passes: int
    balance: str
    reverse: bool
    replicate: Sequence[str]
    quality: str
    method_options: Sequence[str]

class SampleKeywords(ClusterKeywords, total=False):
    mode: str
    fanout: int | Sequence[int]
    batch_size: int
    epochs: int
    ranks: int
    seed: int
    neighbor_sampler: str
    replace: bool
    draw_once: bool
    of_type: str | None
    relation_fanout: Sequence[str]
    fanout_total: bool
    reverse: bool
    cache_memory: int

class DrawKeywords(ClusterKeywords, total=False):
    by: str
    times: str | None
    valid: float
    test: float
    disjoint: float
    negatives: int
    seed: int
    reciprocal: str | None
    relation: str | None
    values: str | None

class LinksKeywords(ClusterKeywords, total=False):
    train: Path | str | None
    valid: Path | str | None
    test: Path | str | None
    valid_negatives: Path | str | None
    test_negatives: Path | str | None
    valid_targets: Path | str | None
    test_targets: Path | str | None
    negatives: int
    seed: int
    values: str | None
    format: str | None
    columns: str | Sequence[str] | None
    header: bool | None
    delimiter: str | None
    extra_columns: bool
    keep_edges: bool
    allow_overlap: bool
    reciprocal: str | None
    relation: str | None

class HardKeywords(ClusterKeywords, total=False):
    negatives: int
    features: bool
    seed: int
    relation: str | None

class PropagateKeywords(TypedDict, total=False):
    of: str
    steps: int
    normalization: str
    ppr: float | None
    ranks: int
    shards: ArtifactLike | None
    method: str | None
    memory: int | str | None
    adjacency: str
    threads: int
    scratch: str | None
    wait_timeout: float

class PlanKeywords(TypedDict, total=False):
    model: str
    mode: str
    hidden: int | Sequence[int]
    heads: int
    attention: str
    precision: str
    norm: str
    residual: bool
    dropout: float
    product_order: str
    train_features: bool
    embed: int
    permutation: str | None
    task: str
    links: ArtifactLike | None
    output_dim: int
    link_batch: int
    exclude_targets: bool
    negatives: int
    negative_sampler: str

class PredictKeywords(TypedDict, total=False):
    model: str | None
    decoder: str | None
    checkpoint: str
    safe_csv: bool
    embeddings: bool
    ranks: int | None
    wait_timeout: float | None
    evaluation_memory: int | None
    graph: ArtifactLike | None
    vertices: ArtifactLike | None
    unknown: str
    header: bool | None
    smooth: str
    smooth_steps: int | None
    smooth_alpha: float | None
    correct_steps: int
    correct_alpha: float
    correct_scale: float | str

class LoaderKeywords(TypedDict, total=False):
    fanout: int | Sequence[int] | Mapping[str | tuple[str, str, str], int | Sequence[int]]
    batch_size: int
    split: str
    shuffle: bool
    seed: int
    neighbor_sampler: str
    replace: bool
    cache_memory: int
    epoch: int
    rank: int
    size: int
    drop_last: bool
    workers: int | None
    pool: int | None
    features: str
    feature_norm: str
    labels: bool
    normalization: str
    adj_t: bool
    sampler: str
    batches: int
    presamples: int | str
    frontier: int
    enlargement: float
    degree_cap: int
    walk_length: int
    cluster_parts: int
    cluster_key: str
    parts_per_batch: int
    negatives: int | None
    negative_sampler: str
    strict_negatives: bool
    exclude_targets: bool
    fanout_total: bool
    reverse: bool

class TrainKeywords(TypedDict, total=False):
    ranks: int
    algorithm: str
    grid: int | Sequence[int] | None
    exchange: str
    summa_width: int
    aggregation_blocks: int
    gradient_product: str
    threads: int
    shards: ArtifactLike | None
    method: str | None
    permutation: str | None
    adjacency: str
    feature_norm: str
    mode: str
    batch_size: int
    batches: int
    sampler: str
    frontier: int
    enlargement: float
    degree_cap: int
    walk_length: int
    cluster_parts: int
    cluster_key: str
    parts_per_batch: int
    presamples: int | str
    fanout: int | Sequence[int]
    replace: bool
    draw_once: bool
    neighbor_sampler: str
    samples: ArtifactLike | None
    propagated: ArtifactLike | None
    steps: int | Sequence[int]
    inputs: str
    cache_memory: int
    of_type: str | None
    relation: str | None
    relation_fanout: Sequence[str]
    fanout_total: bool
    reverse: bool
    vertex_data: Sequence[ArtifactLike]
    sampler_threads: int
    pool: int
    model: str
    hidden: int | Sequence[int]
    bias: bool
    norm: str
    residual: bool
    unit_embedding: bool
    heads: int
    negative_slope: float
    attention: str
    normalization: str
    train_features: bool
    embed: int
    dropout: float
    input_dropout: bool
    precision: str
    product_order: str
    cache_input_product: bool
    skip_input_gradient: bool
    recompute: bool
    model_options: Sequence[str]
    epochs: int
    lr: float
    optimizer: str
    weight_decay: float
    weight_decay_layers: str
    schedule: str
    warmup_epochs: int
    schedule_epochs: int
    step_epochs: int
    plateau_epochs: int
    lr_factor: float
    min_lr: float
    clip_norm: float
    task: str
    loss: str
    class_weights: str
    metric: str
    links: ArtifactLike | None
    output_dim: int
    decoder: str
    decoder_hidden: int | Sequence[int]
    link_batch: int
    exclude_targets: bool
    negatives: int
    negative_sampler: str
    strict_negatives: bool
    filtered_ranks: bool
    patience: int
    monitor: str
    keep_best: str
    seed: int
    eval_every: int
    final_eval: bool
    evaluation_memory: int
    checkpoint_every: int
    keep: int
    run: str | None
    log: Sequence[str]
    save_embeddings: bool
    wait_timeout: float
    profile: bool
    memory: int | str | None
