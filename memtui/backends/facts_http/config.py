"""Where a server's facts are, and with which token they are asked for."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field

from memtui.contract import BindingContext, Invalid, Model
from memtui.provider_kit import read_config


class FactsHttpConfig(Model):
    """Facts behind a server with the endpoints `/api/memory/user` and `/api/memory/drive`."""

    url: str
    """The server's address, `https://host` with the path before `/api`, if there is one."""
    token_secret: str
    """The name of the secret that holds the bearer token."""
    subject_id: str = Field(min_length=1)
    """The user whose token it is; the user's facts are this subject's."""
    drives: tuple[str, ...] = ()
    """The drives to show where no project is named; the server lists none."""
    socket: Path | None = None
    """A unix socket to reach the server through."""
    allow_http: bool = False
    """Send the token unencrypted to another machine."""
    timeout_seconds: float = Field(default=10.0, gt=0)
    """How long one request may take, in seconds, whole body included."""
    max_body_mb: float = Field(default=5.0, gt=0)
    """The largest reply that is read, in megabytes."""

    @classmethod
    def of(cls, context: BindingContext) -> Self:
        """Return the config of a binding. Raises `Invalid` where it does not fit."""
        config = read_config(cls, context)
        config.check_url()
        return config

    def find_token(self, context: BindingContext) -> str:
        """Return the bearer token. Raises `Invalid` where there is none, or it cannot be sent."""
        token = context.secret(self.token_secret)
        if not token:
            raise Invalid(
                f"There is no secret {self.token_secret}; put the server's token into the keyring "
                "or the environment under that name."
            )
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise Invalid(f"The secret {self.token_secret} is no token; it has odd characters.")
        return token

    def check_url(self) -> None:
        """Raise `Invalid` for no address, or one that the token cannot safely go to."""
        try:
            parts = urlsplit(self.url)
            host, is_odd = parts.hostname or "", parts.username or parts.query or parts.fragment
            _ = parts.port
        except ValueError as error:
            raise Invalid("The facts' url is no address; use https://host.") from error
        if parts.scheme not in {"http", "https"} or not host or is_odd:
            raise Invalid("The facts' url is an address such as https://host, and no more.")
        is_safe = parts.scheme == "https" or self.socket is not None or _is_loopback(host)
        if not (is_safe or self.allow_http):
            raise Invalid(
                f"The token would go to {host} unencrypted; use https, or set allow_http to true."
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
