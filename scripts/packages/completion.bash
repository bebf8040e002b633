# shellcheck shell=bash
# Completion of penstock for bash: scripts/packages/completion puts the tables in.

@TABLES@

# _penstock_reply TYPED WORD...: adds the words that begin with TYPED to COMPREPLY; FILE adds files
_penstock_reply() {
    local typed=$1 word words=()
    shift
    for word in "$@"; do
        if [ "$word" = FILE ]; then
            compopt -o filenames 2>/dev/null
            mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$typed")
        else
            words+=("$word")
        fi
    done
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "${words[*]}" -- "$typed")
}

# _penstock_value KEY TYPED: the same for the value of an option; sets `before` to the part that
# stays as typed
_penstock_value() {
    local name words
    read -ra words <<<"${_penstock_takes[$1]}"
    if [ "${words[*]}" = SETTING ]; then
        if [[ "$2" == *=* ]]; then
            name=${2%%=*}
            before=$name=
            read -ra words <<<"${_penstock_settings[${name#PENSTOCK_}]:-}"
            _penstock_reply "${2#*=}" "${words[@]}"
            return
        fi
        words=("${!_penstock_settings[@]}")
        words=("${words[@]/%/=}")
        [[ "$2" != P* ]] || words+=("${words[@]/#/PENSTOCK_}")
        compopt -o nospace 2>/dev/null
    fi
    _penstock_reply "$2" "${words[@]}"
}

# _penstock_command OFFSET: completes the command that begins at this word, if bash-completion is
# loaded; otherwise offers commands and files
_penstock_command() {
    local function
    for function in _comp_command_offset _command_offset; do
        declare -F $function >/dev/null && $function "$1" && return
    done
    compopt -o filenames 2>/dev/null
    if [ "$COMP_CWORD" -eq "$1" ]; then
        mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
    fi
}

_penstock() {
    local i word words=() starts=() joined='' subcommand=- pending='' current before=''
    COMPREPLY=()
    # --option=VALUE is three words if an equals sign breaks words.
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [ "$word" = "=" ] && [ ${#words[@]} -gt 0 ]; then
            words[-1]+="="
            joined=yes
        elif [ -n "$joined" ]; then
            words[-1]+=$word
            joined=
        else
            words+=("$word")
            starts+=("$i")
        fi
    done
    current=${words[-1]}
    for ((i = 0; i < ${#words[@]} - 1; i++)); do
        word=${words[i]}
        if [ -n "$pending" ]; then
            pending=
        elif [ "$subcommand" = - ]; then
            subcommand=$word
        elif [ -n "${_penstock_takes[$subcommand:$word]+set}" ]; then
            pending=$word
        elif [[ "${_penstock_offers[$subcommand]:-}" == *COMMAND ]] && [[ "$word" = -- || "$word" != -* ]]; then
            [ "$word" != -- ] || i=$((i + 1))
            _penstock_command "${starts[i]}"
            return
        fi
    done
    if [ -n "$pending" ]; then
        _penstock_value "$subcommand:$pending" "$current"
    elif [[ "$current" == --*=* ]] && [ -n "${_penstock_takes[$subcommand:${current%%=*}]+set}" ]; then
        _penstock_value "$subcommand:${current%%=*}" "${current#*=}"
        before=${current%%=*}=$before
    else
        read -ra words <<<"${_penstock_offers[$subcommand]:-}"
        if [[ "${words[*]}" == *COMMAND && "$current" != -* ]]; then
            _penstock_command "$COMP_CWORD"
            return
        fi
        _penstock_reply "$current" "${words[@]/#COMMAND/--}"
    fi
    [ -z "$before" ] || [[ "$COMP_WORDBREAKS" == *=* ]] || COMPREPLY=("${COMPREPLY[@]/#/$before}")
}

complete -F _penstock penstock
