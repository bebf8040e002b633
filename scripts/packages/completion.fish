# Completion of penstock for fish: scripts/packages/completion puts the tables in.

function __penstock_begins
    test (count (commandline -opc)) -eq 1
end

# Succeeds while words of this subcommand are typed, not those of the command after --.
function __penstock_in
    set -l tokens (commandline -opc)
    set -q tokens[2]; and test $tokens[2] = $argv[1]; and not contains -- -- $tokens
end

function __penstock_in_command
    contains -- -- (commandline -opc)
end

# Prints the completions of the command after --.
function __penstock_command
    set -l tokens (commandline -opc) (commandline -ct)
    set -l at (contains -i -- -- $tokens)
    complete -C (string join -- ' ' $tokens[(math $at + 1)..-1])
end

complete -c penstock -f
complete -c penstock -n __penstock_in_command -a "(__penstock_command)"

@TABLES@
