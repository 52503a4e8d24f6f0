"""Tables of the arrays of every kind of artifact, from the registry that readers and writers check against."""

from __future__ import annotations

from gnnloom.storage.format.schema import SCHEMAS


def arrays(kind: str) -> str:
    """Return a table of the arrays of one kind of artifact."""
    lines = ["| array | dimensions | type | required |", "| --- | --- | --- | --- |"]
    for path, spec in SCHEMAS[kind].items():
        types = " or ".join(f"`{name}`" for name in spec.dtypes)
        lines.append(f"| `{path}` | {', '.join(spec.dims)} | {types} | {'yes' if spec.required else 'no'} |")
    return "\n".join(lines)
