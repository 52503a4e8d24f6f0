"""The keys of links and of the graphs without the edges that links hold out, which are known before anything runs."""

from __future__ import annotations

from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.storage.format.artifact import artifact_key
from gnnloom.storage.format.schema import TYPED_VERSION


def links_key(graph_key: str, options: DrawOptions) -> str:
    """The key of the artifact that :func:`draw_links` makes or finds."""
    return artifact_key("links", options.parameters, link_inputs(graph_key, options))


def link_inputs(graph_key: str, options: DrawOptions) -> dict[str, str]:
    """The artifacts that links are drawn from."""
    return {"graph": graph_key, **({"times": options.times} if options.times not in {None, graph_key} else {})}


def message_key(graph_key: str, links_key: str) -> str:
    """The key of the graph without the edges that these links hold out."""
    return artifact_key("graph", {}, {"graph": graph_key, "links": links_key})


def relation_links_key(graph: str, options: DrawOptions) -> str:
    """The key of the artifact that :func:`draw_relation_links` makes or finds for the graph with this key."""
    return artifact_key("links", options.parameters, {"graph": graph}, TYPED_VERSION)


def kept_graph_key(graph: str, links: str, relation: str) -> str:
    """The key of the graph without the edges of a relation that these links hold out."""
    return artifact_key("graph", {"relation": relation}, {"graph": graph, "links": links}, TYPED_VERSION)
