"""`ops feedback`: whether a record that a query returned helped."""

from __future__ import annotations

from typing import Annotated

import typer

from memtui.channels.cli.options import RecordId, complete_binding
from memtui.channels.cli.session import Session
from memtui.contract import Invalid
from memtui.presenters import format as shown


async def ops_feedback(
    session: Session,
    operation_id: Annotated[str, typer.Argument(metavar="OPERATION")],
    record_id: RecordId,
    *,
    helped: bool = False,
    not_helped: Annotated[bool, typer.Option("--not")] = False,
    withdraw: bool = False,
    binding: Annotated[str | None, typer.Option(autocompletion=complete_binding)] = None,
) -> None:
    """Say whether a record that a query or a context returned helped.

    Your last verdict counts in the figures, and is shown with the record.

    Args:
        operation_id: The query or context that returned it: its id, the beginning of it, or its
            number.
        helped: It helped.
        not_helped: It did not help.
        withdraw: Withdraw what you said of it before.
        binding: The record's binding, where several returned a record of this id.
    """
    from memtui.service.operations.feedback import Verdict

    said = {Verdict.HELPED: helped, Verdict.NOT_HELPED: not_helped, Verdict.WITHDRAWN: withdraw}
    chosen = [verdict for verdict, is_said in said.items() if is_said]
    if len(chosen) != 1:
        raise Invalid("Give one of --helped, --not and --withdraw.")
    answer = await session.service.feedback.say(
        session.caller, record_id, chosen[0], operation_id=operation_id, binding_key=binding
    )
    name = answer.handle.provider_record_id
    session.out.answer(answer, [f"{shown.VERDICTS[answer.verdict]}: {name}"])
