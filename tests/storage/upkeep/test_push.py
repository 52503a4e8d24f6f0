"""A dataset travels over any storage: whole or not at all, nothing twice, and everything is compared on arrival."""

from __future__ import annotations

import functools
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import fsspec
import pytest
from click.testing import CliRunner
from fsspec.implementations.memory import MemoryFileSystem

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.disk.files import json_text
from gnnloom.storage.disk.remote_folder import RemoteError, RemoteFolder
from gnnloom.storage.disk.seal import seal_object
from gnnloom.storage.errors import (
    BudgetError,
    CorruptError,
    ExistsError,
    FormatError,
    GnnloomError,
    InputError,
    NotFoundError,
)
from gnnloom.storage.runs.run import Run
from gnnloom.storage.upkeep.pull import pull_dataset
from gnnloom.storage.upkeep.push import LIST, OBJECTS, FileList, TransferSizes, push_dataset
from gnnloom.workflows.cli.main import cli
from support.small_catalogs import begin_partition, store_small_dataset

#: Files of more than a hundred bytes take several pieces.
SMALL = TransferSizes(at_once=3, piece=100)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    dataset = store_small_dataset(Catalog(tmp_path_factory.mktemp("pushed") / "catalog"))
    begin_partition(dataset)
    return dataset


def contents(dataset: Dataset) -> dict[str, bytes]:
    """The files of the complete artifacts and the runs."""
    begun = [f"{info.kind}/{info.key}" for info in dataset.artifacts() if info.state != "complete"]
    found = {path.relative_to(dataset.path).as_posix(): path for path in dataset.path.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith((".", *begun))}


@pytest.mark.parametrize("protocol", ["file", "memory"])
def test_a_dataset_comes_back_byte_for_byte_and_nothing_is_sent_twice(
    web: Dataset, tmp_path: Path, protocol: str
) -> None:
    url = f"{protocol}://{tmp_path}/remote"
    first = push_dataset(web, url, sizes=SMALL)
    assert first["files"] == len(contents(web))
    assert first["bytes"] == sum(map(len, contents(web).values()))
    again = push_dataset(web, url)
    assert (again["files"], again["files_sent"], again["bytes_sent"]) == (first["files"], 0, 0)
    _, read = pull_dataset(Catalog(tmp_path / "other"), url, sizes=SMALL)
    other = Catalog(tmp_path / "other")["web"]
    assert (contents(other), read) == (contents(web), first["bytes"])
    assert [path.name for path in other.path.parent.iterdir()] == ["web"]
    # What is new is sent, and the rest is there.
    Run(other.run_path("second")).start({}, 0, {})
    sent = other.push(url)["files_sent"]
    assert 0 < sent < 10
    assert Catalog(tmp_path / "third").pull(url, "copy").runs() == ["first", "second"]
    with pytest.raises(ExistsError, match="--as"):
        pull_dataset(Catalog(tmp_path / "third"), url, "copy")


def test_a_push_loses_nothing_that_is_there(web: Dataset, tmp_path: Path) -> None:
    url = f"{tmp_path}/remote"
    push_dataset(web, url)
    copy = Catalog(tmp_path / "other").pull(url)
    with pytest.raises(ExistsError, match="dataset web; push copy "):
        Catalog(tmp_path / "other").pull(url, "copy").push(url)
    copy.remove_artifact("runs", "first")
    with pytest.raises(ExistsError, match=r"runs/first.*--replace"):
        copy.push(url)
    assert copy.push(url, replace=True)["files"] < len(contents(web))


def test_a_damaged_object_is_named_and_nothing_is_left(web: Dataset, tmp_path: Path) -> None:
    url, catalog = str(tmp_path / "remote"), Catalog(tmp_path / "other")
    push_dataset(web, url)
    name, file = next(each for each in FileList.read(RemoteFolder(url)).files.items() if each[1].bytes > 50)
    stored = tmp_path / "remote" / OBJECTS / file.digest
    whole = stored.read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-7], b""):
        stored.write_bytes(damaged)
        with pytest.raises(CorruptError, match=rf"objects/{file.digest}: damaged:.*{name}"):
            pull_dataset(catalog, url, sizes=SMALL)
    stored.unlink()
    with pytest.raises(CorruptError, match=rf"objects/{file.digest}: missing; it has {name}"):
        catalog.pull(url)
    assert list(catalog) == []
    # As the message says.
    push_dataset(web, url)
    assert contents(catalog.pull(url)) == contents(web)
    listed = tmp_path / "remote" / LIST
    listed.write_bytes(listed.read_bytes().replace(b'"web"', b'"wet"'))
    with pytest.raises(CorruptError, match=rf"{LIST}:"):
        catalog.pull(url, "again")
    listed.unlink()
    with pytest.raises(NotFoundError, match=r"no dataset here.*push"):
        catalog.pull(url, "again")
    assert [each.name for each in catalog.root.iterdir() if not each.name.startswith(".")] == ["web"]


def test_a_hostile_list_is_refused(web: Dataset, tmp_path: Path) -> None:
    url, catalog = str(tmp_path / "remote"), Catalog(tmp_path / "other")
    push_dataset(web, url)
    listed = tmp_path / "remote" / LIST
    good = {name: value for name, value in json.loads(listed.read_text()).items() if name != "checksum"}
    (digest, size) = good["files"]["zarr.json"]
    wrong: list[Any] = [["../zarr.json", 3], [digest, -1], digest, {}]
    entries: list[tuple[dict[str, Any], type[GnnloomError]]] = [
        *(
            ({"files": {name: [digest, size]}}, InputError)
            for name in ("../evil", "/etc/evil", "graph/.work/x", "bin/x")
        ),
        *(({"files": {"zarr.json": entry}}, CorruptError) for entry in wrong),
        ({"files": {**good["files"], "graph": [digest, size]}}, InputError),
        ({"dataset": "../evil"}, InputError),
        ({"dataset": None}, CorruptError),
        ({"format_version": 99}, FormatError),
        ({"files": {"zarr.json": [digest, size + 1]}}, CorruptError),
        ({"files": {"zarr.json": [digest, 1 << 60]}}, BudgetError),
    ]
    for change, error in entries:
        listed.write_bytes(seal_object(json_text({**good, **change}).removesuffix("\n")))
        with pytest.raises(error):
            pull_dataset(catalog, url)
        assert not catalog.root.exists() or list(catalog) == []
    assert not (tmp_path / "evil").exists()
    # A pipe would be waited for, and a device gives bytes without end.
    makers: tuple[Callable[[], None], ...] = (
        lambda: os.mkfifo(listed),
        lambda: listed.symlink_to("/dev/zero"),
        listed.mkdir,
    )
    for make in makers:
        listed.unlink()
        make()
        with pytest.raises(RemoteError, match=f"{LIST}: not a file"):
            pull_dataset(catalog, url)
        if listed.is_dir():
            listed.rmdir()
            listed.write_bytes(b"")
    with pytest.raises(CorruptError, match=LIST):
        pull_dataset(catalog, url)


def test_a_pull_removes_what_the_list_has_no_more(web: Dataset, tmp_path: Path) -> None:
    url, catalog, other = str(tmp_path / "remote"), Catalog(tmp_path / "there"), Catalog(tmp_path / "other")
    push_dataset(web, url)
    copy = catalog.pull(url)
    last = max(FileList.read(RemoteFolder(url)).files.items())[1].digest
    stored = tmp_path / "remote" / OBJECTS / last
    content = stored.read_bytes()
    stored.unlink()
    with pytest.raises(CorruptError, match="missing"):
        pull_dataset(other, url, sizes=TransferSizes(at_once=1))
    stored.write_bytes(content)
    copy.remove_artifact("runs", "first")
    copy.push(url, replace=True)
    pulled = other.pull(url)
    assert contents(pulled) == contents(copy)
    assert not [path for path in pulled.path.rglob("*") if path.is_dir() and not any(path.iterdir())]


class Hostile(SimpleHTTPRequestHandler):
    """Serves a pushed dataset, and one answer to which it does not belong.

    Attributes:
        wrong: path of the request that is answered otherwise, and how.
    """

    wrong = ("", "")

    def do_GET(self) -> None:
        """Answer a request."""
        path, how = self.wrong
        if not self.path.endswith(path) or not how:
            super().do_GET()
            return
        self.send_response({"file": 302, "loop": 302, "refusal": 500}.get(how, 200))
        if how in {"file", "loop"}:
            self.send_header("Location", "file:///etc/passwd" if how == "file" else self.path)
        length = {"long": "999999999999", "short": "1000", "silent": "1000"}.get(how, "0" if how != "endless" else "")
        if length:
            self.send_header("Content-Length", length)
        self.end_headers()
        with suppress(ConnectionError):
            while how in {"endless", "long"}:
                self.wfile.write(bytes(1 << 16))
            self.wfile.write(b"{" if how in {"short", "silent"} else b"")
            self.wfile.flush()
            if how == "silent":
                time.sleep(1)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.slow
def test_a_hostile_server_is_refused_and_nothing_is_left(web: Dataset, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    catalog = Catalog(tmp_path / "other")
    push_dataset(web, str(tmp_path / "remote"))
    listed = FileList.read(RemoteFolder(str(tmp_path / "remote")))
    digest = max(listed.files.values(), key=lambda each: each.bytes).digest
    sizes = TransferSizes(at_once=3, piece=100, longest_list=1 << 20, silence=0.2)
    handler = functools.partial(Hostile, directory=str(tmp_path / "remote"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, pytest.MonkeyPatch.context() as patch:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        for path in (f"/{LIST}", digest):
            for how in ("endless", "long", "short", "silent", "file", "loop", "refusal", "empty"):
                patch.setattr(Hostile, "wrong", (path, how))
                with pytest.raises(GnnloomError, match=rf"{url}/.*{path.strip('/')}: ") as refused:
                    pull_dataset(catalog, url, sizes=sizes)
                assert "\n" not in str(refused.value)
                assert list(catalog) == []
        patch.setattr(Hostile, "wrong", ("", ""))
        # This server does not know ranges of bytes.
        pull_dataset(catalog, url, sizes=sizes)
        assert contents(catalog[web.name]) == contents(web)
        server.shutdown()


def test_damage_is_not_pushed(catalog: Catalog, tmp_path: Path) -> None:
    dataset = store_small_dataset(catalog)
    chunk = next(path for path in dataset.path.rglob("c/*") if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptError, match="damaged artifacts or runs"):
        push_dataset(dataset, str(tmp_path / "remote"))
    assert not (tmp_path / "remote").exists()


def test_errors_of_a_storage_are_one_line_without_credentials(
    web: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush-1")
    url = "memory://user:pass-word@bucket/web?sig=hush-hush-2"
    memory: Any = MemoryFileSystem

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(f"cannot open {url}, signed with hush-hush-1\nand more")

    monkeypatch.setattr(memory, "cat_file", fail)
    for action in (lambda: push_dataset(web, url), lambda: Catalog(tmp_path / "other").pull(url)):
        with pytest.raises(RemoteError, match=r"memory://bucket/web/.*RuntimeError") as failed:
            action()
        assert not any(secret in str(failed.value) for secret in ("hush", "pass-word", "user", "\n"))
        assert failed.value.__cause__ is None
    with pytest.raises(InputError, match="this URL cannot be opened"):
        push_dataset(web, "unheard-of://bucket/web")
    result = CliRunner().invoke(cli, ["--catalog", str(tmp_path / "other"), "catalog", "pull", url])
    assert result.exit_code != 0
    assert "hush" not in result.output


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of an S3 server, whose address and keys are in the environment."""
    server_of = pytest.importorskip("moto.server").ThreadedMotoServer
    s3fs = pytest.importorskip("s3fs")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_of("127.0.0.1", port=0, verbose=False)
    server.start()
    address, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://{address}:{port}"), ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_DEFAULT_REGION", "us-east-1"),
        ):  # fmt: skip
            patch.setenv(name, value)
        s3fs.S3FileSystem().mkdir("datasets")
        yield "s3://datasets"
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def run_catalog(root: Path, *arguments: str, fault: str = "") -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON of `gnnloom catalog`, in a process of its own."""
    command = [sys.executable, "-m", "gnnloom", "--catalog", str(root), "catalog", *arguments, "--json"]
    environment = {**os.environ, "GNNLOOM_FAULT": fault}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("push_fault", "pull_fault"),
    [
        ("push.send:SIGKILL:nth=1", "pull.rename:SIGKILL:nth=1"),
        ("push.send:SIGKILL:nth=30", "pull.rename:SIGKILL:nth=50"),
        ("push.publish:SIGKILL", "arrival.rename:SIGKILL"),
    ],
)
def test_copies_over_s3_that_are_killed_continue_and_give_the_same_bytes(
    web: Dataset, tmp_path: Path, bucket: str, push_fault: str, pull_fault: str
) -> None:
    url, root = f"{bucket}/{tmp_path.name}", tmp_path / "other"
    killed, _ = run_catalog(web.path.parent, "push", "web", url, fault=push_fault)
    assert killed == -signal.SIGKILL
    # Half a dataset is none.
    with pytest.raises(NotFoundError, match="there is no dataset here"):
        Catalog(root).pull(url)
    _, pushed = run_catalog(web.path.parent, "push", "web", url)
    total = len(set(contents(web).values()))
    assert pushed["files_sent"] < total or push_fault.endswith("nth=1")
    killed, _ = run_catalog(root, "pull", url, fault=pull_fault)
    assert (killed, list(Catalog(root))) == (-signal.SIGKILL, [])
    _, pulled = run_catalog(root, "pull", url)
    assert contents(Catalog(root)["web"]) == contents(web)
    assert pulled["bytes_read"] < pushed["bytes"] or pull_fault.endswith("nth=1")
    assert [path.name for path in root.iterdir()] == ["web"]


@pytest.mark.slow
def test_a_flipped_object_in_s3_and_a_missing_bucket_are_named(web: Dataset, tmp_path: Path, bucket: str) -> None:
    file_system: Any = fsspec.filesystem
    files, url = file_system("s3"), f"{bucket}/flipped"
    push_dataset(web, url, sizes=TransferSizes(piece=1000))
    name, file = max(FileList.read(RemoteFolder(url)).files.items(), key=lambda each: each[1].bytes)
    content = bytearray(files.cat_file(f"{url}/{OBJECTS}/{file.digest}"))
    content[len(content) // 2] ^= 4
    files.pipe_file(f"{url}/{OBJECTS}/{file.digest}", bytes(content))
    with pytest.raises(CorruptError, match=rf"{url}/objects/{file.digest}: damaged:.*{name}"):
        Catalog(tmp_path).pull(url)
    with pytest.raises(NotFoundError, match=r"s3://no-such-bucket/web/objects/.*: "):
        push_dataset(web, "s3://no-such-bucket/web")
