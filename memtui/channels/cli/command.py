"""Commands from async functions: loaded when they run, option groups spread, service opened."""

import inspect
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import fields, is_dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import Annotated, Any, cast, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typer.models import OptionInfo

from memtui.channels.cli.errors import close_quietly
from memtui.channels.cli.interrupts import raise_interrupts
from memtui.channels.cli.session import FirstSession, Invocation, Session

Function = Callable[..., Any]
"""The function of a command; it or its coroutine returns the exit code, or None for 0.

A plain function runs without an event loop and takes no `Session`.
"""

_PACKAGE = "memtui.channels.cli"
_MOST_CALLED = 3
_JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_BY_NAME = inspect.Parameter.KEYWORD_ONLY


class _ChecksGiven:
    """A command or group that validates only given values and defaults.

    Typer builds a pydantic validator for each parameter, given or not, which takes time.
    """

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, including `--help`."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # beside a class of Typer's
        for one in found:
            if "process_value" not in vars(one):
                one.process_value = partial(_process, one, one.process_value)
        return found


def _process(param: Any, check: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    if value is not None or param.required:
        return check(ctx, value)
    empty = () if param.multiple or param.nargs == -1 else None
    return empty if param.callback is None else param.callback(ctx, param, empty)


class RootGroup(_ChecksGiven, TyperGroup):
    """The root group of the command line; its help has the commands in sections."""

    begin: Mapping[str, str]
    """What a new user types first, with its help."""
    sections: dict[str, tuple[str, list[str]]]
    """The purpose and the commands of each section, by its title."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, section by section."""
        del ctx
        return [name for _, names in self.sections.values() for name in names]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the help, and below it what a new user types first."""
        super().format_help_text(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_dl([*self.begin.items()])

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections of commands, then the options."""
        width = max(map(len, self.commands))
        for title, (purpose, names) in self.sections.items():
            formatter.write_paragraph()
            formatter.write(f"{title}: {purpose}\n")
            with formatter.indentation():
                commands = {f"{name:{width}}": self.commands[name] for name in names}
                _write_commands(formatter, commands)
        TyperCommand.format_options(cast("TyperCommand", self), ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the named command; the error names commands and options called like it."""
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            if found := _called(args[0], self, ctx.command_path):
                said = " or ".join(f"'{path}'" for path in found)
                error.message = f"No such command {args[0]!r}. Did you mean {said}?"
            raise


class FilterCommand(_ChecksGiven, TyperCommand):
    """A command; if it takes a filter line, `-type:query` and `-word` are not options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; filter terms such as `-word` move behind `--`."""
        end = args.index("--") if "--" in args else len(args)
        options: dict[str, Any] = {name: one for one in self.params for name in one.opts}
        values = {name for name, one in options.items() if not getattr(one, "is_flag", True)}
        before = ["", *args]
        for option, arg in zip(before, args[:end], strict=False):
            if option in values and arg[:2] == "--" and arg in options:
                raise typer.BadParameter(
                    f"{arg} is an option itself; give the value before it, or write {option}={arg}",
                    ctx=ctx,
                    param=options[option],
                )
        if not any(one.metavar == "FILTER" for one in self.params):
            return super().parse_args(ctx, args)
        terms = [
            place
            for place, arg in enumerate(args[:end])
            if _is_term(arg, options) and before[place] not in values
        ]
        if not terms:
            return super().parse_args(ctx, args)
        own = [arg for place, arg in enumerate(args[:end]) if place not in terms]
        moved = [args[place] for place in terms]
        return super().parse_args(ctx, [*own, "--", *args[end + 1 :], *moved])


def _is_term(arg: str, options: Container[str]) -> bool:
    """Whether an argument begins with one `-`, and is neither an option nor short options."""
    letters = arg.removeprefix("-")
    is_option = f"-{arg}" in options or all(f"-{letter}" in options for letter in letters)
    return arg[:1] == "-" and letters[:1] not in {"", "-"} and len(letters) > 1 and not is_option


def _write_commands(formatter: Any, commands: Mapping[str, Any]) -> None:
    """Write the names of commands, each with the first paragraph of its help."""
    formatter.write_dl([(name, one.help.split("\n\n")[0]) for name, one in commands.items()])


class LazyCommand(TyperCommand):
    """A command that is built only when it runs or shows its help, so that others start fast."""

    @cached_property
    def itself(self) -> TyperCommand:
        """The real command, with its options."""
        assert self.callback is not None  # noqa: S101 - whoever makes one gives it
        return cast("TyperCommand", self.callback())

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Parse the arguments with the real command."""
        return self.itself.make_context(info_name, args, parent=parent, **extra)


class LazyGroup(TyperGroup):
    """A group whose modules are imported when it is used.

    Each function whose name begins with the group's is a command: `facts_list` is `facts list`.
    """

    def __init__(
        self, words: str, modules: Sequence[str], sentence: str, alone: str | None = None
    ) -> None:
        """Take the group's words, the modules with its commands, and its help.

        `alone`: the command to run if none is named.
        """
        name = words.rpartition(" ")[2]
        more = f"\n\nWithout a command it runs `{alone}`." if alone else ""
        super().__init__(name=name, help=sentence + more, rich_markup_mode=None)
        self._words, self._modules, self._alone = words, modules, alone

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; without a command or `--help`, they go to the `alone` command.

        So does a first argument that names no command, where that command takes arguments.
        """
        named = args and (not args[0].startswith("-") or args[0] == "--help")
        if named and self._alone and args[0] not in self.list_commands(ctx):
            own = self._own[self._alone].itself.params
            named = args[0] == "--help" or all(one.param_type_name == "option" for one in own)
        return super().parse_args(ctx, args if named or not self._alone else [self._alone, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the named command; the error names commands that take the word as argument."""
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            takers = [name for name, one in self._own.items() if _chooses(one.itself, args[0])]
            if takers:
                said = ", ".join(f"'{ctx.command_path} {name} {args[0]}'" for name in takers)
                error.message = f"No such command {args[0]!r}. Did you mean {said}?"
            raise

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, then of the groups in this group."""
        self._fill()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command or a group by its name."""
        self._fill()
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the first sentence of each command, whole."""
        with formatter.section("Commands"):
            names = self.list_commands(ctx)
            _write_commands(formatter, {name: self.get_command(ctx, name) for name in names})

    def _fill(self) -> None:
        self.commands = {**self._own, **self.commands}

    @cached_property
    def _own(self) -> dict[str, Any]:
        prefix = self._words.replace(" ", "_") + "_"
        deeper = tuple(f"{prefix}{name}_" for name in self.commands)
        found = {}
        for module in (import_module(f"{_PACKAGE}.{name}") for name in self._modules):
            for name, function in vars(module).items():
                if name.startswith(prefix) and not name.startswith(deeper):
                    own = name.removeprefix(prefix).replace("_", "-")
                    words, load = described(function)[0], partial(make, own, function)
                    found[own] = LazyCommand(own, callback=load, help=words, rich_markup_mode=None)
        return found


def _called(word: str, root: TyperGroup, program: str) -> list[str]:
    """Return the commands in groups named `word`, else those with the option; few, or none."""
    paths: dict[str, TyperCommand | TyperGroup] = dict(walk(program, root))
    named = [path for path in paths if path.endswith(f" {word}")]
    taking = [
        f"{path} --{word}"
        for path, one in paths.items()
        if any(f"--{word}" in param.opts for param in one.params)
    ]
    found = named or taking
    return found if len(found) <= _MOST_CALLED else []


def walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield a command with its full name, then those in its group."""
    command = command.itself if isinstance(command, LazyCommand) else command
    yield path, command
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from walk(f"{path} {name}", command.get_command(context, name))


def _chooses(command: TyperCommand, word: str) -> bool:
    """Whether `word` is a choice of the command's first argument."""
    arguments: list[Any] = [one for one in command.params if one.param_type_name == "argument"]
    return bool(arguments) and word in get_args(arguments[0].type_descriptor.annotation)


def lazy_command(name: str, module: str, sentence: str) -> LazyCommand:
    """Return the function `name` of a module of this package as a command.

    `sentence` is its entry in the list of commands: the first sentence of the function's docstring.
    """

    def load() -> TyperCommand:
        return make(name, getattr(import_module(f"{_PACKAGE}.{module}"), name))

    return LazyCommand(name, callback=load, help=sentence, rich_markup_mode=None)


def short_form(function: Function, words: str, **fixed: Any) -> Function:
    """Return a command that calls another with some parameters fixed; `words` is its help.

    A parameter fixed to a dataclass takes the options of that class.
    """
    form = partial(function, **fixed)
    form.__doc__ = words
    return form


def make(name: str, function: Function) -> TyperCommand:
    """Return `function` as a command; its docstring is the help.

    A parameter annotated `Session` or `FirstSession` gets the open service, one annotated
    `Invocation` the global options. A dataclass is spread into its options. Any other is an option
    if it can only be given by name, else an argument, with what `Args:` says of it as its help; the
    annotation adds what Typer cannot tell from the type. Every command has `--json`.
    """
    itself = getattr(function, "func", function)
    fixed: dict[str, Any] = getattr(function, "keywords", {})  # of a short form
    hints = get_type_hints(itself, include_extras=True) | fixed
    groups: dict[str, type] = {}
    spread = [inspect.Parameter("ctx", _BY_NAME, annotation=typer.Context)]
    wants: dict[str, Any] = {}
    words = described(itself)[1]
    for parameter in inspect.signature(itself).parameters.values():
        hint = hints[parameter.name]
        if hint in (Session, FirstSession, Invocation):
            wants[parameter.name] = hint
        elif is_dataclass(hint) and isinstance(hint, type):
            groups[parameter.name] = hint
            spread.extend(_spread(hint))
        elif parameter.name not in fixed:
            spread.append(_option(parameter.replace(annotation=hint), words))
    spread.append(inspect.Parameter("as_json", _BY_NAME, default=False, annotation=_JSON))

    def call(ctx: typer.Context, *, as_json: bool, **values: Any) -> int:
        invocation = ctx.ensure_object(Invocation)
        invocation.as_json = as_json
        for group_name, group_type in groups.items():
            picked = {field.name: values.pop(field.name) for field in fields(group_type)}
            values[group_name] = group_type(**picked)
        try:
            return _run(function, invocation, wants, values)
        except BrokenPipeError:
            return close_quietly()

    call.__doc__ = described(function)[0]
    call.__annotations__ = {}
    call.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]  # read by Typer
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=FilterCommand)(call)
    return cast("TyperCommand", get_command(alone))


def described(documented: Any) -> tuple[str, dict[str, str]]:
    """Return a docstring up to its `Args:`, and what these say of each parameter."""
    text, _, section = (inspect.getdoc(documented) or "").partition("\n\nArgs:\n")
    entries = re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE)
    return text, {name: " ".join(words.split()) for name, words in entries}


def _run(
    function: Function, invocation: Invocation, wants: dict[str, Any], values: dict[str, Any]
) -> int:
    raise_interrupts()
    values.update({name: invocation for name, hint in wants.items() if hint is Invocation})
    sessions = [name for name, hint in wants.items() if hint is not Invocation]
    if not inspect.iscoroutinefunction(function):
        return int(function(**values) or 0)

    async def inside() -> int:
        if not sessions:
            return int(await function(**values) or 0)
        make = FirstSession in wants.values()
        async with invocation.session(make=make) as session:
            return int(await function(**values, **dict.fromkeys(sessions, session)) or 0)

    import asyncio

    return asyncio.run(inside())


def _spread(options: type) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(options, include_extras=True)
    words: dict[str, str] = {}
    for base in reversed(options.__mro__):
        words |= described(base)[1]
    for one in inspect.signature(options).parameters.values():
        yield _option(one.replace(annotation=hints[one.name], kind=_BY_NAME), words)


def _option(parameter: inspect.Parameter, words: Mapping[str, str]) -> inspect.Parameter:
    """Return the parameter as Typer takes it, with its help."""
    name, hint = parameter.name, parameter.annotation
    is_described = hasattr(hint, "__metadata__")
    kind, given = (hint.__origin__, hint.__metadata__[0]) if is_described else (hint, None)
    info = copy(given) or (typer.Option() if parameter.kind is _BY_NAME else typer.Argument())
    info.help = info.help or words.get(name)
    if isinstance(info, OptionInfo):
        if kind is bool and info.default is ...:  # without a name Typer adds --no-…
            info.param_decls = [f"--{name.replace('_', '-')}"]
    elif info.metavar is None:
        info.metavar = name.upper()
    return parameter.replace(kind=_BY_NAME, annotation=Annotated[kind, info])
