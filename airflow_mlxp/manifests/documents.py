"""YAML and JSON text as kubectl reads it: dates and clock times stay text, a key that is given twice is a mistake."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from airflow_mlxp.errors import InvalidArgument

FILE_NAMES = (".yaml", ".yml", ".json")
"""Endings of files that a manifest may stand in."""

_INT = "tag:yaml.org,2002:int"
_CLOCK = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
"""What YAML 1.1 reads as a number to the base of 60, and kubectl doesn't: ``12:30``."""


def is_file_name(text: str) -> bool:
    """Whether a ``manifest`` is the name of a file instead of a document: one line with the ending of one."""
    return text.endswith(FILE_NAMES) and "\n" not in text and ": " not in text


def parse(text: str, argument: str) -> Any:
    """The one document of a text.

    Raises:
        InvalidArgument: A file name (the file was not found), no YAML, a key that is given twice, or not exactly one document;
            the text says the line.
    """
    import yaml

    if is_file_name(text):
        raise InvalidArgument(argument, text, expected="a file of the DAG's folder or of template_searchpath, or YAML text")
    try:
        # JSON may be indented with tabs, which YAML refuses.
        content = text.replace("\t", " ") if text.lstrip().startswith("{") else text
        documents = [document for document in yaml.load_all(content, Loader=_loader()) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{argument} line {mark.line + 1}, column {mark.column + 1}" if mark else argument
        problem = getattr(error, "problem", None) or str(error)
        fix = "" if "twice" in problem else "keys of one mapping must start in the same column"
        raise InvalidArgument(place, problem, expected="valid YAML", fix=fix) from error
    if len(documents) != 1:
        raise InvalidArgument(argument, f"{len(documents)} documents", expected="exactly one YAML document")
    return documents[0]


@cache
def _loader() -> type[Any]:
    import yaml

    class Loader(yaml.SafeLoader):
        """SafeLoader with kubectl's scalars and without silent duplicates."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    problem = f"the key {key.value!r} is given twice in one mapping"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge") else "")
            return super().construct_mapping(node, deep)

    def keeps(tag: str, pattern: re.Pattern[str]) -> Any:
        return (
            None
            if tag.endswith(":timestamp")
            else (tag, _without_clock(pattern) if tag.endswith((":int", ":float")) else pattern)
        )

    Loader.yaml_implicit_resolvers = {
        first: [kept for tag, pattern in resolvers if (kept := keeps(tag, pattern))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def _without_clock(pattern: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(rf"(?!{_CLOCK.pattern}\Z)(?:{pattern.pattern})", pattern.flags)
