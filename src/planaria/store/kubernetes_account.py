"""What a pod finds of its service account."""

from __future__ import annotations

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where its token, the certificate of the API server and its namespace are."""


def own_namespace(otherwise: str) -> str:
    """Return the namespace of the pod that this runs in; `otherwise` outside of one."""
    try:
        with open(f"{ACCOUNT}/namespace", encoding="utf-8") as file:
            return file.read().strip() or otherwise
    except OSError:
        return otherwise
