"""Check a value against the part of OpenAPI schemas that our CRD uses, in sentences. Pure.

The API server checks the same when the CRD is installed; this is for objects that were stored before, and for its wording.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from planaria.kube.model import Plain

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list, tuple),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_LONGEST = 60  # letters of a value in a message


def problems(schema: Plain, value: Any, path: str) -> list[str]:
    """Return what is wrong with a value, a sentence each, naming the field."""
    if schema.get("x-kubernetes-int-or-string"):
        return [] if _is(value, "integer") or _is(value, "string") else [expected(path, "a number or a word", value)]
    if not _is(value, schema["type"]):
        return [expected(path, described(schema), value)]
    match schema["type"]:
        case "object":
            return _of_object(schema, value, path)
        case "array":
            return _of_array(schema, value, path)
        case _:
            return [] if _fits(schema, value) else [expected(path, described(schema), value)]


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _of_object(schema: Plain, value: Plain, path: str) -> list[str]:
    found = [f"{path}.{name} is missing" for name in schema.get("required", ()) if value.get(name) is None]
    if len(value) < schema.get("minProperties", 0):
        found.append(f"{path} is empty")
    for name, item in value.items():
        inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
        if isinstance(inner, dict) and item is not None:
            found += problems(inner, item, f"{path}.{name}")
    return found


def _of_array(schema: Plain, value: list[Any], path: str) -> list[str]:
    if len(value) < schema.get("minItems", 0):
        return [f"{path} is empty"]
    if len(value) > schema.get("maxItems", len(value)):
        return [expected(path, described(schema), value)]
    return [problem for at, item in enumerate(value) for problem in problems(schema["items"], item, f"{path}[{at}]")]


def _fits(schema: Plain, value: Any) -> bool:
    if "enum" in schema:
        return bool(value in schema["enum"])
    if isinstance(value, str):
        return bool(schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)))
    return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


def described(schema: Plain) -> str:
    """Return what a value has to be, as the end of a sentence."""
    if "enum" in schema:
        return "one of " + ", ".join(choice for choice in schema["enum"] if choice)
    match schema["type"]:
        case "object":
            return "an object"
        case "array":
            return _list(schema)
        case "string":
            return _text(schema)
        case "boolean":
            return "true or false"
        case "integer":
            return "a whole number" + _bounds(schema)
        case _:
            return "a number" + _bounds(schema)


def _list(schema: Plain) -> str:
    if "maxItems" not in schema:
        return "a list"
    return f"a list of{_span(schema, 'minItems', 'maxItems')} items, each {described(schema['items'])}"


def _text(schema: Plain) -> str:
    if "maxLength" in schema:
        return f"a string of{_span(schema, 'minLength', 'maxLength')} letters"
    return "a string that is not empty" if "minLength" in schema else "a string"


def _span(schema: Plain, least: str, most: str) -> str:
    return f" {schema[least]} to {schema[most]}" if schema.get(least) else f" at most {schema[most]}"


def _bounds(schema: Plain) -> str:
    if "minimum" in schema and "maximum" in schema:
        return f" from {schema['minimum']} to {schema['maximum']}"
    return f" of at least {schema['minimum']}" if "minimum" in schema else ""


def expected(path: str, described: str, value: Any) -> str:
    """Return the sentence about a field that has another value than it should."""
    got = ascii(value)
    return f"{path} expects {described}, got {got if len(got) <= _LONGEST else got[:_LONGEST] + '...'}"
