"""The public face of storage: catalogs and datasets with the methods that look at everything in them.

:mod:`gnnloom.storage.catalog` finds artifacts; the rooms ``checks`` and ``upkeep`` build on it. The two classes here
join them, so that one object answers every question about a dataset. Import them from :mod:`gnnloom.storage`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnloom.storage.catalog import Catalog as BaseCatalog
from gnnloom.storage.catalog import Dataset as BaseDataset
from gnnloom.storage.upkeep.garbage import Garbage, collect_catalog_garbage, collect_garbage
from gnnloom.storage.upkeep.lineage import Node, Usage, disk_usage, lineage
from gnnloom.storage.upkeep.removal import remove_artifact

if TYPE_CHECKING:
    from gnnloom.storage.checks.verify import Finding

# Imported when they are used: `upkeep.archive`, which loads pyarrow, and `checks.verify`, which loads Zarr.


class Dataset(BaseDataset):
    """One dataset of a catalog: finds its artifacts and runs, checks them, and looks after them."""

    def lineage(self) -> dict[str, Node]:
        """Inputs and outputs of every artifact and run, by name (KIND/KEY or runs/RUN)."""
        return lineage(self)

    def disk_usage(self) -> list[Usage]:
        """Bytes on disk of every artifact and run; see :func:`gnnloom.storage.upkeep.lineage.disk_usage`."""
        return disk_usage(self)

    def verify(self, *, quick: bool = False) -> list[Finding]:
        """Check that everything is whole; see :func:`gnnloom.storage.checks.verify.verify_dataset`."""
        from gnnloom.storage.checks.verify import verify_dataset  # noqa: PLC0415

        return verify_dataset(self, quick=quick)

    def collect_garbage(self, *, dry_run: bool = False) -> list[Garbage]:
        """Remove, or only find, what nothing needs and no process holds."""
        return collect_garbage(self, dry_run=dry_run)

    def remove_artifact(self, kind: str, key: str, *, force: bool = False) -> None:
        """Delete an artifact or a run; see :func:`gnnloom.storage.upkeep.removal.remove_artifact`."""
        remove_artifact(self, kind, key, force=force)

    def export(self, file: Path | str) -> dict[str, Any]:
        """Write the dataset to one file; see :func:`gnnloom.storage.upkeep.archive.export_dataset`."""
        from gnnloom.storage.upkeep.archive import export_dataset  # noqa: PLC0415

        return export_dataset(self, Path(file))

    def push(self, url: str, *, replace: bool = False) -> dict[str, Any]:
        """Copy the dataset to a URL; see :func:`gnnloom.storage.upkeep.push.push_dataset`."""
        from gnnloom.storage.upkeep.push import push_dataset  # noqa: PLC0415

        return push_dataset(self, url, replace=replace)


class Catalog(BaseCatalog):
    """A directory of datasets.

    Examples:
        >>> web = Catalog("catalog")["web"]
        >>> web.graph().to_scipy().shape
        (200, 200)
        >>> {finding.state for finding in web.verify()}
        {'complete'}
    """

    def _open(self, path: Path) -> Dataset:
        return Dataset(path)

    def import_dataset(self, file: Path | str, name: str | None = None) -> Dataset:
        """Import what :meth:`Dataset.export` wrote; see :mod:`gnnloom.storage.upkeep.archive_import`."""
        from gnnloom.storage.upkeep.archive_import import import_dataset  # noqa: PLC0415

        # Opened again by name: the import returns the base class, and the catalog chooses the class that it opens.
        return self.dataset(import_dataset(self, Path(file), name).name)

    def pull(self, url: str, name: str | None = None) -> Dataset:
        """Copy a dataset from a URL that it was pushed to; see :func:`gnnloom.storage.upkeep.pull.pull_dataset`."""
        from gnnloom.storage.upkeep.pull import pull_dataset  # noqa: PLC0415

        return self.dataset(pull_dataset(self, url, name)[0].name)

    def collect_garbage(self, *, dry_run: bool = False) -> list[Garbage]:
        """Like :meth:`Dataset.collect_garbage`, for all :meth:`datasets` and the catalog's own folder."""
        found = [item for dataset in self.datasets() for item in dataset.collect_garbage(dry_run=dry_run)]
        return found + collect_catalog_garbage(self, dry_run=dry_run)
