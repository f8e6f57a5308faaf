"""Shell completion of jobs, options and their choices, in bash, zsh and fish; file names everywhere else.

Completion must be fast: the shell functions call the command with `COMPLETE` in its environment, and spark-submit.sh
answers in Python alone, before it checks Java, jars or an environment's lock. The protocol is typer's.
"""

from typing import Final

# typer's public options would add completion options of its own, which would be taken for Spark's
from typer._completion_classes import completion_init

from jobs.cli_enums import Shell
from jobs.console.command_name import COMPLETE, ENTRY

BASH: Final = """\
_groupledger() {
    local IFS=$'\\n'
    COMPREPLY=($(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD @VARIABLE@=complete_bash \\
        "${1/#\\~/$HOME}" 2>/dev/null))
}
complete -o default -F _groupledger @NAME@
"""

ZSH: Final = """\
_groupledger() {
    eval "$(_TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" @VARIABLE@=complete_zsh ${~words[1]} 2>/dev/null)"
}
compdef _groupledger @NAME@
"""

FISH: Final = """\
function __groupledger
    set -l words (commandline -opc)
    env @VARIABLE@=complete_fish _TYPER_COMPLETE_FISH_ACTION=$argv[1] _TYPER_COMPLETE_ARGS=(commandline -cp) \\
        (string replace -r '^~' $HOME $words[1]) 2>/dev/null
end
complete --command @NAME@ --no-files --arguments '(__groupledger get-args)' --condition '__groupledger is-args'
"""

SCRIPTS: Final = {Shell.BASH: BASH, Shell.ZSH: ZSH, Shell.FISH: FISH}


def script(shell: Shell) -> str:
    """Shell code that turns on completion for this program, whatever path it is called by."""
    name = ENTRY.rpartition("/")[2]
    return SCRIPTS[shell].replace("@VARIABLE@", COMPLETE).replace("@NAME@", name)


def make_ready() -> None:
    """Register typer's completion classes."""
    completion_init()
