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
        return [expected(path, _described(schema), value)]
    match schema["type"]:
        case "object":
            return _of_object(schema, value, path)
        case "array":
            return _of_array(schema, value, path)
        case _:
            return [] if _fits(schema, value) else [expected(path, _described(schema), value)]


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
    return [problem for at, item in enumerate(value) for problem in problems(schema["items"], item, f"{path}[{at}]")]


def _fits(schema: Plain, value: Any) -> bool:
    if "enum" in schema:
        return bool(value in schema["enum"])
    if isinstance(value, str):
        return bool(schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)))
    return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


def _described(schema: Plain) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(choice for choice in schema["enum"] if choice)
    kind = schema["type"]
    described = {"object": "an object", "array": "a list", "string": "a string", "boolean": "true or false"}.get(kind)
    if described is None:
        described = "a whole number" if kind == "integer" else "a number"
        if "minimum" in schema and "maximum" in schema:
            described += f" from {schema['minimum']} to {schema['maximum']}"
        elif "minimum" in schema:
            described += f" of at least {schema['minimum']}"
    elif "minLength" in schema:
        described += " that is not empty"
    elif "maxLength" in schema:
        described += f" of at most {schema['maxLength']} letters"
    return described


def expected(path: str, described: str, value: Any) -> str:
    """Return the sentence about a field that has another value than it should."""
    got = ascii(value)
    return f"{path} expects {described}, got {got if len(got) <= _LONGEST else got[:_LONGEST] + '...'}"
