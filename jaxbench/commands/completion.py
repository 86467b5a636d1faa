"""`jaxbench completion`: the shell's completion of commands, options and names."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

VARIABLE = "_JAXBENCH_COMPLETE"
HELP = """Print the script that completes commands, options and names in a shell.

\b
Examples:
  eval "$(jaxbench completion bash)"                         # this shell
  jaxbench completion bash >> ~/.bashrc                      # every shell
  jaxbench completion zsh >> ~/.zshrc
  jaxbench completion fish > ~/.config/fish/completions/jaxbench.fish
"""


@click.command(help=HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a completion script."""
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "jaxbench", VARIABLE).source())


def complete_studies(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a study, or the path of a TOML file."""
    del context, parameter
    from jaxbench import config

    named = [CompletionItem(n, help=t) for n, t in config.available().items()]
    files = Path(incomplete).parent.glob("*.toml")
    found = [*named, *(CompletionItem(str(path)) for path in sorted(files))]
    return [item for item in found if str(item.value).startswith(incomplete)]


def complete_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a study, track, model or intervention."""
    del context, parameter
    from jaxbench import config, registry

    known = config.available()
    for kind in registry.KINDS:
        known |= registry.available(kind)
    return [
        CompletionItem(name, help=text)
        for name, text in known.items()
        if name.startswith(incomplete)
    ]
