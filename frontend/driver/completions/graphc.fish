# fish completion for graphc: verbs and options as graphc's own help lists them.

set -g __graphc_verbs run bench explain inspect verify grad train finetune merge tune doctor

function __graphc_verb
    set -l words (commandline -opc)
    set -q words[2]; and contains -- $words[2] $__graphc_verbs; and echo $words[2]
    or echo compile
end

# A line that names an option and says what it does, or of one that is too long for that its name alone.
function __graphc_options
    graphc help (__graphc_verb) 2>/dev/null | string replace -rf '^  (?:-., )?(--[a-z0-9-]+)(?:\S| \S)*(?: {2,}(.*))?$' '$1\t$2'
end

function __graphc_takes
    __graphc_options | string match -q -- "--$argv[1]"\t'*'
end

# A list with commas: its last word is completed.
function __graphc_targets
    set -l before (commandline -ct | string replace -r '^--target=' '' | string replace -rf '^(.*,).*$' '$1')
    printf '%s\n' $before(graphc --version 2>/dev/null | string replace -rf '^targets ' '' | string split ' ')
end

complete -c graphc -n 'test (count (commandline -opc)) -eq 1' -a 'compile $__graphc_verbs help version'
complete -c graphc -n 'test "$(commandline -opc | string join \x20)" = "graphc help"' -f -a 'compile $__graphc_verbs'
complete -c graphc -n 'string match -q -- "-*" (commandline -ct)' -f -a '(__graphc_options)'
complete -c graphc -n '__graphc_takes device' -l device -x -a 'cpu cuda'
complete -c graphc -n '__graphc_takes target' -l target -x -a '(__graphc_targets)'
complete -c graphc -n '__graphc_takes accuracy-level' -l accuracy-level -x -a '1 2 3 4'
complete -c graphc -n '__graphc_takes precision' -l precision -x -a 'f32 tf32 bf16 f16'
