"""The opaque state of a snapshot: exact text, safe from every store and redaction on its way."""

from __future__ import annotations

import base64
import binascii
import json

from memtui.contract import Invalid, Json


def seal(data: Json) -> Json:
    """Return `data` as the state of a snapshot."""
    return {"vault": base64.b64encode(json.dumps(data).encode()).decode()}


def unseal(state: Json) -> Json:
    """Return what was sealed; empty is empty. Raises `Invalid` for a foreign state."""
    if not state:
        return {}
    try:
        data = json.loads(base64.b64decode(state["vault"], validate=True))
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise Invalid("This snapshot was not taken by the vault; it cannot be restored.") from error
    if not isinstance(data, dict):
        raise Invalid("This snapshot was not taken by the vault; it cannot be restored.")
    return data
