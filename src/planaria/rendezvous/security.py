"""How the connections of agents are kept from strangers: a token that all of them know, certificates, both or neither."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from ssl import SSLContext

    from planaria.contract.secret import Secret


class Security(Value):
    """What both ends of a connection have to know or to show."""

    token: bytes | None = None
    listen_tls: SSLContext | None = None
    dial_tls: SSLContext | None = None

    def __repr__(self) -> str:
        return "Security(...)"  # whatever prints this must not tell the token


def security_of(token: Secret | None, options: Mapping[str, str]) -> Security:
    """Return the security that a command line asks for.

    Raises:
        UsageError: A certificate or key cannot be used.
    """
    revealed = token.reveal() if token is not None else None
    if "tls_cert" not in options:
        return Security(revealed)
    try:
        return Security(revealed, _context(options, listens=True), _context(options, listens=False))
    except OSError as problem:  # ssl.SSLError is one
        raise UsageError(
            f"tls_cert, tls_key and tls_ca of --rdzv-conf expect files in PEM format: {problem}"
        ) from problem


def _context(options: Mapping[str, str], *, listens: bool) -> SSLContext:
    """Make one side of TLS: it shows its certificate, and checks the other's.

    Without an authority of its own a run trusts exactly the certificate that its nodes share. Names are not compared: nodes
    are known by addresses that no certificate can list beforehand, and whoever the run's authority vouches for is one of it.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if listens else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(options["tls_cert"], options.get("tls_key"))
    context.load_verify_locations(options.get("tls_ca", options["tls_cert"]))
    return context
