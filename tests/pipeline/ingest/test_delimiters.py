"""Tables of vertices are read with the separator that the user states, as tables of edges are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError


def _written(path: Path, rows: list[tuple[Any, ...]], between: str) -> Path:
    path.write_text("".join(f"{between.join(map(str, row))}\n" for row in rows))
    return path


USERS = [("id", "age", "job", "part"), ("u1", 30, "cook", "train"), ("u2", 41, "smith", "test"), ("u3", 25, "cook", "")]
PAYS = [("who", "shop", "amount"), ("u1", "s1", 2), ("u3", "s2", 5), ("u2", "s1", 1)]
READ = "id,age as feature,job as label,part as split"


@pytest.mark.parametrize("between", ["^", "~|~", "tab", ",", "!"])
def test_columns_of_vertices_have_the_separator_that_is_stated(tmp_path: Path, between: str) -> None:
    sign = "\t" if between == "tab" else between
    pays, users = _written(tmp_path / "pays.txt", PAYS, sign), _written(tmp_path / "users.txt", USERS, sign)
    dataset = gnnloom.ingest(
        "shop",
        relations={("user", "pays", "shop"): f"{pays}:who,shop,amount as weight"},
        vertices={"user": f"{users}:{READ}"},
        delimiter=between,
        workers=0,
        catalog=tmp_path / "catalog",
    )
    found = dataset.vertices(of_type="user")
    np.testing.assert_array_equal(found.feature(), [[30], [41], [25]])
    assert [found.class_names[each] for each in found.label()] == ["cook", "smith", "cook"]
    np.testing.assert_array_equal(found.split(), [1, 3, 0])
    assert dataset.typed_graph().relation("pays").nnz == 3


def test_a_separator_that_is_found_anyway_changes_no_key(tmp_path: Path) -> None:
    users = _written(tmp_path / "users.csv", USERS, ";")
    keys = set()
    for number, given in enumerate(({}, {"delimiter": ";"}, {"delimiter": "|"})):
        dataset = gnnloom.ingest("shop", [[0, 1], [1, 2]], workers=0, catalog=tmp_path / f"catalog-{number}")
        how: Any = {"feature": f"{users}:age", "by_id": False, "workers": 0, **given}
        if number == 2:
            with pytest.raises(InputError, match=r"users\.csv, line 1"):
                gnnloom.features(dataset, **how)
        else:
            keys.add(gnnloom.features(dataset, **how).vertices().artifact.key)
    assert len(keys) == 1


def test_whole_tables_and_tables_by_id_have_the_separator_that_is_stated(tmp_path: Path, catalog: Catalog) -> None:
    rows = [("id", "age", "height"), (2, 30, 1.5), (0, 41, 1.75), (1, 25, 2)]
    table = _written(tmp_path / "people.txt", rows, "^")
    dataset = gnnloom.ingest("web", [[0, 1], [1, 2]], workers=0, catalog=catalog.root)
    gnnloom.features(dataset, feature=str(table), by_id=True, delimiter="^", workers=0)
    np.testing.assert_array_equal(dataset.vertices().feature(), [[41, 1.75], [25, 2], [30, 1.5]])
    plain = _written(tmp_path / "plain.txt", [row[1:] for row in rows], "^")
    gnnloom.features(dataset, feature=str(plain), delimiter="^", add=True, workers=0)
    newest = [dataset.vertices(info.key).feature()[0, 0] for info in dataset.artifacts("vertices")]
    assert sorted(newest) == [30, 41]
    with pytest.raises(InputError, match="delimiter 'ab'"):
        gnnloom.features(dataset, feature=str(plain), delimiter="ab", add=True, workers=0)


def test_exports_of_databases_have_the_separator_that_is_stated(tmp_path: Path) -> None:
    _written(tmp_path / "users.txt", [("id:ID(User)", "age:int"), ("u1", 30), ("u2", 41)], "^")
    _written(tmp_path / "knows.txt", [(":START_ID(User)", ":END_ID(User)"), ("u1", "u2")], "^")
    dataset = gnnloom.ingest(
        "people", [tmp_path / "users.txt", tmp_path / "knows.txt"],
        columns="age as feature", delimiter="^", workers=0, catalog=tmp_path / "catalog",
    )  # fmt: skip
    np.testing.assert_array_equal(dataset.vertices(of_type="User").feature(), [[30], [41]])
