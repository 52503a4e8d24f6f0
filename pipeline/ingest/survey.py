"""Surveys a source before it is read: tasks count what its ranges hold, as some formats can be read in no other way."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.pipeline.matrix_sort.scatter import range_facts
from gnnloom.pipeline.sources.source import EdgeSource, SourceRange, SurveyedSource
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord


@dataclass(frozen=True)
class SurveyTask:
    """Counts what one range holds."""

    writer: ArtifactWriter
    source: SurveyedSource
    round: int
    number: int
    range: SourceRange

    @property
    def name(self) -> str:
        return f"survey/{self.round}/{self.number:05d}"


def surveyed_source(writer: ArtifactWriter, source: EdgeSource, cluster: Cluster) -> EdgeSource:
    """The same source, able to be read in ranges.

    Raises:
        InputError: a file does not hold what it states.
    """
    done = 0
    while isinstance(source, SurveyedSource) and (spans := source.surveys()):
        tasks = [SurveyTask(writer, source, done, number, span) for number, span in enumerate(spans)]
        records = run_missing("survey", cluster, writer, _survey, tasks, "ranges", is_usable=_is_surveyed)
        source = source.with_surveys([record.facts["found"] for record in records])
        done += 1
    return source


def planned_ranges(source: EdgeSource) -> int:
    """Number of ranges that tasks will read, surveyed or not."""
    return len((source.surveys() if isinstance(source, SurveyedSource) else ()) or source.ranges())


def _is_surveyed(task: SurveyTask, record: TaskRecord) -> bool:
    return bool(record.facts["range"] == range_facts(task.range))


def _survey(task: SurveyTask) -> int:
    with task.writer.task(task.name) as output:
        output.facts = {"range": range_facts(task.range), "found": task.source.survey(task.range)}
    return 1
