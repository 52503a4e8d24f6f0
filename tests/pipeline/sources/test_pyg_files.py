"""Files of PyG as people have them: one graph of any container, masks of several splits, views, and float labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.pipeline.sources.format import bundled_vertices, open_edges, open_vertices
from gnnloom.pipeline.sources.source import VertexSource
from gnnloom.storage.errors import InputError
from support.covering import few_of

N = 6
RING = torch.stack([torch.arange(N), (torch.arange(N) + 1) % N])
SPLIT = np.array([1, 1, 2, 3, 0, 3])


def rows(source: VertexSource | None, array: str) -> Any:
    assert source is not None
    return np.concatenate(list(source.read_rows(array, 0, source.num_vertices())))


def edges(path: Path) -> list[tuple[int, int]]:
    source = open_edges(None, [str(path)])
    chunks = [chunk for span in source.ranges() for chunk in source.read(span)]
    return [pair for each in chunks for pair in zip(each.source.tolist(), each.target.tolist(), strict=True)]


def saved(folder: Path, content: Any) -> Path:
    torch.save(content, folder / "data.pt")
    return folder / "data.pt"


def graph(size: int) -> Any:
    at = torch.arange(size)
    data = pytest.importorskip("torch_geometric.data").Data
    return data(x=torch.full((size, 1), float(size)), edge_index=torch.stack([at, (at + 1) % size]), y=at % 2)


def collated(*sizes: int) -> Any:
    dataset = pytest.importorskip("torch_geometric.data").InMemoryDataset
    data, slices = dataset.collate([graph(size) for size in sizes])
    return data, slices


CONTAINERS: dict[str, Callable[..., Any]] = {
    "list": lambda *sizes: [graph(size) for size in sizes],
    "tuple": lambda *sizes: tuple(graph(size) for size in sizes),
    "collated": collated,
    "processed": lambda *sizes: (collated(*sizes)[0].to_dict(), collated(*sizes)[1], {}, type(graph(3))),
    "offsets as lists": lambda *sizes: (
        collated(*sizes)[0],
        {name: each.tolist() for name, each in (collated(*sizes)[1] or {}).items()},
    ),
    "dicts": lambda *sizes: [graph(size).to_dict() for size in sizes],
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_only_containers_of_one_graph_are_read(tmp_path: Path, container: str) -> None:
    path = saved(tmp_path, CONTAINERS[container](4))
    assert edges(path) == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert rows(bundled_vertices(None, [str(path)]), "label").tolist() == [0, 1, 0, 1]
    path = saved(tmp_path, CONTAINERS[container](3, 4, 5))
    for opened in (open_edges, open_vertices):
        with pytest.raises(InputError, match=r"data.pt:"):
            opened("pyg", [str(path)])


def test_graphs_joined_by_pyg_are_one_graph(tmp_path: Path) -> None:
    batch = pytest.importorskip("torch_geometric.data").Batch.from_data_list([graph(3), graph(4)])
    path = saved(tmp_path, batch.to_dict())
    assert edges(path)[3:] == [(3, 4), (4, 5), (5, 6), (6, 3)]
    with pytest.raises(InputError, match=r"batch.to_dict\(\)"):
        edges(saved(tmp_path, batch))


def test_several_types_of_vertices_are_no_table_of_edges(tmp_path: Path) -> None:
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    data["a"].x, data["b"].x = torch.randn(3, 2), torch.randn(4, 2)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1, 2], [3, 2, 0]])
    with pytest.raises(InputError, match=r"HeteroData .*gnnloom ingest NAME FILE"):
        edges(saved(tmp_path, data))


def masks(dtype: torch.dtype = torch.bool) -> dict[str, torch.Tensor]:
    """Masks of three splits; the last is SPLIT, the others are shifted."""
    codes = np.stack([np.roll(SPLIT, 2 - k) for k in range(3)], 1)
    names = {"train_mask": 1, "val_mask": 2, "test_mask": 3}
    return {name: torch.from_numpy(codes == code).to(dtype) for name, code in names.items()}


def by_columns(mask: torch.Tensor) -> torch.Tensor:
    return mask.t().contiguous().t()


@pytest.mark.parametrize(
    ("change", "index"), few_of([torch.clone, by_columns, lambda mask: mask.repeat(1, 2)[:, :3]], [0, 2], together=1)
)
def test_a_split_of_several_is_chosen_by_its_index(
    tmp_path: Path, change: Callable[[torch.Tensor], torch.Tensor], index: int
) -> None:
    given = {name: change(mask) for name, mask in masks().items()}
    path = [str(saved(tmp_path, {"edge_index": RING, **given}))]
    source = bundled_vertices(None, path, {"split_index": index})
    assert rows(source, "split").tolist() == np.roll(SPLIT, 2 - index).tolist()
    with pytest.raises(InputError, match=r"train_mask:.*--split-index"):
        bundled_vertices(None, path)
    with pytest.raises(InputError, match="--split-index 3:"):
        bundled_vertices(None, path, {"split_index": 3})
    # The edges do not depend on it.
    assert open_edges(None, path, {"split_index": index}).identity() == open_edges(None, path).identity()


def test_test_masks_may_be_the_same_for_all_splits(tmp_path: Path) -> None:
    given = {name: mask[:, :2] & ~masks()["test_mask"][:, 2:] for name, mask in masks().items()}
    given["valid_mask"] = given.pop("val_mask")
    given["test_mask"] = masks()["test_mask"][:, 2]
    source = bundled_vertices(None, [str(saved(tmp_path, {"edge_index": RING, **given}))], {"split_index": 1})
    expected = np.where(SPLIT == 3, 3, np.where(np.roll(SPLIT, 1) == 3, 0, np.roll(SPLIT, 1)))
    assert rows(source, "split").tolist() == expected.tolist()


def test_masks_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    one = {name: mask[:, 0] for name, mask in masks().items()}
    path = [str(saved(tmp_path, {"edge_index": RING, **one, "valid_mask": one["val_mask"]}))]
    with pytest.raises(InputError, match=r"val_mask and .*valid_mask:"):
        bundled_vertices(None, path)
    path = [str(saved(tmp_path, {"edge_index": RING, **one}))]
    with pytest.raises(InputError, match="--split-index 1:"):
        bundled_vertices(None, path, {"split_index": 1})
    path = [str(saved(tmp_path, {"edge_index": RING}))]
    with pytest.raises(InputError, match=r"split_index:.*data.pt"):
        bundled_vertices(None, path, {"split_index": 0})


@pytest.mark.parametrize(
    "view",
    [
        torch.arange(3.0 * N).reshape(3, N).t(),
        torch.arange(6.0 * N).reshape(N, 6)[:, ::2],
        torch.arange(6.0 * N).reshape(2 * N, 3)[::2],
        torch.arange(3.0 * N + 3).reshape(N + 1, 3)[1:],
        torch.arange(12.0 * N).reshape(4, N, 3).permute(1, 2, 0)[:, :, 1],
    ],
)
def test_views_are_read_by_their_strides(tmp_path: Path, view: torch.Tensor) -> None:
    path = saved(tmp_path, {"edge_index": torch.stack([RING, RING], 2)[:, :, 1], "x": view})
    assert edges(path) == list(zip(*RING.tolist(), strict=True))
    source = open_vertices("pyg", [str(path)])
    np.testing.assert_array_equal(rows(source, "feature"), view.numpy())
    (some,) = source.read_rows("feature", 2, 5)
    np.testing.assert_array_equal(some, view[2:5].numpy())


@pytest.mark.parametrize(
    "unrelated",
    [
        torch.eye(3).to_sparse(),
        torch.zeros(3, dtype=torch.bfloat16),
        torch.zeros(3, dtype=torch.complex64),
        torch.zeros(3, dtype=torch.uint16),
        torch.zeros(2, 1).expand(2, 9),
        torch.nn.Parameter(torch.zeros(3)),
        np.zeros(3),
    ],
)
def test_tensors_that_are_not_used_may_be_anything(tmp_path: Path, unrelated: Any) -> None:
    path = saved(tmp_path, {"edge_index": RING, "y": torch.arange(N), "other": unrelated})
    assert len(edges(path)) == N
    assert rows(open_vertices("pyg", [str(path)]), "label").tolist() == list(range(N))


def test_a_sparse_matrix_of_features_is_refused_by_its_name(tmp_path: Path) -> None:
    path = saved(tmp_path, {"edge_index": RING, "x": torch.eye(N).to_sparse()})
    assert len(edges(path)) == N
    with pytest.raises(InputError, match=r"data.pt, x:"):
        bundled_vertices(None, [str(path)])


NAN = float("nan")


@pytest.mark.parametrize(
    ("y", "array", "expected"),
    [
        (torch.tensor([0.0, 1, 2, 0, 1, 2]), "label", [0, 1, 2, 0, 1, 2]),
        (torch.tensor([0.0, NAN, 2, 0, -1, 2])[:, None], "label", [0, -1, 2, 0, -1, 2]),
        (torch.full((N,), NAN), "label", [-1] * N),
        (torch.tensor([0.5, 1, 2, 0, 1, NAN]), "target", [[0.5], [1], [2], [0], [1], [NAN]]),
        (torch.tensor([0.5, 1, 2, 0, 1, -7]).double()[:, None], "target", [[0.5], [1], [2], [0], [1], [-7]]),
        (torch.tensor([[0.0, 1]] * N), "multilabel", [[0, 1]] * N),
        (torch.tensor([[0.25, 1]] * N), "target", [[0.25, 1]] * N),
        (torch.arange(2.0 * N).reshape(2, N).t(), "target", [[k, k + N] for k in range(N)]),
    ],
)
def test_floats_that_are_no_labels_are_the_target(tmp_path: Path, y: torch.Tensor, array: str, expected: Any) -> None:
    source = open_vertices("pyg", [str(saved(tmp_path, {"edge_index": RING, "y": y}))])
    assert source.arrays == (array,)
    np.testing.assert_array_equal(rows(source, array), np.array(expected))
