"""The public catalog and its datasets offer in Python what the catalog commands do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage import catalog as base
from gnnloom.storage.disk.files import tree_bytes
from support.small_catalogs import begin_partition, store_small_dataset


def test_a_catalog_makes_datasets_of_its_own_class(catalog: Catalog) -> None:
    made = [catalog.create("web"), catalog["web"], catalog.dataset("web"), *catalog.datasets()]
    assert [type(dataset) for dataset in made] == [Dataset] * 4
    assert type(base.Catalog(catalog.root)["web"]) is base.Dataset


def test_importing_storage_does_not_load_what_only_archives_need() -> None:
    program = "import sys, gnnloom.storage; print(sys.modules.keys() & {'pyarrow', 'torch', 'dask', 'mpi4py'})"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


def test_a_dataset_reports_its_lineage_and_its_bytes(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    shards = f"shards/{dataset.find('shards').key}"
    assert dataset.lineage()["runs/first"].inputs == {"shards": shards}
    assert sum(usage.bytes for usage in dataset.disk_usage()) == tree_bytes(dataset.path)


def test_a_dataset_survives_export_and_import(catalog: Catalog, tmp_path: Path) -> None:
    dataset = store_small_dataset(catalog)
    dataset.export(tmp_path / "web.tar")
    copy = catalog.import_dataset(str(tmp_path / "web.tar"), "copy")
    assert set(copy.lineage()) == set(dataset.lineage())
    assert copy.graph().artifact.digest == dataset.graph().artifact.digest


def test_garbage_is_found_and_then_collected(catalog: Catalog) -> None:
    begun = begin_partition(store_small_dataset(catalog))
    assert begun.path in {item.path for item in catalog.collect_garbage(dry_run=True)}
    assert begun.path.exists()
    assert {item.path for item in catalog.collect_garbage()} >= {begun.path}
    assert not begun.path.exists()
    assert catalog["web"].collect_garbage() == []


def test_verify_names_what_is_damaged(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    quick = dataset.verify(quick=True)
    assert [finding.problem for finding in quick] == [None] * len(quick)
    chunk = next(path for path in (dataset.find("vertices").path / "feature" / "c").rglob("*") if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    (damaged,) = (finding for finding in dataset.verify(quick=True) if finding.is_damaged)
    assert damaged.kind == "vertices"
    assert "feature" in str(damaged.problem)
