"""Print the completion of a shell: commands, options, choices, and files.

bash: add `eval "$(seedbed completion bash)"` to ~/.bashrc. zsh: the same with `zsh` in ~/.zshrc,
after `compinit`. fish: `seedbed completion fish > ~/.config/fish/completions/seedbed.fish`.
"""

import argparse
import importlib
import importlib.util
from collections.abc import Iterator

_BASH = """\
_seedbed() {{
  local words
  case "${{COMP_WORDS[1]}}" in
{cases}
    *) words="{commands}" ;;
  esac
  [[ $COMP_CWORD == 1 ]] && words="{commands}"
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _seedbed seedbed
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `completion bash|zsh|fish`."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(args: argparse.Namespace) -> None:
    """Print the script."""
    words = dict(_words())
    if args.shell == "fish":
        for name, (text, options) in words.items():
            print(f"complete -c seedbed -f -n __fish_use_subcommand -a {name} -d '{text}'")
            seen = f"'__fish_seen_subcommand_from {name}'"
            for option in options:
                kind = f"-l {option[2:]}" if option.startswith("--") else f"-a {option}"
                print(f"complete -c seedbed -n {seen} {kind}")
        return
    cases = "\n".join(
        f'    {name}) words="{" ".join(options)}" ;;' for name, (_, options) in words.items()
    )
    script = _BASH.format(cases=cases, commands=" ".join(words))
    print((_ZSH if args.shell == "zsh" else "") + script, end="")


def _words() -> Iterator[tuple[str, tuple[str, list[str]]]]:
    """Yield each command with its text, its options and the words that it takes."""
    from seedbed.cli.main import COMMANDS
    from seedbed.config.shipped import shipped_experiments

    for name, text in COMMANDS.items():
        module_name = "bench.main" if name == "bench" else f"seedbed.cli.{name}"
        if importlib.util.find_spec(module_name.partition(".")[0]) is None:
            continue  # bench is in the source tree alone
        parser = argparse.ArgumentParser()
        importlib.import_module(module_name).add_arguments(parser)
        options = sorted(set(_options(parser)))
        if any(action.dest == "experiment" for action in parser._actions):
            options += shipped_experiments()
        yield name, (text, options)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options of a parser and of its parts, and the names of the parts."""
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        yield from (option for option in action.option_strings if option.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for name, part in action.choices.items():
                yield name
                yield from _options(part)
        elif not action.option_strings and action.choices:
            yield from map(str, action.choices)
