"""Which hosts and origins a request may name."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

__all__ = ["check_origin", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this machine.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_origin(headers: Iterable[tuple[bytes, bytes]], allowed: set[str]) -> None:
    """Refuse requests from pages of other sites.

    A site can make its host name resolve to this address, so that its requests look like
    same-origin requests (DNS rebinding); this is not possible with a numeric address.

    Parameters
    ----------
    headers : iterable of (name, value)
    allowed : set of str
        The address that the service listens on, and other host names, in lower case.
    """
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) != 1 or not _is_allowed(hosts[0].decode("latin-1"), allowed):
        raise HTTPException(421, "the host name is not allowed; see --allow-host")
    for name, value in headers:
        if name == b"origin" and value.partition(b"://")[2] != hosts[0]:
            raise HTTPException(403, "requests from pages of other sites are not allowed")


def _is_allowed(host: str, allowed: set[str]) -> bool:
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname or ""
        _ = parts.port  # must be a number
    except ValueError:
        return False
    if "@" in host or not name:
        return False
    if name in allowed or is_loopback(name):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return not all(map(is_loopback, allowed))
