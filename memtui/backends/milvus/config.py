"""The config of a Milvus binding, and the store that it names."""

from typing import Any, Self

from pydantic import Field, model_validator

from memtui.contract import BindingContext, Invalid
from memtui.embedding import STATIC, EmbeddingConfig
from memtui.provider_kit import LocalPath, need_secret
from memtui.provider_kit.servers import check_address

from .store import FileStore, MilvusServerStore, MilvusStore

FILE = "milvus.db"
"""The file in the `data_dir` of a binding whose config names none."""


class MilvusConfig(EmbeddingConfig):
    """Collections of Milvus: a file of Milvus Lite, or a server.

    Each scope has a collection of its own, with documents, key-values and facts.
    """

    path: LocalPath | None = None
    """Milvus Lite's folder, ending in .db; if path and uri are both unset, one in the binding's
    folder."""
    uri: str | None = None
    """The address of a server or cluster, such as https://milvus.example.com:19530."""
    token_secret: str | None = None
    """The name of the secret, in the keyring or the environment, that holds the server's token."""
    database: str = Field(default="", pattern=r"^[A-Za-z0-9_]*$")
    """The database within Milvus; unset is its default one."""
    prefix: str = Field(default="aq_", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The beginning of each collection's name."""
    embedding: str | None = STATIC
    """The model of the documents' vectors: static, fastembed:MODEL or openai:URL#MODEL;
    without a model: search by words only, and no documents can be written."""
    allow_http: bool = False
    """Let the token go to another machine unencrypted."""
    timeout_seconds: float = Field(default=8.0, gt=0)
    """How long, in seconds, one call of Milvus may take."""
    lock_seconds: float = Field(default=4.0, ge=0)
    """How long, in seconds, to wait for another process that has the file open."""
    max_listed: int = Field(default=50_000, ge=1)
    """How many entries a list reads of each collection."""

    @model_validator(mode="after")
    def _is_one_place(self) -> Self:
        if self.path is not None and self.uri is not None:
            raise ValueError("set path or uri, not both")
        return self


def store_of(config: MilvusConfig, context: BindingContext) -> MilvusStore:
    """Return the store; nothing is opened yet. Raises `Invalid`."""
    common: dict[str, Any] = {
        "prefix": config.prefix,
        "company_id": context.company_id,
        "seconds": config.timeout_seconds,
        "database": config.database,
    }
    if config.uri is not None:
        secret = config.token_secret
        token = need_secret(context, secret, "Milvus's token") if secret else ""
        check_address(config.uri, what="The uri", is_private=config.allow_http or not token)
        return MilvusServerStore(uri=config.uri, token=token, **common)
    path = config.path or context.data_dir / FILE
    if context.read_only and not path.exists():
        raise Invalid(f"There is no {path}; set path to a file of Milvus Lite.")
    if config.path is None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return FileStore(path=path, lock_seconds=config.lock_seconds, **common)
