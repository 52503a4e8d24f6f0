"""The sections and keys of recipes as tables."""

from __future__ import annotations

from gnnloom.workflows.recipe.reference import Key, SectionReference, recipe_sections


def sections() -> str:
    """Return a heading and a table for every section."""
    return "\n\n".join(
        f"## {section.title} {{ #{section.anchor} }}\n\n{section.help}\n\n{_tables(section)}"
        for section in recipe_sections()
    )


def _tables(section: SectionReference) -> str:
    tables = [
        f"**{heading}**\n\n{_table(keys)}" if heading else _table(keys) for heading, keys in section.groups.items()
    ]
    return "\n\n".join(tables)


def _table(keys: tuple[Key, ...]) -> str:
    with_owners = any(key.owners for key in keys)
    header = ["key", "type", "default", *(["formats"] if with_owners else []), "meaning"]
    rows = [
        [f"`{key.name}`", key.type, _default(key), *([", ".join(key.owners)] if with_owners else []), _meaning(key)]
        for key in keys
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows))


def _default(key: Key) -> str:
    if key.default:
        return f"`{key.default}`"
    return "**required**" if key.required else ""


def _meaning(key: Key) -> str:
    choices = f" One of {', '.join(f'`{choice}`' for choice in key.choices)}." if key.choices else ""
    return (key.help + choices).replace("|", "\\|").replace("<", "&lt;")
