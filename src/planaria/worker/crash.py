"""Write how a worker's main program ended into its black box. Loaded by path, only after an error, by `bootstrap.py`.

One record is the byte 0x1e, a JSON object in ASCII, or a word after a good end, and a newline (`contract.blackbox` reads it).
JSON is written by hand: a user's `json.py` may stand in the way of the real one.
"""

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

LIMIT_CHARACTERS = 100_000


def record(descriptor: int, error: BaseException, trace: "TracebackType | None") -> bool:
    """Append one record for an uncaught exception; tell whether it is none but a good end: SystemExit with status 0 or None."""
    at = time.monotonic()  # before the traceback is made, which takes 10 ms: the order of failures hangs on it
    leaving = isinstance(error, SystemExit)
    said = error.code if isinstance(error, SystemExit) else error
    said = int(said) if isinstance(said, int) else said  # True is 1
    if leaving and (said is None or (type(said) is int and said == 0)):  # 0.0 is not a status but a text, and fails
        return True
    fields = {
        "kind": "exit" if leaving else "exception",
        "type": _type_name(type(error)),
        "bases": [_type_name(base) for base in type(error).__mro__],
        "message": _text_of(said),
        "traceback": _trace_text(error, trace),
        "where": _where(trace),
        "at": at,
    }
    os.write(descriptor, b"\x1e" + _json(fields).encode("ascii") + b"\n")
    return False


def _type_name(kind: type) -> str:
    module = getattr(kind, "__module__", "")
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"


def _text_of(item: object) -> str:
    try:
        return str(item)[:LIMIT_CHARACTERS]
    except BaseException:  # noqa: BLE001  a broken __str__ is the user's, the report is ours
        return f"<{type(item).__name__} whose text cannot be made>"


def _where(trace: "TracebackType | None") -> str:
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def _trace_text(error: BaseException, trace: "TracebackType | None") -> str:
    try:
        import traceback

        text = "".join(traceback.format_exception(type(error), error, trace))
    except Exception:  # noqa: BLE001  a shadowed standard module must not hide where the error was
        text = _plain_trace(error, trace)
    if len(text) > LIMIT_CHARACTERS:
        half = LIMIT_CHARACTERS // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return text


def _plain_trace(error: BaseException, trace: "TracebackType | None") -> str:
    lines = ["Traceback (most recent call last):\n"]
    while trace is not None:
        code = trace.tb_frame.f_code
        lines.append(f'  File "{code.co_filename}", line {trace.tb_lineno}, in {code.co_name}\n')
        trace = trace.tb_next
    return "".join(lines) + f"{_type_name(type(error))}: {_text_of(error)}\n"


def _json(item: object) -> str:
    if isinstance(item, str):
        return '"' + "".join(map(_escaped, item)) + '"'
    if isinstance(item, dict):
        return "{" + ",".join(f"{_json(key)}:{_json(value)}" for key, value in item.items()) + "}"
    if isinstance(item, list):
        return "[" + ",".join(map(_json, item)) + "]"
    return repr(item)


def _escaped(character: str) -> str:
    number = ord(character)
    if 32 <= number < 127 and character not in '"\\':
        return character
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
