"""The config of a mem0 binding."""

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field

from memtui.contract import BindingContext, Invalid
from memtui.provider_kit import LocalPath, read_config
from memtui.provider_kit.server_provider import ServerLimits, read_token
from memtui.provider_kit.servers import check_address

PLATFORM = "https://api.mem0.ai"


class Mem0Config(ServerLimits):
    """mem0's platform, an open mem0 server, or a store of mem0's library on this machine."""

    url: str = PLATFORM
    """Where mem0 answers: its platform, or the address of your own server."""
    api: Literal["platform", "server"] | None = None
    """Which API `url` has; unset: the platform's at api.mem0.ai, else the open server's."""
    library: LocalPath | None = None
    """A config file of mem0's own library (JSON or YAML, as for `Memory.from_config`); memtui opens
    its store itself, instead of `url`."""
    api_key_secret: str | None = None
    """The name of the secret that holds the API key; the platform wants one."""
    infer: bool = False
    """Let mem0's model infer memories from each text; off: store the text itself."""
    shared_user: str = Field(default="shared", pattern=r"^[^\s*]+$")
    """The mem0 user for records without a subject, agent or run."""
    max_listed: int = Field(default=5_000, ge=1, le=100_000)
    """How many memories a list reads."""

    @classmethod
    def of(cls, context: BindingContext) -> Self:
        """Return the config of a binding. Raises `Invalid` for a bad one."""
        config = read_config(cls, context)
        if config.library is None:
            is_private = config.allow_http or config.api_key_secret is None
            check_address(config.url, what="mem0's url", is_private=is_private)
            if config.is_platform and config.api_key_secret is None:
                raise Invalid(
                    "mem0's platform wants an API key; put it into the keyring or the environment, "
                    "for example as MEM0_API_KEY, and set api_key_secret to that name."
                )
        return config

    @property
    def is_platform(self) -> bool:
        """Whether the platform's API answers at `url`."""
        own = urlsplit(self.url).hostname == urlsplit(PLATFORM).hostname
        return self.library is None and (own if self.api is None else self.api == "platform")

    def find_key(self, context: BindingContext) -> str | None:
        """Return the API key; None if none is configured. Raises `Invalid` for a malformed key."""
        if self.api_key_secret is None:
            return None
        return read_token(context, self.api_key_secret, "mem0's API key")
