#compdef penstock
# Completion of penstock for zsh: scripts/packages/completion puts the tables in.

_penstock() {
    local curcontext=$curcontext state state_descr line name ret=1
    typeset -A opt_args
    local -a subcommands options
    local -A settings

@TABLES@

    if (( CURRENT == 2 )); then
        _describe -t subcommands subcommand subcommands && ret=0
        _arguments $options && ret=0
        return ret
    fi
    shift words
    (( CURRENT-- ))
    _arguments -C -S $options && ret=0
    # Completes the value of --set.
    if [[ $state == setting ]]; then
        if compset -P 1 '*='; then
            name=${${IPREFIX##*[ =]}:-${${IPREFIX%=}##*=}}
            name=${name#PENSTOCK_}
            (( ${+settings[$name]} )) && compadd -- ${=settings[$name]:#FILE} && ret=0
            [[ $settings[$name] == *FILE* ]] && _files && ret=0
        else
            compadd -S = -- ${(k)settings} && ret=0
        fi
    fi
    return ret
}

_penstock "$@"
