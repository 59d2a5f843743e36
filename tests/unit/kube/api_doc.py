"""Make the tables of docs/kubernetes-api.md from the code: python tests/unit/kube/api_doc.py"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from planaria.kube import conditions, fields, restart, scaling_fields
from planaria.kube.seen import Ended, PodSeen

Json = dict[str, Any]
PAGE = Path(__file__).parents[3] / "docs/kubernetes-api.md"
_MARK = "<!-- made by tests/unit/kube/api_doc.py: {name} -->"
_SECTION = re.compile(r"(<!-- made by tests/unit/kube/api_doc\.py: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def render(page: str) -> str:
    """Return the page with its tables made anew."""
    tables = {"run": _run(), "replica": _replica(), "elastic": _elastic(), "restart": _restart(), "states": _states()}
    used = set(_SECTION.findall(page))
    assert {name for _, name in used} == set(tables), "a table has no place in the page, or a place no table"
    return _SECTION.sub(lambda match: f"{match[1]}\n{tables[match[2]]}\n\n", page)


def _run() -> str:
    spec = fields.spec_schema()["properties"]
    return _fields({name: spec[name] for name in spec if name not in ("elasticPolicy", "pytorchReplicaSpecs")})


def _replica() -> str:
    properties = fields.replica_schema()["properties"]
    return _fields({f"pytorchReplicaSpecs.*.{name}": properties[name] for name in properties})


def _elastic() -> str:
    own = fields.elastic_schema()["properties"]
    others = scaling_fields.schema()
    bounds = ("minReplicas", "maxReplicas")
    return _fields({f"elasticPolicy.{name}": own[name] for name in own if name in bounds or name not in others})


def _fields(properties: Json) -> str:
    rows = ["| field | value | unless given | |", "|---|---|---|---|"]
    for name, field in properties.items():
        default = f"`{str(field['default']).lower()}`" if "default" in field and field["default"] != "None" else "-"
        default = "`None`" if field.get("default") == "None" else default
        rows.append(f"| `{name}` | {_value(field)} | {default} | {field['description']} |")
    return "\n".join(rows)


def _value(field: Json) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "number or word"
    if "enum" in field:
        return ", ".join(f"`{choice}`" for choice in field["enum"] if choice)
    if "minimum" in field:
        return f"{field['minimum']} to {field['maximum']}" if "maximum" in field else f"{field['minimum']} or more"
    return {"boolean": "`true`, `false`", "string": "text", "object": "object"}[field["type"]]


# What happened, and a pod that it happened to; the kubelet decides before the pod is over.
_ENDS = (
    ("status 0", PodSeen("p", "u", "Worker", 0, "Running", ended=Ended(0, "Completed"))),
    ("a status of the retry list", PodSeen("p", "u", "Worker", 0, "Running", ended=Ended(75, "Error"))),
    ("any other status", PodSeen("p", "u", "Worker", 0, "Running", ended=Ended(1, "Error"))),
    ("OOMKilled", PodSeen("p", "u", "Worker", 0, "Running", ended=Ended(137, "OOMKilled"))),
    (
        "evicted, preempted, refused by its kubelet, node shut down",
        PodSeen("p", "u", "Worker", 0, "Failed", reason="Evicted", ended=Ended(1, "Error")),
    ),
)
_FOLLOWS = {restart.FINISHED: "it is done", restart.REPLACED: "the pod is replaced", restart.FATAL: "the job fails"}


def _restart() -> str:
    policies = fields.RESTART_POLICIES
    rows = [
        f"| what happened | {' | '.join(f'`{policy}`' for policy in policies)} | counts |",
        "|---|---|---|---|---|---|",
    ]
    for event, pod in _ENDS:
        counts = {restart.judge(policy, pod).counts for policy in policies}
        assert len(counts) == 1, "whether something counts does not depend on the policy"
        followed = " | ".join(_followed(policy, pod) for policy in policies)
        rows.append(f"| {event} | {followed} | {'yes' if counts.pop() else 'no'} |")
    listed = ", ".join(map(str, restart.retry_list()))
    return "\n".join([*rows, "", f"The retry list: {listed}."])


def _followed(policy: str, pod: PodSeen) -> str:
    if not restart.is_over(policy, True, pod):
        return "restarted in place by the kubelet"
    return _FOLLOWS[restart.judge(policy, pod).verdict]


def _states() -> str:
    rows = ["| state | | goes on to |", "|---|---|---|"]
    for state, meaning in conditions.STATES.items():
        rows.append(f"| `{state}` | {meaning} | {', '.join(conditions.TRANSITIONS[state]) or 'nothing: it is final'} |")
    return "\n".join(rows)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
